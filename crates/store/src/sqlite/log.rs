//! Upkeep of SQLite's write-ahead log, so that a commit pays one flush of data and nothing else.
//!
//! Two things would make commits slower than the disk. A log that grows makes every flush write the
//! file's size too, which costs three times as much: so the log is given its full length once, filled
//! with zeros (SQLite reads a frame only if its checksum fits), and keeps it over a clean stop, at which
//! it holds nothing but zeros, so that the database file alone is the whole record. And SQLite would copy
//! the log into the database in the middle of some unlucky commit: so that is done here instead, after the
//! waiters have their answers, best when nobody waits.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;

use super::Durability;
use super::site::Site;

/// Length of the prepared log: a little more than the copying below lets it hold.
const PREPARED_BYTES: u64 = 8 << 20;
/// Zeros written at once. A kernel keeps what is written at once together in its cache, and looks through all of it
/// for every frame that is written there later: a megabyte at once makes each of those three times as dear.
const FILLED_AT_ONCE_BYTES: usize = 32 << 10;
/// From this many pages on the log is copied when nobody waits.
const COPY_WHEN_IDLE_PAGES: usize = 800;
/// From this many pages on the log is copied even so.
const COPY_ALWAYS_PAGES: usize = 1_900;

/// How long beginning the log anew may wait for others.
const RESTART_PATIENCE: Duration = Duration::from_millis(20);

/// How often emptying the log is tried while others read or write, and the pause between.
const EMPTY_TRIES: usize = 20;
const EMPTY_PAUSE: Duration = Duration::from_millis(50);

/// Whether somebody waits for the writer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Empty,
    Waiting,
}

/// How long the log is, as SQLite says after each commit of this process.
#[derive(Default)]
pub(super) struct Growth {
    pages: AtomicUsize,
    /// How long it was when it was last copied. One that could not be begun anew then, because of a long reader, is
    /// tried again when it has grown by as much once more.
    looked_after: AtomicUsize,
}

impl Growth {
    fn measured(&self, pages: usize) {
        if pages < self.pages.swap(pages, Ordering::Relaxed) {
            self.looked_after.store(0, Ordering::Relaxed);
        }
    }

    /// How long it was when this process last wrote to it.
    pub(super) fn pages_written(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) as u64
    }

    fn pages(&self) -> usize {
        let pages = self.pages.load(Ordering::Relaxed);
        pages.saturating_sub(self.looked_after.load(Ordering::Relaxed))
    }

    fn is_looked_after(&self) {
        self.looked_after
            .store(self.pages.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether the log should be looked after once nobody waits.
    pub(super) fn is_due(&self) -> bool {
        self.pages() >= COPY_WHEN_IDLE_PAGES
    }
}

pub(super) struct Log {
    path: PathBuf,
    /// Whether commits are flushed at all; else there is nothing to spare.
    flushes: bool,
    is_prepared: bool,
    growth: Arc<Growth>,
    /// How long the connection otherwise waits for others.
    patience: Duration,
}

impl Log {
    pub(super) fn new(site: &Site) -> Self {
        let mut path = site.database.clone().into_os_string();
        path.push("-wal");
        let flushes = site.options.durability == Durability::Power;
        Self {
            path: path.into(),
            flushes,
            is_prepared: !flushes,
            growth: site.growth.clone(),
            patience: site.options.busy_timeout,
        }
    }

    /// Has a connection that writes tell how long the log has become.
    pub(super) fn measure(connection: &mut Connection, growth: Arc<Growth>) -> rusqlite::Result<()> {
        connection.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            growth.measured(usize::try_from(pages).unwrap_or(0));
            Ok(())
        }))
    }

    /// Tells SQLite to leave copying and keeping of the log to us.
    pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)
    }

    /// Does what is due. Trouble here is no trouble of any caller: the next commit would tell.
    pub(super) fn upkeep(&mut self, connection: &Connection, queue: Queue) {
        let enough = match queue {
            Queue::Empty => COPY_WHEN_IDLE_PAGES,
            Queue::Waiting => COPY_ALWAYS_PAGES,
        };
        if self.growth.pages() >= enough {
            self.copy(connection);
        }
        if !self.is_prepared && queue == Queue::Empty {
            self.is_prepared = true;
            self.prepare(connection);
        }
    }

    /// At a clean stop everything moves into the database, unless another process still uses the log.
    pub(super) fn empty(&mut self, connection: &Connection) {
        let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        if self.flushes && matches!(busy, Ok(0)) {
            self.prepare(connection);
        }
    }

    /// Empties the log while others go on: pages stand in it as they were before something was overwritten. Nobody is
    /// kept waiting for a long reader; where one does not end, the log is emptied at another time, by this or by the stop
    /// of the last process.
    pub(super) fn forget(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.copy(connection);
        connection.busy_timeout(RESTART_PATIENCE)?;
        for _ in 0..EMPTY_TRIES {
            let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
            if matches!(busy, Ok(0)) {
                break;
            }
            thread::sleep(EMPTY_PAUSE);
        }
        connection.busy_timeout(self.patience)?;
        if self.flushes {
            self.prepare(connection);
        }
        Ok(())
    }

    fn prepare(&self, connection: &Connection) {
        if let Err(error) = prepare(connection, &self.path) {
            tracing::debug!(%error, "the log could not be given its length in advance");
        }
    }

    /// Copies the log into the database and lets the next commit begin it anew. The bulk is copied beside
    /// other writers; only what they added meanwhile is copied while they wait, else a busy writer would
    /// never let the log begin anew and it would grow for ever.
    fn copy(&mut self, connection: &Connection) {
        self.growth.is_looked_after();
        let copied = connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            // Long enough for another's commit; a long reader is not waited for, the log then begins anew
            // another time.
            .and_then(|()| connection.busy_timeout(RESTART_PATIENCE))
            .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())));
        let restored = connection.busy_timeout(self.patience);
        if let Err(error) = copied.and(restored) {
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
    let length = file.metadata()?.len();
    let filled = fill_from(&file, length);
    if filled.is_err() {
        // The last room on a disk is for rows, not for zeros.
        file.set_len(length)?;
    }
    filled
}

fn fill_from(file: &File, mut end: u64) -> io::Result<()> {
    let zeros = [0; FILLED_AT_ONCE_BYTES];
    while end < PREPARED_BYTES {
        let count = usize::try_from(PREPARED_BYTES - end)
            .unwrap_or(usize::MAX)
            .min(zeros.len());
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
