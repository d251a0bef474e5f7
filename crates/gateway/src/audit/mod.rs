//! The record: what happened, in an order nobody can quietly change.
//!
//! This station makes events and declares the port they are written through; databases live in the
//! store. An [`event::Draft`] holds a payload that is already redacted and canonical, so an adapter
//! only links and writes it. *No record, no run*: [`Recorded`] is the receipt that execution asks for
//! before it lets a program start, and only a durable append makes one.

pub mod act;
pub mod chain;
pub mod command;
pub mod envelope;
pub mod event;
pub mod invocation;
pub mod kept;
pub mod keyed;
pub mod opened;
pub mod outcome;
pub mod payload;
pub mod reading;
pub mod redact;
pub mod row;
pub mod summary;
pub mod trace;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::approval::request::ApprovalChange;
use crate::clock::Timestamp;
use crate::delegation::DelegationChange;
use crate::error::{ErrorCode, Refusal};
use crate::github::delivery::DeliveryChange;
use crate::github::message::KeptMessage;
use crate::ids::{CredentialId, EventId, RequestId, SessionId};
use crate::job::keeping::{Beat, Filed, GoneProcess, JobChange, Note};
use crate::lease::LeaseChange;
use crate::run::keeping::{HeadChange, Link, ReviewChange, RunChange};
use crate::session::lifetime::{KeptSession, Session, SessionState, Touched};
use crate::tools::database::keeping::DatabaseChange;
use crate::tools::secrets::keeping::SyncChange;
use outcome::StoredAct;

pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Port: the durable record.
pub trait Record: Send + Sync + 'static {
    /// Writes events and row changes as one durable transaction. The write goes on when the
    /// returned future is dropped.
    fn commit(&self, change: Change) -> Pending<Result<Committed, RecordError>>;

    /// The same for a caller with nothing else to do meanwhile: the write may happen on the calling
    /// thread before this returns, which spares two wake-ups.
    fn commit_alone(&self, change: Change) -> Pending<Result<Committed, RecordError>> {
        self.commit(change)
    }

    /// Finds what an earlier or open command left.
    fn command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Pending<Result<Option<StoredCommand>, RecordError>>;

    /// Finds what became of the act that a request of this owner asked for.
    fn act(&self, owner: &CredentialId, request_id: &RequestId) -> Pending<Result<Option<StoredAct>, RecordError>>;

    /// Whether somebody asked for the end of an open command, here or in another process.
    fn is_end_wanted(&self, owner: &CredentialId, request_id: &RequestId) -> Pending<Result<bool, RecordError>>;

    /// A session by its id, in whatever state, with the last requests it must know again.
    fn session(&self, id: &SessionId) -> Pending<Result<Option<KeptSession>, RecordError>>;

    /// The latest sessions, of one state where one is named; the newest last.
    fn sessions(&self, state: Option<SessionState>, limit: usize) -> Pending<Result<Vec<Session>, RecordError>>;

    /// Those of these sessions that are not open.
    fn ended_sessions(&self, among: Vec<SessionId>) -> Pending<Result<Vec<SessionId>, RecordError>>;

    /// How many sessions stand at each state.
    fn session_counts(&self) -> Pending<Result<Vec<(SessionState, usize)>, RecordError>>;

    /// Open sessions that nobody used since, the longest idle first. A session that lives and dies with
    /// a process is not idle while that one lives.
    fn idle_sessions(&self, since: Timestamp, limit: usize) -> Pending<Result<Vec<Session>, RecordError>>;
}

/// One transaction on the record.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub events: Vec<event::Draft>,
    /// A command that is now open; refused when its owner already used the request id.
    pub open: Option<OpenCommand>,
    /// A command that has ended.
    pub close: Option<CloseCommand>,
    /// An open command whose caller wants it ended by whichever process works on it; of one that has ended it says
    /// nothing.
    pub end_wanted: Option<(CredentialId, RequestId)>,
    /// A session that began or took a step.
    pub session: Option<SessionChange>,
    /// Sessions that were used. One that has ended stays as it is.
    pub touched: Vec<Touched>,
    /// Questions that were asked or took a step; all of them, or nothing of the change.
    pub approvals: Vec<ApprovalChange>,
    /// Jobs that were started or took a step; all of them, or nothing of the change.
    pub jobs: Vec<JobChange>,
    /// What is said to jobs, from whichever process; refused for one that has ended.
    pub notes: Vec<Note>,
    /// Signs of life of whoever looks after jobs; of one that somebody else took it says nothing.
    pub beats: Vec<Beat>,
    /// Processes of agents that are gone.
    pub gone: Vec<GoneProcess>,
    /// Files that tell more now.
    pub filed: Vec<Filed>,
    /// Runs that were set off or took a step; all of them, or nothing of the change.
    pub runs: Vec<RunChange>,
    /// Acts of services outside that began or ended; all of them, or nothing of the change.
    pub delegations: Vec<DelegationChange>,
    /// Runs whose work waits for the owner's review, or no longer does.
    pub reviews: Vec<ReviewChange>,
    pub heads: Vec<HeadChange>,
    /// What belongs together from now on; what was linked so before stays as it is.
    pub links: Vec<Link>,
    /// Leases that are taken or given back; all of them, or nothing of the change.
    pub leases: Vec<LeaseChange>,
    /// Deliveries that came or moved on; all of them, or nothing of the change.
    pub deliveries: Vec<DeliveryChange>,
    /// What GitHub was told of runs.
    pub messages: Vec<KeptMessage>,
    /// What projects own of databases now; all of it, or nothing of the change.
    pub databases: Vec<DatabaseChange>,
    /// Secrets on their way; all of them, or nothing of the change.
    pub syncs: Vec<SyncChange>,
    /// An act that is no command and was opened, told of or ended.
    pub act: Option<act::ActChange>,
    /// Written only if the command or act that it closes is still open; else it counts as done, and its receipt
    /// names no event.
    pub only_if_open: bool,
}

impl Change {
    /// Whether it is written only where something besides its own command stands as it expects: all of it, or
    /// nothing. Every part is named here, so that a new one is thought of.
    pub fn is_conditional(&self) -> bool {
        let Self {
            session,
            approvals,
            jobs,
            notes,
            runs,
            delegations,
            leases,
            deliveries,
            databases,
            syncs,
            act,
            // What is written whatever else stands where.
            events: _,
            open: _,
            close: _,
            end_wanted: _,
            touched: _,
            beats: _,
            gone: _,
            filed: _,
            reviews: _,
            heads: _,
            links: _,
            messages: _,
            only_if_open: _,
        } = self;
        session.is_some()
            || act.is_some()
            || !approvals.is_empty()
            || !jobs.is_empty()
            || !notes.is_empty()
            || !runs.is_empty()
            || !delegations.is_empty()
            || !leases.is_empty()
            || !deliveries.is_empty()
            || !databases.is_empty()
            || !syncs.is_empty()
    }
}

/// A session's row after a step.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionChange {
    pub session: Session,
    /// Where it must stand for the change to happen; none for a new session. One that expires must
    /// besides not have been used since it was read.
    pub from: Option<SessionState>,
}

/// The request of a lasting session that a command or an act came in, kept so that the session knows it again
/// after a restart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    pub session: SessionId,
    pub rpc_id: String,
    pub digest: [u8; 32],
}

/// A command request whose end is not recorded yet. The sweeper closes what a crash left open.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenCommand {
    pub owner: CredentialId,
    pub request_id: RequestId,
    /// Digest of the request's content: the same id with other content is a conflict.
    pub digest: String,
    pub opened_at: Timestamp,
    /// What the closing event of an abandoned command repeats: canonical JSON of the
    /// CommandAuditRecord with status `failed` and code `ABANDONED`, less `audit_id` and `timestamp`.
    pub abandoned: String,
    pub correlation_id: crate::ids::CorrelationId,
    pub asked: Option<Asked>,
}

impl OpenCommand {
    pub fn opened(&self) -> opened::Opened<'_> {
        opened::Opened {
            owner: self.owner.as_str(),
            request_id: self.request_id.as_str(),
            digest: &self.digest,
            correlation_id: self.correlation_id.as_str(),
            opened_at: self.opened_at,
            abandoned: &self.abandoned,
        }
    }
}

/// The end of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct CloseCommand {
    pub owner: CredentialId,
    pub request_id: RequestId,
    pub digest: String,
    pub opened_at: Timestamp,
    pub correlation_id: crate::ids::CorrelationId,
    /// The structured result without its output, as JSON.
    pub result: String,
    /// Redacted output as kept (head and tail). Shared, since a change is written again until it is.
    pub stdout: Arc<Vec<u8>>,
    pub stderr: Arc<Vec<u8>>,
    pub asked: Option<Asked>,
}

impl CloseCommand {
    pub fn kept(&self) -> kept::Kept<'_> {
        kept::Kept {
            owner: self.owner.as_str(),
            request_id: self.request_id.as_str(),
            digest: &self.digest,
            correlation_id: self.correlation_id.as_str(),
            result: &self.result,
            stdout: &self.stdout,
            stderr: &self.stderr,
        }
    }
}

/// What the store knows of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredCommand {
    pub request_id: RequestId,
    pub digest: String,
    pub opened_at: Timestamp,
    /// What closes it later, while it is open.
    pub open: Option<StoredOpen>,
    pub end: Option<StoredEnd>,
}

impl StoredCommand {
    /// Keeps of an open command what the events of its opening vouch for.
    #[must_use]
    pub fn vouched(mut self, owner: &CredentialId, events: &[String]) -> Self {
        self.open = self.open.and_then(|open| {
            let row = opened::Opened {
                owner: owner.as_str(),
                request_id: self.request_id.as_str(),
                digest: &self.digest,
                correlation_id: open.correlation_id.as_str(),
                opened_at: self.opened_at,
                abandoned: &open.abandoned,
            };
            let abandoned = row.closed_with(events.iter().map(String::as_str))?;
            Some(StoredOpen { abandoned, ..open })
        });
        self
    }
}

/// What an open command is closed with by whoever did not open it.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredOpen {
    pub correlation_id: crate::ids::CorrelationId,
    /// As in [`OpenCommand`].
    pub abandoned: String,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StoredEnd {
    pub result: String,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// The receipt of a durable append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    pub last_seq: u64,
    pub last_event: Option<EventId>,
}

/// Why nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The owner has used this request id before.
    #[error("request id `{0}` was used before")]
    RequestIdTaken(RequestId),
    /// The session is no longer where the change expected it.
    #[error("the session has meanwhile moved on")]
    SessionMoved,
    /// The approval is no longer where the change expected it, or the same question is open already.
    #[error("the approval has meanwhile moved on")]
    ApprovalMoved,
    /// The job is no longer where the change expected it, or another process looks after it.
    #[error("the job has meanwhile moved on")]
    JobMoved,
    /// As many jobs as may be are looked after.
    #[error("as many jobs run as may")]
    NoPlace,
    /// The run is no longer where the change expected it, or its issue has one that waits or works already.
    #[error("the run has meanwhile moved on")]
    RunMoved,
    /// The act of a service outside is no longer where the change expected it.
    #[error("the act has meanwhile ended")]
    DelegationMoved,
    /// What a tool acts upon is no longer as the change expected it, or another call has it.
    #[error("what this acts upon has meanwhile changed")]
    TargetMoved,
    /// Somebody else has the lease.
    #[error("`{0}` is somebody else's at this moment")]
    LeaseTaken(String),
    /// The delivery came before, or has meanwhile moved on.
    #[error("the delivery `{0}` is known")]
    DeliveryKnown(String),
    /// Another session of this day has that name.
    #[error("the session's name is taken")]
    SessionNameTaken,
    /// The record cannot be written or read now.
    #[error("the record is unavailable: {0}")]
    Unavailable(String),
}

impl RecordError {
    /// What a caller hears of it, with what that means for them.
    pub fn refusal(&self, meaning: &str) -> Refusal {
        Refusal::new(ErrorCode::AuditUnavailable, format!("{self}; {meaning}"))
    }
}

/// Proof that a call's opening is durably in the record.
///
/// Only this module makes one, from a [`Committed`]; execution cannot start a program without it.
#[derive(Debug)]
pub struct Recorded {
    _sealed: (),
}

impl Recorded {
    pub(crate) fn by(_receipt: &Committed) -> Self {
        Self { _sealed: () }
    }
}
