//! The database looked after by whoever runs the gateway: how it is, brought up to date, moved.
//!
//! None of this enters a node or opens a store: a database of another version can be asked how it is.

use std::path::Path;

use crate::postgres::copy;
use crate::{Durability, OpenError, Options, Trouble, postgres, sqlite};
use countersign_gateway::clock::Clock;

pub use crate::sqlite::backup::BackupError;
pub use copy::{Copied, CopyError, CopyProgress, CopyStep};

/// How a database is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The number of the last step applied, and of the last that this program knows.
    pub version: usize,
    pub known: usize,
    pub bytes: u64,
    /// Every table with its rows, by name.
    pub tables: Vec<(String, u64)>,
    pub chains: Vec<ChainEnd>,
    pub nodes: Vec<NodeSeen>,
    /// Where the record was moved to, for a file that is no longer gone on with.
    pub moved: Option<String>,
}

impl Condition {
    /// Steps that are still to be applied.
    pub fn pending(&self) -> impl Iterator<Item = usize> {
        self.version + 1..=self.known
    }
}

/// Where a chain ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainEnd {
    pub chain: String,
    /// The first row that is kept, and the last.
    pub first_seq: u64,
    pub last_seq: u64,
    pub hash: String,
    /// Place of the last checkpoint.
    pub checkpointed: u64,
    /// The key of the node whose chain it is, where the database says so.
    pub public_key: Option<String>,
}

/// A node, by the signs of life of its processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSeen {
    pub node: String,
    pub processes: u64,
    /// By the database's clock; none for a node that left no sign.
    pub last_seen: Option<String>,
    pub silent_ms: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the database cannot be read")]
    Read(#[from] Trouble),
}

/// From which version a database was brought to which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    pub from: usize,
    pub to: usize,
}

/// How the database of a state directory is, or the one at an address. Changes nothing. Blocks.
pub fn condition(directory: &Path, database: Option<&str>) -> Result<Condition, ConditionError> {
    match database {
        Some(url) => postgres::condition::of(url, &options()),
        None => sqlite::condition::of(directory),
    }
}

/// Whether the database at an address can be used by this program. Changes nothing, and counts nothing. Blocks.
pub fn reach(database: &str) -> Result<(), OpenError> {
    Ok(postgres::condition::reach(database, &options())?)
}

/// Brings it to the newest version. Blocks, for as long as it takes.
pub fn migrate(directory: &Path, database: Option<&str>) -> Result<Migrated, OpenError> {
    match database {
        Some(url) => Ok(postgres::condition::migrate(url, &options())?),
        None => Ok(sqlite::condition::migrate(directory, options())?),
    }
}

/// Writes a copy of the file, as it is at one moment, to a file that is not there yet; gives its size. Others may go on
/// writing. Blocks, for as long as it takes.
pub fn backup(directory: &Path, to: &Path) -> Result<u64, BackupError> {
    sqlite::backup::write(directory, to)
}

/// Moves the record of a state directory into an empty database. Blocks, for as long as it takes.
pub fn copy(directory: &Path, to: &str, progress: &dyn Fn(CopyProgress)) -> Result<Copied, CopyError> {
    copy::copy(directory, to, &options(), progress)
}

fn options() -> Options {
    Options::new(Durability::Power, Clock::system())
}
