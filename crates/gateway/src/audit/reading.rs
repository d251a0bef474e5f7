//! Reading the record: what people and programs ask of it, and the port they ask through.

use std::io::Write;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::event::EventType;
use super::row::Row;
use super::summary::{MetricsSummary, Period};
use super::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::session::credential::Credential;
use crate::session::lifetime::{Session, SessionState};

/// Rows that a question returns when it names no limit.
pub const LIMIT_DEFAULT: usize = 1_000;

/// What is asked for; every part that is set must hold.
#[derive(Clone, Debug)]
pub struct Filter {
    pub event_type: Option<EventType>,
    /// A command's status, or an approval's state.
    pub status: Option<String>,
    pub request_id: Option<String>,
    pub correlation_id: Option<String>,
    /// From this moment on.
    pub from: Option<Timestamp>,
    /// Before this moment.
    pub to: Option<Timestamp>,
    /// Rows behind this place only.
    pub after: Option<u64>,
    /// Rows ahead of this place only.
    pub before: Option<u64>,
    pub limit: usize,
    /// What is found is cut off behind so many bytes of content; the first is there whatever its size.
    pub bytes_max: Option<usize>,
    pub pick: Pick,
}

/// Which rows are left out when there are more than the limit. The answer is oldest first either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    Oldest,
    Newest,
}

impl Filter {
    /// Everything, up to the usual limit.
    pub fn everything() -> Self {
        Self {
            event_type: None,
            status: None,
            request_id: None,
            correlation_id: None,
            from: None,
            to: None,
            after: None,
            before: None,
            limit: LIMIT_DEFAULT,
            bytes_max: None,
            pick: Pick::Oldest,
        }
    }
}

/// What the record tells of, beside its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entity {
    /// S0's CommandAuditRecord.
    Command,
    /// S2's McpToolInvocation.
    Invocation,
    /// S2's McpRequestEnvelope.
    Envelope,
}

/// An entity, with the place of the event that it ends at.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    pub place: u64,
    pub content: Value,
}

/// Port: the record as it is read. What one damaged row cannot tell does not hide the others: it is
/// left out, and [`Records::prove`] names it.
pub trait Records: Send + Sync + 'static {
    /// Events, oldest first.
    fn events(&self, filter: Filter) -> Pending<Result<Vec<Row>, RecordError>>;

    /// Entities, oldest first.
    fn entities(&self, entity: Entity, filter: Filter) -> Pending<Result<Vec<Placed>, RecordError>>;

    /// S1's MetricsSummary of a period.
    fn summary(&self, period: Period) -> Pending<Result<MetricsSummary, RecordError>>;

    /// The latest sessions, of one state where one is named; the newest last.
    fn known_sessions(&self, state: Option<SessionState>, limit: usize) -> Pending<Result<Vec<Session>, RecordError>>;

    /// All tokens, less their secrets; the newest last.
    fn known_tokens(&self) -> Pending<Result<Vec<Credential>, RecordError>>;

    /// Place of the last event; 0 where there is none.
    fn head(&self) -> Pending<Result<u64, RecordError>>;

    /// Changes with everything that this very process writes; the number itself means nothing. What others
    /// write is found by looking at the [`Records::head`].
    fn grown(&self) -> watch::Receiver<u64>;

    /// Walks the whole chain. Takes as long as the record is large.
    fn prove(&self) -> Pending<Result<Proved, RecordError>>;

    /// Writes the record as JSON Lines that verify alone. Ends when `to` takes no more.
    fn export(&self, to: Box<dyn Write + Send>) -> Pending<Result<(), RecordError>>;
}

/// What a walk along the chain found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proved {
    Sound {
        first_seq: u64,
        last_seq: u64,
        rows: u64,
        checkpoints: u64,
        /// In hexadecimal.
        last_hash: String,
        public_key: String,
    },
    /// The first thing wrong, and at which row, if it is one.
    Flawed { seq: Option<u64>, fault: String },
}

impl Proved {
    /// As `audit verify --json` tells it.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Sound {
                first_seq,
                last_seq,
                rows,
                checkpoints,
                last_hash,
                public_key,
            } => json!({
                "ok": true,
                "rows": rows,
                "first_seq": first_seq,
                "last_seq": last_seq,
                "last_hash": last_hash,
                "checkpoints": checkpoints,
                "public_key": public_key,
            }),
            Self::Flawed { seq, fault } => json!({"ok": false, "row": seq, "problem": fault}),
        }
    }
}
