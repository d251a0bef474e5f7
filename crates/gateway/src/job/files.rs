//! Port: the files of a session, for people and scripts (S1): `config.json`, `events.jsonl`,
//! `rollout-ref.txt`, `metrics.json`.
//!
//! The database is the truth. Whatever a crash left of a file, it is brought back to what is kept. Only a message
//! that is still being written stands in a file alone, for whoever watches, and for as long as it is written.

use std::path::PathBuf;

use serde_json::Value;

use super::event::StoredEvent;
use crate::audit::Pending;
use crate::ids::EventId;

/// Port: a folder of files per session.
pub trait Files: Send + Sync + 'static {
    /// Where a session's folder is.
    fn directory(&self, folder: &str) -> PathBuf;

    /// Makes the folder and writes `config.json`, which never changes afterwards.
    fn begin(&self, folder: &str, config: Value) -> Pending<Result<(), FilesError>>;

    /// Looks at `events.jsonl`: lines that are not the kept events in their order are cut off. Gives the
    /// number of events that it tells.
    fn open(&self, folder: &str, kept: Vec<EventId>) -> Pending<Result<u64, FilesError>>;

    /// Adds events. Those that the file tells already are skipped; a gap is refused.
    fn append(&self, folder: &str, events: Vec<StoredEvent>) -> Pending<Result<u64, FilesError>>;

    /// Replaces `rollout-ref.txt`.
    fn rollout(&self, folder: &str, path: &str) -> Pending<Result<(), FilesError>>;

    /// Replaces `metrics.json`.
    fn metrics(&self, folder: &str, metrics: Value) -> Pending<Result<(), FilesError>>;

    /// Replaces `writing.txt`, the message that the agent is at; it goes with none. Nothing is lost with it, so
    /// nobody waits until it is safe.
    fn write_unfinished(&self, folder: &str, text: Option<String>) -> Pending<Result<(), FilesError>>;

    /// The message that the agent is at, as far as it is told.
    fn unfinished(&self, folder: &str) -> Pending<Option<String>>;
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilesError {
    #[error("`{path}` cannot be written: {why}")]
    Write { path: PathBuf, why: String },
    #[error("`{path}` cannot be read: {why}")]
    Read { path: PathBuf, why: String },
    /// Events were skipped; whoever writes looks at the file again first.
    #[error("`{path}` tells {told} events, the next is to be number {next}")]
    Gap { path: PathBuf, told: u64, next: u64 },
}
