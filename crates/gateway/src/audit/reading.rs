//! Reading the record: what people and programs ask of it, and the port they ask through.

use serde_json::Value;

use super::event::EventType;
use super::row::Row;
use super::{Pending, RecordError};
use crate::clock::Timestamp;

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
    pub limit: usize,
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
            limit: LIMIT_DEFAULT,
            pick: Pick::Oldest,
        }
    }
}

/// Port: the record as it is read. What one damaged row cannot tell does not hide the others: it is
/// left out, and [`Records::prove`] names it.
pub trait Records: Send + Sync + 'static {
    /// Events, oldest first.
    fn events(&self, filter: Filter) -> Pending<Result<Vec<Row>, RecordError>>;

    /// S0's CommandAuditRecords, oldest first.
    fn commands(&self, filter: Filter) -> Pending<Result<Vec<Value>, RecordError>>;

    /// Walks the whole chain. Takes as long as the record is large.
    fn prove(&self) -> Pending<Result<Proved, RecordError>>;
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
    /// The first thing wrong, and where.
    Flawed { seq: u64, fault: String },
}
