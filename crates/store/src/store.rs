//! The record, wherever it is kept: a file in the state directory, or a database that several nodes share.
//!
//! Both keep the same promises, and one suite of tests holds both to them. What is asked of a [`Store`] is handed on;
//! nothing is decided here but which of the two it is.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::approval::proof::Told;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::approval::{ApprovalFilter, Approvals, Bell};
use countersign_gateway::audit::event::Actor;
use countersign_gateway::audit::outcome::StoredAct;
use countersign_gateway::audit::reading::{Entity, Filter, Placed, Proved, Records};
use countersign_gateway::audit::row::Row;
use countersign_gateway::audit::summary::{MetricsSummary, Period};
use countersign_gateway::audit::{Change, Committed, Pending, Record, RecordError, StoredCommand};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::delegation::{Delegation, Delegations};
use countersign_gateway::github::delivery::{Deliveries, Delivery};
use countersign_gateway::github::message::{Messages, Untold};
use countersign_gateway::ids::{
    ApprovalId, ConversationId, CorrelationId, CredentialId, DelegationId, EventId, IdSource, JobId, JobSessionId,
    RequestId, RunId, SessionId,
};
use countersign_gateway::job::driver::Usage;
use countersign_gateway::job::event::StoredEvent;
use countersign_gateway::job::keeping::{AbandonedJob, AgentProcess, JobFilter, Jobs, Note, Place};
use countersign_gateway::job::lifecycle::JobStatus;
use countersign_gateway::job::session::JobSession;
use countersign_gateway::job::state::Job;
use countersign_gateway::run::keeping::{Link, LinkEnd, RunFilter, Runs};
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::Run;
use countersign_gateway::session::credential::{Credential, Credentials, TokenName};
use countersign_gateway::session::lifetime::{KeptSession, Session, SessionState};
use countersign_gateway::session::login::{Entered, Logins};
use countersign_gateway::session::{Caller, Role};
use countersign_gateway::tools::database::keeping::{Databases, Kept};
use countersign_gateway::tools::secrets::keeping::{KeptSync, SecretSyncs, SyncTarget};
use serde_json::Value;
use tokio::sync::watch;

use crate::key::GuardedKeyError;
use crate::prove::Report;
use crate::sqlite::dump::ExportError;
use crate::sqlite::exchanges::Found;
use crate::sqlite::prune::{PruneError, Pruned};
use crate::sqlite::query::QueryError;
use crate::sqlite::tokens::{Made, Revoked, TokenError};
use crate::sqlite::verify::{Progress, Range, VerifyError};
use crate::wake::{Doorbell, Knock};
use crate::{Options, PgStore, SqliteStore, postgres, sqlite};

pub enum Store {
    Sqlite(SqliteStore),
    Postgres(PgStore),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Sqlite(#[from] sqlite::site::OpenError),
    #[error(transparent)]
    Postgres(#[from] postgres::site::OpenError),
}

impl Store {
    /// Opens the record of a state directory, and creates what is missing: in the database that the options name, else
    /// in the directory itself.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        Ok(match options.database.clone() {
            Some(url) => Self::Postgres(PgStore::open(directory, &url, options)?),
            None => Self::Sqlite(SqliteStore::open(directory, options)?),
        })
    }

    /// Opens it for somebody who only reads, also a file that cannot be written. An end without a seal stays without one:
    /// whoever asks whether it was changed does not vouch for it.
    pub fn open_to_read(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let options = Options {
            seals: false,
            ..options
        };
        match options.database {
            Some(_) => Self::open(directory, options),
            None => Ok(Self::Sqlite(SqliteStore::open_to_read(directory, options)?)),
        }
    }

    /// Whether other nodes may work on the same record.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// A bell with an ear, for a process that stays. Must be called where an event loop runs.
    pub fn hang_bell(&self, directory: &Path) -> io::Result<Arc<dyn Bell>> {
        Ok(match self {
            Self::Sqlite(_) => Arc::new(Doorbell::hang(directory)?),
            Self::Postgres(store) => Arc::new(store.hang_bell()),
        })
    }

    /// A bell without an ear, for a process that does not stay.
    pub fn knock(&self, directory: &Path) -> Arc<dyn Bell> {
        match self {
            Self::Sqlite(_) => Arc::new(Knock::on(directory)),
            Self::Postgres(store) => Arc::new(store.knock()),
        }
    }

    /// A secret for one purpose that every process of the record has, on whichever node.
    pub fn shared_key(&self, purpose: &str) -> [u8; 32] {
        match self {
            Self::Sqlite(store) => store.shared_key(purpose),
            Self::Postgres(store) => store.shared_key(purpose),
        }
    }

    /// Knows the tokens in force, for whoever serves.
    pub fn credentials(&self) -> Arc<dyn Credentials> {
        match self {
            Self::Sqlite(store) => Arc::new(store.credentials()),
            Self::Postgres(store) => Arc::new(store.credentials()),
        }
    }
}

/// Hands methods on to whichever store it is.
macro_rules! handed_on {
    ($($(#[$about:meta])* fn $name:ident(&self $(, $given:ident: $kind:ty)*) -> $answer:ty;)*) => {
        impl Store {$(
            $(#[$about])*
            pub fn $name(&self $(, $given: $kind)*) -> $answer {
                match self {
                    Self::Sqlite(store) => store.$name($($given),*),
                    Self::Postgres(store) => store.$name($($given),*),
                }
            }
        )*}
    };
    (port $port:ident $($(#[$about:meta])* fn $name:ident(&self $(, $given:ident: $kind:ty)*) -> $answer:ty;)*) => {
        impl $port for Store {$(
            fn $name(&self $(, $given: $kind)*) -> $answer {
                match self {
                    Self::Sqlite(store) => $port::$name(store $(, $given)*),
                    Self::Postgres(store) => $port::$name(store $(, $given)*),
                }
            }
        )*}
    };
}

type Answer<T> = Pending<Result<T, RecordError>>;

handed_on! {
    /// A secret for one purpose, the same in every process of this state directory.
    fn derived_key(&self, purpose: &str) -> [u8; 32];
    /// A secret for one purpose that all nodes have and nobody can read from the record. Blocks.
    fn guarded_key(&self, purpose: &str) -> Result<[u8; 32], GuardedKeyError>;
    /// The public half of the key that signs this record, in hexadecimal.
    fn public_key(&self) -> &str;
    /// Whether a change could be written now; says what is in the way otherwise.
    fn ready(&self) -> Result<(), RecordError>;
    /// From now on nothing waits for others beyond this time.
    fn stop_within(&self, grace: Duration) -> ();
    /// Closes abandoned commands and sessions; gives the number of commands. Blocks.
    fn sweep_abandoned(&self, now: Timestamp, ids: &IdSource) -> Result<usize, RecordError>;
    /// Deletes what is older than `before`, except what an open command still needs. Blocks.
    fn prune(&self, before: Timestamp, ids: &IdSource) -> Result<Pruned, PruneError>;
    /// The daily retention job. Blocks.
    fn prune_older_than(&self, days: u32, now: Timestamp, ids: &IdSource) -> Result<Pruned, PruneError>;
    /// Proves rows, head and checkpoints; the first flaw is the error. Blocks.
    fn verify(&self, range: Range, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, VerifyError>;
    /// Writes the record as it stands now. Blocks.
    fn export(&self, writer: &mut dyn Write) -> Result<(), ExportError>;
    /// Events, oldest first. Blocks.
    fn query_events(&self, filter: &Filter) -> Result<Vec<Row>, QueryError>;
    /// Audit records of commands, oldest first. Blocks.
    fn query_commands(&self, filter: &Filter) -> Result<Vec<Result<Value, QueryError>>, QueryError>;
    /// What was written behind a place, in order; at most the usual limit. Blocks.
    fn tail(&self, after: u64) -> Result<Vec<Row>, QueryError>;
    /// The calls of tools that were answered, by the order of their answers. Blocks.
    fn find_invocations(&self, filter: &Filter) -> Result<Vec<Found>, QueryError>;
    /// S2's McpToolInvocation. Blocks.
    fn read_invocation(&self, found: &Found) -> Result<Option<Value>, QueryError>;
    /// Messages that were refused, called a tool or began a session, in the order they came. Blocks.
    fn find_envelopes(&self, filter: &Filter) -> Result<Vec<Found>, QueryError>;
    /// S2's McpRequestEnvelope. Blocks.
    fn read_envelope(&self, found: &Found) -> Result<Option<Value>, QueryError>;
    /// The latest sessions, of one state where one is named; the newest last. Blocks.
    fn query_sessions(&self, state: Option<SessionState>, limit: usize) -> Result<Vec<Session>, RecordError>;
    /// S1's MetricsSummary of a period. Blocks.
    fn summarize(&self, period: Period) -> Result<MetricsSummary, QueryError>;
    /// Makes a token. Blocks.
    fn create_token(
        &self, role: Role, name: &TokenName, run: Option<String>, by: Actor, ids: &IdSource
    ) -> Result<Made, TokenError>;
    /// Makes the token of a job's agent. Blocks.
    fn create_job_token(&self, job: &Job, by: &Actor, ids: &IdSource) -> Result<Made, TokenError>;
    /// Makes a token of a run. Blocks.
    fn create_run_token(
        &self, name: &TokenName, run: &str, lives: Duration, by: Actor, ids: &IdSource
    ) -> Result<Made, TokenError>;
    /// Tokens of jobs that nobody looks after any more. Blocks.
    fn stray_job_tokens(&self) -> Result<Vec<Credential>, TokenError>;
    /// All tokens, the newest last. Blocks.
    fn tokens(&self) -> Result<Vec<Credential>, TokenError>;
    /// Revokes a token, named by its id or, while it is in force, by its name. Blocks.
    fn revoke_token(&self, named: &str, by: Actor, ids: &IdSource) -> Result<Revoked, TokenError>;
}

handed_on! {
    port Record
    fn commit(&self, change: Change) -> Answer<Committed>;
    fn commit_alone(&self, change: Change) -> Answer<Committed>;
    fn command(&self, owner: &CredentialId, request_id: &RequestId) -> Answer<Option<StoredCommand>>;
    fn act(&self, owner: &CredentialId, request_id: &RequestId) -> Answer<Option<StoredAct>>;
    fn is_end_wanted(&self, owner: &CredentialId, request_id: &RequestId) -> Answer<bool>;
    fn session(&self, id: &SessionId) -> Answer<Option<KeptSession>>;
    fn sessions(&self, state: Option<SessionState>, limit: usize) -> Answer<Vec<Session>>;
    fn ended_sessions(&self, among: Vec<SessionId>) -> Answer<Vec<SessionId>>;
    fn session_counts(&self) -> Answer<Vec<(SessionState, usize)>>;
    fn idle_sessions(&self, since: Timestamp, limit: usize) -> Answer<Vec<Session>>;
}

handed_on! {
    port Approvals
    fn find(&self, id: &ApprovalId) -> Answer<Option<ApprovalRequest>>;
    fn beginning_with(&self, prefix: &str, limit: usize) -> Answer<Vec<ApprovalRequest>>;
    fn held(&self, owner: &CredentialId, binding: &str) -> Answer<Option<ApprovalRequest>>;
    fn bound(&self, owner: &CredentialId, binding: &str) -> Answer<Option<ApprovalRequest>>;
    fn of_command(&self, owner: &CredentialId, request_id: &RequestId) -> Answer<Option<ApprovalRequest>>;
    fn of_correlation(&self, id: &CorrelationId) -> Answer<Vec<ApprovalRequest>>;
    fn list(&self, filter: ApprovalFilter) -> Answer<Vec<ApprovalRequest>>;
    fn open_of(&self, owner: &CredentialId) -> Answer<usize>;
    fn told_of(&self, question: &ApprovalRequest) -> Answer<Vec<Told>>;
    fn due(&self, now: Timestamp, limit: usize) -> Answer<Vec<ApprovalRequest>>;
}

handed_on! {
    port Records
    fn events(&self, filter: Filter) -> Answer<Vec<Row>>;
    fn entities(&self, entity: Entity, filter: Filter) -> Answer<Vec<Placed>>;
    fn summary(&self, period: Period) -> Answer<MetricsSummary>;
    fn known_sessions(&self, state: Option<SessionState>, limit: usize) -> Answer<Vec<Session>>;
    fn known_tokens(&self) -> Answer<Vec<Credential>>;
    fn head(&self) -> Answer<u64>;
    fn grown(&self) -> watch::Receiver<u64>;
    fn prove(&self) -> Answer<Proved>;
    fn export(&self, to: Box<dyn Write + Send>) -> Answer<()>;
}

handed_on! {
    port Jobs
    fn holder(&self) -> String;
    fn mark(&self, job: &JobId) -> String;
    fn place(&self, job: &JobId) -> Answer<Place>;
    fn find(&self, id: &JobId) -> Answer<Option<Job>>;
    fn list(&self, filter: JobFilter) -> Answer<Vec<Job>>;
    fn open_of(&self, owner: &CredentialId) -> Answer<usize>;
    fn count(&self) -> Answer<Vec<(JobStatus, usize)>>;
    fn waiting(&self, now: Timestamp, limit: usize) -> Answer<Vec<Job>>;
    fn next_wake(&self, now: Timestamp) -> Answer<Option<Timestamp>>;
    fn abandoned(&self, silent_since: Timestamp) -> Answer<Vec<AbandonedJob>>;
    fn session(&self, id: &JobSessionId) -> Answer<Option<JobSession>>;
    fn session_of(&self, conversation: &ConversationId) -> Answer<Option<JobSession>>;
    fn events(&self, session: &JobSessionId, after: u64, limit: usize) -> Answer<Vec<StoredEvent>>;
    fn event_ids(&self, session: &JobSessionId) -> Answer<Vec<EventId>>;
    fn unfiled(&self, limit: usize) -> Answer<Vec<JobSession>>;
    fn notes(&self, job: &JobId) -> Answer<Vec<Note>>;
    fn processes(&self) -> Answer<Vec<AgentProcess>>;
    fn usage(&self, session: &JobSessionId) -> Answer<Usage>;
}

handed_on! {
    port Logins
    fn issue(&self, person: &Caller) -> Answer<String>;
    fn redeem(&self, code: &str) -> Answer<Option<Entered>>;
    fn enter(&self, credential: &Credential) -> Answer<Entered>;
    fn who(&self, secret: &str) -> Answer<Option<Caller>>;
    fn leave(&self, secret: &str) -> Answer<()>;
}

handed_on! {
    port Runs
    fn find_run(&self, id: &RunId) -> Answer<Option<Run>>;
    fn list_runs(&self, filter: RunFilter) -> Answer<Vec<Run>>;
    fn runs_due(&self, limit: usize) -> Answer<Vec<Run>>;
    fn jobs_left(&self, limit: usize) -> Answer<Vec<(JobId, RunId)>>;
    fn agent_session(&self, run: &RunId) -> Answer<Option<AgentSession>>;
    fn links_of(&self, end: LinkEnd) -> Answer<Vec<Link>>;
}

handed_on! {
    port Deliveries
    fn pending_deliveries(&self, now: Timestamp, limit: usize) -> Answer<Vec<Delivery>>;
}

handed_on! {
    port Messages
    fn untold(&self, now: Timestamp, limit: usize) -> Answer<Vec<Untold>>;
}

handed_on! {
    port Delegations
    fn find_delegation(&self, id: &DelegationId) -> Answer<Option<Delegation>>;
    fn delegations_of(&self, id: &CorrelationId) -> Answer<Vec<Delegation>>;
    fn untold(&self, owner: &CredentialId, binding: &str) -> Answer<Option<Delegation>>;
    fn overdue(&self, now: Timestamp, limit: usize) -> Answer<Vec<Delegation>>;
}

handed_on! {
    port Databases
    fn find_database(&self, name: &str) -> Answer<Option<Kept>>;
    fn unsettled_databases(&self) -> Answer<Vec<Kept>>;
}

handed_on! {
    port SecretSyncs
    fn sync_by_key(&self, project: &str, key: &str) -> Answer<Option<KeptSync>>;
    fn unfinished_sync_to(&self, target: &SyncTarget) -> Answer<Option<KeptSync>>;
    fn unfinished_syncs(&self) -> Answer<Vec<KeptSync>>;
}
