//! The record on SQLite: one file that all processes of a state directory share.
//!
//! Writing goes through one thread per process ([`writer`]), reading through connections of its own
//! in short transactions. Methods that read, prove, export or prune block: call them off the async
//! threads. Only [`site`] opens the file.

mod acts;
mod applying;
mod approvals;
pub(crate) mod backup;
mod cells;
pub(crate) mod condition;
mod databases;
mod delegations;
pub mod dump;
pub mod exchanges;
mod express;
mod github;
mod jobs;
mod leading;
mod ledger;
mod log;
mod logins;
pub mod migrations;
mod proving;
pub mod prune;
pub mod query;
mod readers;
mod reading;
mod runs;
mod secrets;
mod sessions;
pub mod site;
mod snapshot;
pub mod source;
mod spans;
mod sweep;
pub mod tokens;
mod trouble;
pub mod verify;
mod writer;

pub(crate) use trouble::sentence;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use countersign_gateway::audit::outcome::StoredAct;
use countersign_gateway::audit::{Change, Committed, Pending, Record, RecordError, StoredCommand};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{CredentialId, RequestId, SessionId};
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState};

use crate::witness::WitnessAt;
use express::{Express, Tried};
use ledger::{Ledger, Turn};
use readers::Readers;
use site::{OpenError, Site};
use writer::Message;

use crate::key::{GuardedKeyError, Key};
use crate::waiting::{Answer, Job, QUEUE_MAX, aside, taken};

/// The one chain of a SQLite record.
pub const CHAIN: &str = "main";
/// How long a writer waits for another process.
pub const BUSY_TIMEOUT: Duration = Duration::from_millis(5_000);
/// How long another process may write while this one is still called ready.
const READY_PATIENCE: Duration = Duration::from_secs(1);

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The loss of power: every commit is flushed to the disk.
    Power,
    /// The death of the process; the last moments may be lost with the machine.
    Process,
}

/// Not printed: the address of a database may hold a password.
#[derive(Clone)]
pub struct Options {
    pub durability: Durability,
    pub clock: Clock,
    pub busy_timeout: Duration,
    /// Who gets a copy of every checkpoint.
    pub witness: Option<WitnessAt>,
    /// The address of a PostgreSQL database to keep the record in, instead of a file.
    pub database: Option<String>,
    /// Whether the end of a record that has no seal is taken as it is, and sealed.
    pub seals: bool,
}

impl Options {
    pub fn new(durability: Durability, clock: Clock) -> Self {
        Self {
            durability,
            clock,
            busy_timeout: BUSY_TIMEOUT,
            witness: None,
            database: None,
            seals: true,
        }
    }

    /// The same, in a database.
    #[must_use]
    pub fn on(self, database: Option<String>) -> Self {
        Self { database, ..self }
    }
}

/// The record of one state directory. Dropping it is the clean stop: what waits is written, the
/// chain's end is signed.
pub struct SqliteStore {
    site: Arc<Site>,
    readers: Arc<Readers>,
    queue: Option<SyncSender<Message>>,
    express: Express,
    writer: Option<JoinHandle<()>>,
    /// Counts the changes of tokens that this process made.
    tokens_changed: Arc<AtomicU64>,
}

impl SqliteStore {
    /// Opens the record of a state directory, and creates what is missing.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let (site, connection) = Site::prepare(directory, options)?;
        let site = Arc::new(site);
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let writer = {
            let site = Arc::clone(&site);
            thread::Builder::new()
                .name("record-writer".to_owned())
                .spawn(move || writer::run(&site, connection, &jobs))
                .map_err(|source| OpenError::Thread { source })?
        };
        Ok(Self {
            readers: Arc::new(Readers::new(Arc::clone(&site))),
            express: Express::new(Arc::clone(&site)),
            site,
            queue: Some(queue),
            writer: Some(writer),
            tokens_changed: Arc::default(),
        })
    }

    /// Opens a record for somebody who only reads it, also where it cannot be written. What is missing is made where it can be.
    pub fn open_to_read(directory: &Path, options: Options) -> Result<Self, OpenError> {
        match Self::open(directory, options.clone()) {
            Err(error) if error.is_unwritable() => {}
            opened => return opened,
        }
        let site = Arc::new(Site::look_into(directory, options)?);
        Ok(Self {
            readers: Arc::new(Readers::new(Arc::clone(&site))),
            express: Express::new(Arc::clone(&site)),
            site,
            queue: None,
            writer: None,
            tokens_changed: Arc::default(),
        })
    }

    /// A secret for one purpose, the same in every process of this state directory.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.site.key.derived(purpose)
    }

    /// The same for what clients carry, also to the nodes of a database that this record moves to.
    pub fn shared_key(&self, purpose: &str) -> [u8; 32] {
        Key::from_seed(&self.site.key.shared_seed()).derived(purpose)
    }

    /// The same for what must never be read from the record itself.
    pub fn guarded_key(&self, purpose: &str) -> Result<[u8; 32], GuardedKeyError> {
        Ok(self.site.key.guarded().derived(purpose))
    }

    /// The public half of the key that signs this record, in hexadecimal.
    pub fn public_key(&self) -> &str {
        self.site.key.public()
    }

    /// Whether a change could be written now; says what is in the way otherwise. Takes the right to write for
    /// a moment and writes nothing, so that it may be asked often. Trouble that the last writer met counts
    /// for a while, and not for ever: nobody would try again.
    pub fn ready(&self) -> Result<(), RecordError> {
        self.site.health.trouble()?;
        let taken = self.site.connect_writer(READY_PATIENCE).and_then(|connection| {
            let mut ledger = Ledger::over(&connection, &self.site);
            let turn = ledger.begin(Turn::Within(READY_PATIENCE));
            ledger.roll_back();
            turn
        });
        taken.map(drop).map_err(|error| trouble::unavailable(&error))
    }

    /// From now on nothing waits for another process beyond this time: the end of this one must not take
    /// longer than its operator allows. What cannot be written then is refused, and told in the log.
    pub fn stop_within(&self, grace: Duration) {
        self.site.health.stop_within(grace);
    }

    fn send(&self, change: Change) -> Result<Answer, RecordError> {
        let (job, outcome) = Job::new(change);
        self.hand_over(job).map(|()| outcome)
    }

    fn hand_over(&self, job: Box<Job>) -> Result<(), RecordError> {
        taken(self.queue.as_ref().map(|queue| queue.try_send(Message::Write(job))))
    }

    /// Reads off the async threads.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Readers) -> Result<T, RecordError> + Send + 'static,
    ) -> Pending<Result<T, RecordError>> {
        let readers = Arc::clone(&self.readers);
        aside("the reader was stopped", move || work(&readers))
    }
}

impl Record for SqliteStore {
    fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        Answer::after(self.send(change))
    }

    fn commit_alone(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        let (job, outcome) = Job::new(change);
        match self.express.write(job) {
            Tried::Written(outcome) => {
                if self.site.growth.is_due()
                    && let Some(queue) = &self.queue
                {
                    // A full queue means a busy writer, who looks after the log anyway.
                    let _ = queue.try_send(Message::LookAfterLog);
                }
                Box::pin(std::future::ready(outcome))
            }
            Tried::Not(job) => Answer::after(self.hand_over(job).map(|()| outcome)),
        }
    }

    fn command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Pending<Result<Option<StoredCommand>, RecordError>> {
        let (owner, request_id) = (owner.clone(), request_id.clone());
        self.read(move |readers| readers.command(&owner, &request_id))
    }

    fn act(&self, owner: &CredentialId, request_id: &RequestId) -> Pending<Result<Option<StoredAct>, RecordError>> {
        let (owner, request_id) = (owner.clone(), request_id.clone());
        self.read(move |readers| readers.act(&owner, &request_id))
    }

    fn is_end_wanted(&self, owner: &CredentialId, request_id: &RequestId) -> Pending<Result<bool, RecordError>> {
        let (owner, request_id) = (owner.clone(), request_id.clone());
        self.read(move |readers| {
            let sql = "SELECT end_wanted FROM open_commands WHERE owner = ?1 AND request_id = ?2";
            let found = readers.first(sql, [owner.as_str(), request_id.as_str()], |row| row.get(0))?;
            Ok(found.unwrap_or(false))
        })
    }

    fn session(&self, id: &SessionId) -> Pending<Result<Option<KeptSession>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| readers.session(&id))
    }

    fn sessions(&self, state: Option<SessionState>, limit: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        self.read(move |readers| readers.sessions(state, limit))
    }

    fn ended_sessions(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, RecordError>> {
        self.read(move |readers| readers.ended_sessions(among))
    }

    fn session_counts(&self) -> Pending<Result<Vec<(SessionState, usize)>, RecordError>> {
        self.read(|readers| readers.session_counts())
    }

    fn idle_sessions(&self, since: Timestamp, limit: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        self.read(move |readers| readers.idle_sessions(since, limit))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the record's writer ended by a panic");
        }
    }
}
