//! The record on PostgreSQL: one database that several nodes share.
//!
//! The same tables, ports and promises as on SQLite. What differs is that others write at the same time: every node has
//! a chain of its own ([`ledger`]), rows are read in one order over all chains ([`places`]), a process of another node
//! lives as long as it says so ([`node`]), and a connection may go at any moment ([`writer`]). Methods that read, prove,
//! export or prune block: call them off the async threads. Only [`site`] opens connections.

mod acts;
pub mod address;
mod applying;
mod approvals;
mod bell;
mod cells;
pub(crate) mod condition;
pub mod copy;
mod databases;
mod delegations;
mod dump;
mod exchanges;
mod github;
mod jobs;
mod ledger;
mod link;
mod logins;
pub mod migrations;
pub mod node;
mod places;
mod proving;
mod prune;
mod query;
mod readers;
mod reading;
mod runs;
mod secrets;
mod sessions;
pub mod site;
mod snapshot;
mod sweep;
pub mod tls;
pub mod tokens;
mod trouble;
mod verify;
mod writer;

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use countersign_gateway::audit::outcome::StoredAct;
use countersign_gateway::audit::{Change, Committed, Pending, Record, RecordError, StoredCommand};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, RequestId, SessionId};
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState};

use ledger::Ledger;
use readers::Readers;
use site::{OpenError, Site};
pub use trouble::Trouble;

use crate::Options;
use crate::key::GuardedKeyError;
use crate::rows::tokens::Known;
use crate::waiting::{Answer, Job, QUEUE_MAX, aside, taken};

/// The record of a database, as one node of it. Dropping it is the clean stop: what waits is written, the chain's end is
/// signed.
pub struct PgStore {
    site: Arc<Site>,
    readers: Arc<Readers>,
    queue: Option<SyncSender<Box<Job>>>,
    /// Copies of the tokens that somebody looks into.
    tokens_seen: Mutex<Vec<Weak<Mutex<Known>>>>,
    writer: Option<JoinHandle<()>>,
}

impl PgStore {
    /// Opens the record in a database, brings its tables up to date and enters the node of this state directory, which
    /// keeps the node's name and key.
    pub fn open(directory: &Path, url: &str, options: Options) -> Result<Self, OpenError> {
        let (site, link) = Site::prepare(directory, url, options)?;
        let site = Arc::new(site);
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let writer = {
            let site = Arc::clone(&site);
            thread::Builder::new()
                .name("record-writer".to_owned())
                .spawn(move || writer::run(&site, link, &jobs))
                .map_err(|source| OpenError::Thread { source })?
        };
        Ok(Self {
            readers: Arc::new(Readers::new(Arc::clone(&site))),
            site,
            queue: Some(queue),
            tokens_seen: Mutex::default(),
            writer: Some(writer),
        })
    }

    /// A secret for one purpose, the same in every process of this node, and not in the database.
    pub fn derived_key(&self, purpose: &str) -> [u8; 32] {
        self.site.key.derived(purpose)
    }

    /// A secret for one purpose that every node has: a client may come back to another one. Whoever reads the database
    /// has it too, so it seals what clients carry and nothing that the database itself must not tell.
    pub fn shared_key(&self, purpose: &str) -> [u8; 32] {
        self.site.shared.derived(purpose)
    }

    /// A secret for one purpose that every node has and the database has not: the first node that needs one says whose
    /// key it is, and all others must have been given it. Blocks.
    pub fn guarded_key(&self, purpose: &str) -> Result<[u8; 32], GuardedKeyError> {
        let compared = self.site.connect().and_then(|link| {
            link.execute(
                "INSERT INTO nodes_key (is_only, public_key, node) VALUES (true, $1, $2) ON CONFLICT DO NOTHING",
                &[&self.site.guarded.public(), &self.site.node.name()],
            )?;
            let row = link.query_one("SELECT public_key, node FROM nodes_key", &[])?;
            Ok((row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?))
        });
        match compared.map_err(|source| GuardedKeyError::Compare { source: source.into() })? {
            (public, _) if public == self.site.guarded.public() => Ok(self.site.guarded.derived(purpose)),
            (_, node) => Err(GuardedKeyError::Other { node }),
        }
    }

    /// The public half of the key that signs this node's chain, in hexadecimal.
    pub fn public_key(&self) -> &str {
        self.site.key.public()
    }

    /// The name of this node and of its chain.
    pub fn node(&self) -> &str {
        self.site.node.name()
    }

    /// Whether a change could be written now; says what is in the way otherwise. Takes the node's chain for a moment and
    /// writes nothing, so that it may be asked often. Trouble that the last writer met counts for a while.
    pub fn ready(&self) -> Result<(), RecordError> {
        self.site.health.trouble()?;
        let taken = self
            .readers
            .read(|link| Ledger::begin(link, &self.site).map(Ledger::roll_back));
        taken.map_err(|error| trouble::unavailable(&error))
    }

    /// From now on nothing waits for the database beyond this time: the end of this process must not take longer than
    /// its operator allows. What cannot be written then is refused, and told in the log.
    pub fn stop_within(&self, grace: Duration) {
        self.site.health.stop_within(grace);
    }

    fn send(&self, change: Change) -> Result<Answer, RecordError> {
        let (job, outcome) = Job::new(change);
        taken(self.queue.as_ref().map(|queue| queue.try_send(job))).map(|()| outcome)
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

impl Record for PgStore {
    fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        Answer::after(self.send(change))
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
            let sql = "SELECT end_wanted FROM open_commands WHERE owner = $1 AND request_id = $2";
            let found = readers.first(sql, &[&owner.as_str(), &request_id.as_str()], |row| Ok(row.try_get(0)?))?;
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

impl Drop for PgStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the record's writer ended by a panic");
        }
    }
}
