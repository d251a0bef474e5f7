//! Upkeep of SQLite's write-ahead log, so that a commit pays one flush of data and nothing else.
//!
//! Two things would make commits slower than the disk. A log that grows makes every flush write the
//! file's size too, which costs three times as much: so the log is given its full length once, filled
//! with zeros (SQLite reads a frame only if its checksum fits), and is kept when the last connection
//! closes. And SQLite would copy the log into the database in the middle of some unlucky commit: so that
//! is done here instead, after the waiters have their answers, best when nobody waits.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::Durability;
use super::site::Site;

/// Length of the prepared log: a little more than the copying below lets it hold.
const PREPARED_BYTES: u64 = 8 << 20;
const PAGE_BYTES: usize = 4096;
/// Pages that an ordinary commit touches: the row, its indexes, the head, the command.
const COMMIT_PAGES: usize = 12;
/// From this many pages on the log is copied when nobody waits.
const COPY_WHEN_IDLE_PAGES: usize = 500;
/// From this many pages on the log is copied even so.
const COPY_ALWAYS_PAGES: usize = 1_600;

/// Whether somebody waits for the writer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Empty,
    Waiting,
}

pub(super) struct Log {
    path: PathBuf,
    is_prepared: bool,
    /// Pages written since the last copying, roughly.
    pages: usize,
}

impl Log {
    pub(super) fn new(site: &Site) -> Self {
        let mut path = site.database.clone().into_os_string();
        path.push("-wal");
        // Without a flush per commit there is nothing to spare.
        let is_prepared = site.options.durability == Durability::Process;
        Self { path: path.into(), is_prepared, pages: 0 }
    }

    /// Tells SQLite to leave copying and keeping of the log to us.
    pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)
    }

    /// Counts a commit that wrote this much.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.pages += COMMIT_PAGES + bytes / PAGE_BYTES;
    }

    /// Does what is due. Trouble here is no trouble of any caller: the next commit would tell.
    pub(super) fn upkeep(&mut self, connection: &Connection, queue: Queue) {
        let enough = match queue {
            Queue::Empty => COPY_WHEN_IDLE_PAGES,
            Queue::Waiting => COPY_ALWAYS_PAGES,
        };
        if self.pages >= enough {
            self.copy(connection);
        }
        if !self.is_prepared && queue == Queue::Empty {
            self.is_prepared = true;
            if let Err(error) = prepare(connection, &self.path) {
                tracing::debug!(%error, "the log could not be given its length in advance");
            }
        }
    }

    /// Copies the log into the database, as far as readers let it.
    pub(super) fn copy(&mut self, connection: &Connection) {
        self.pages = 0;
        if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            tracing::debug!(%error, "the log could not be copied into the database");
        }
    }
}

/// Gives the log its full length. Only whoever holds the right to write may touch it: another process
/// could be appending to it.
fn prepare(connection: &Connection, path: &Path) -> Result<(), PrepareError> {
    if fs::metadata(path)?.len() >= PREPARED_BYTES {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let filled = fill(path);
    connection.execute_batch("ROLLBACK")?;
    Ok(filled?)
}

fn fill(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    let mut end = file.metadata()?.len();
    while end < PREPARED_BYTES {
        let count = usize::try_from(PREPARED_BYTES - end).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all_at(&zeros[..count], end)?;
        end += count as u64;
    }
    file.sync_all()
}

#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error("cannot write the log's file")]
    File(#[from] io::Error),
    #[error("cannot get the right to write")]
    Turn(#[from] rusqlite::Error),
}
