//! Proving the live record, while others write to it.
//!
//! The record is proved as far as its head stood at the start, in ranges, each a read transaction of
//! its own: a long one would keep the log from shrinking. Two threads each prove half of a long one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use countersign_gateway::audit::chain::{Columns, Hash};
use countersign_gateway::audit::kept::Kept;
use countersign_gateway::audit::opened::Opened;
use countersign_gateway::audit::row::Link;
use countersign_gateway::clock::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};

use super::leading::{self, Covered};
use super::readers::{self, Readers};
use super::site::Site;
use super::snapshot::{self, Snapshot};
use super::{CHAIN, SqliteStore, acts, proving, query};
use crate::Trouble;
use crate::kept::{self, Told};
use crate::prove::{self, Fault, Flaw, Leftovers, Report, Voucher, Walk};
use crate::proved::OldRows;

/// Rows read in one transaction.
const RANGE_ROWS: u64 = 4_096;
/// Commands read in one transaction; their outputs may be long.
const RANGE_COMMANDS: i64 = 256;
/// Below this one thread is faster than two.
const SPLIT_ROWS_MIN: u64 = 8_192;

/// Which rows to prove; the whole record when both ends are open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub first: Option<u64>,
    pub last: Option<u64>,
}

impl Range {
    pub const ALL: Self = Self {
        first: None,
        last: None,
    };
}

/// How far proving has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub rows_done: u64,
    pub rows_all: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Flawed(#[from] Flaw),
    /// Every row is sound, and something that leads to rows or stands beside them is not.
    #[error("{what}")]
    Astray { what: String },
    #[error("the record cannot be read: {source}")]
    Read { source: Trouble },
}

impl VerifyError {
    pub(crate) fn astray(what: String) -> Self {
        Self::Astray { what }
    }
}

impl From<crate::postgres::Trouble> for VerifyError {
    fn from(source: crate::postgres::Trouble) -> Self {
        Self::Read { source: source.into() }
    }
}

impl From<rusqlite::Error> for VerifyError {
    fn from(source: rusqlite::Error) -> Self {
        Self::Read { source: source.into() }
    }
}

impl SqliteStore {
    /// Proves rows, head and checkpoints, and then what leads to rows and what is kept beside them; the first flaw is the
    /// error.
    pub fn verify(&self, range: Range, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, VerifyError> {
        verify(&self.readers, &self.site, range, progress)
    }
}

pub(super) fn verify(
    readers: &Readers,
    site: &Site,
    range: Range,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, VerifyError> {
    loop {
        let snapshot = Snapshot::take(readers)?;
        let first = snapshot.first;
        let proof = Proof {
            readers,
            site,
            snapshot,
            progress,
            rows_done: AtomicU64::new(0),
            told: Mutex::default(),
            covered: Mutex::default(),
        };
        let outcome = proof.run(range);
        // Rows that a prune took meanwhile look like missing ones.
        if outcome.is_err() && readers.read(|connection| snapshot::pruned(connection, &site.key))? + 1 != first {
            continue;
        }
        return outcome;
    }
}

/// Proves that the rows up to this place are what was written, and old: whoever sets them back would have them pruned. They must
/// lead to what only the record's key can make. Gives the hash of the last.
pub(super) fn prove_old(readers: &Readers, site: &Site, up_to: u64, before: Timestamp) -> Result<Hash, VerifyError> {
    let snapshot = Snapshot::take(readers)?;
    prove::prove_signatures(&snapshot.checkpoints, site.key.public())?;
    let anchor = readers.read(|connection| proving::anchor(connection, site, up_to))?;
    let anchor = anchor.ok_or(Fault::HeadForged.at(up_to))?;
    let start = prove::start(snapshot.first, &snapshot.checkpoints)?;
    let mut walk = OldRows::new(snapshot.first, start, &snapshot.checkpoints, (up_to, before), anchor);
    while walk.next() <= anchor.seq {
        let from = walk.next();
        let places = [from, anchor.seq.min(from + RANGE_ROWS - 1)].map(u64::cast_signed);
        let place = "seq BETWEEN ?1 AND ?2 ORDER BY seq";
        readers.read(|connection| step_rows(connection, place, places, |link| walk.step(link)))??;
        if walk.next() == from {
            break;
        }
    }
    Ok(walk.finish()?)
}

struct Proof<'a> {
    readers: &'a Readers,
    site: &'a Site,
    snapshot: Snapshot,
    progress: &'a (dyn Fn(Progress) + Sync),
    rows_done: AtomicU64,
    /// What the rows walked so far tell of commands.
    told: Mutex<Told>,
    /// Which moments they cover.
    covered: Mutex<Covered>,
}

impl Proof<'_> {
    fn run(&self, range: Range) -> Result<Report, VerifyError> {
        let record = &self.snapshot;
        if let Some(seq) = record.unreadable {
            return Err(Fault::BadSignature.at(seq).into());
        }
        prove::prove_signatures(&record.checkpoints, self.site.key.public())?;
        let (head, head_hash) = record.head.ok_or(Fault::HeadChanged.at(record.last_row))?;
        let first = range.first.unwrap_or(record.first).max(record.first);
        let last = range.last.unwrap_or(head).min(head);
        let prev = if first == record.first {
            prove::start(first, &record.checkpoints)?
        } else {
            self.hash_before(first)?
        };
        let rows_all = (last + 1).saturating_sub(first);
        let reached = if rows_all >= SPLIT_ROWS_MIN {
            self.walk_halves(first, last, prev)?
        } else {
            self.walk(first, last, prev)?
        };
        let mut end = Voucher::Nothing;
        if first == record.first && last == head {
            self.prove_end(head, head_hash, reached)?;
            end = self.site.sealer.prove(CHAIN, (head, head_hash), record.seal)?;
            prove::prove_spacing(&record.checkpoints, first, head)?;
            self.prove_leftovers(first)?;
            self.prove_leading(first, last)?;
            self.prove_kept()?;
        }
        Ok(Report {
            chain: CHAIN.to_owned(),
            first_seq: first,
            last_seq: last,
            last_hash: reached,
            rows: rows_all,
            checkpoints: record.checkpoints.len() as u64,
            unsigned: prove::unsigned(&record.checkpoints, first, last),
            end,
            public_key: self.site.key.public().to_owned(),
            others: Vec::new(),
        })
    }

    /// The head row must name the last row, and no checkpoint may lie beyond it.
    fn prove_end(&self, head: u64, head_hash: Hash, reached: Hash) -> Result<(), Flaw> {
        let beyond = self.snapshot.checkpoints.last().map_or(0, |it| it.seq);
        if beyond > head {
            return Err(Fault::Truncated { should_reach: beyond }.at(head + 1));
        }
        if self.snapshot.last_row != head || head_hash != reached {
            return Err(Fault::HeadChanged.at(head));
        }
        Ok(())
    }

    /// What stands before the first row must be what a prune had no time to delete.
    fn prove_leftovers(&self, first: u64) -> Result<(), VerifyError> {
        let mut leftovers = Leftovers::new(first, &self.snapshot.checkpoints)?;
        loop {
            let before = leftovers.below();
            self.readers
                .read(|connection| step_back(connection, &mut leftovers))??;
            if leftovers.below() == before {
                return Ok(());
            }
        }
    }

    /// Whoever asks for rows must be led to all of them.
    fn prove_leading(&self, first: u64, last: u64) -> Result<(), VerifyError> {
        let covered = std::mem::take(&mut *self.covered.lock().unwrap_or_else(PoisonError::into_inner));
        self.readers
            .read(|connection| covered.prove(connection, first, last))??;
        self.readers.read(|connection| Ok(leading::prove_shape(connection)))??;
        self.readers.read(|connection| Ok(leading::prove_indexes(connection)))?
    }

    /// What is kept of commands must be what their closing events tell.
    fn prove_kept(&self) -> Result<(), VerifyError> {
        let mut told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        told.settle();
        let mut behind = i64::MIN;
        // There is one chain here, which goes without saying.
        let unnamed = |flaw| Flaw { chain: None, ..flaw };
        while let Some(last) = self
            .readers
            .read(|connection| see_commands(connection, &mut told, behind))?
            .map_err(unnamed)?
        {
            behind = last;
        }
        if let Some((_, seq)) = told.first_missing() {
            let payload = self.readers.read(|connection| {
                let sql = "SELECT payload FROM flow_events WHERE seq = ?1";
                connection.query_row(sql, [seq.cast_signed()], |row| row.get::<_, String>(0))
            })?;
            return Err(told.missing(&kept::request_of(&payload)).at(seq).into());
        }
        if let Some(request_id) = told.stranger() {
            return Err(VerifyError::astray(kept::added(request_id)));
        }
        if let Some(twice) = told.ended_twice() {
            return Err(unnamed(twice.clone()).into());
        }
        self.readers.read(|connection| prove_open(connection, &told))??;
        let acts = self
            .readers
            .read(|connection| acts::prove_open(connection, self.site))?;
        acts.map_err(VerifyError::astray)
    }

    fn walk_halves(&self, first: u64, last: u64, prev: Hash) -> Result<Hash, VerifyError> {
        let middle = first + (last - first) / 2;
        let before = match self.hash_before(middle) {
            Ok(before) => before,
            // The first half will tell what is wrong there.
            Err(VerifyError::Flawed(_)) => return self.walk(first, last, prev),
            Err(error) => return Err(error),
        };
        thread::scope(|scope| {
            let second = scope.spawn(|| self.walk(middle, last, before));
            let reached = self.walk(first, middle - 1, prev);
            let second = second.join();
            // Read twice, so it may have been changed in between.
            if reached? != before {
                return Err(Fault::Unlinked.at(middle).into());
            }
            second.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Proves the rows from `first` to `last`; gives the hash of the last.
    fn walk(&self, first: u64, last: u64, prev: Hash) -> Result<Hash, VerifyError> {
        let mut walk = Walk::new(first..=last, prev, &self.snapshot.checkpoints);
        let mut covered = Covered::default();
        let rows_all = self.snapshot.last_row + 1 - self.snapshot.first;
        while walk.next() <= last {
            let from = walk.next();
            let to = last.min(from + RANGE_ROWS - 1);
            self.readers
                .read(|connection| step_range(connection, &mut walk, &self.told, &mut covered, from, to))??;
            if walk.next() == from {
                break;
            }
            let rows = walk.next() - from;
            let rows_done = self.rows_done.fetch_add(rows, Ordering::Relaxed) + rows;
            (self.progress)(Progress { rows_done, rows_all });
        }
        if walk.next() > last {
            let mut all = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
            all.merge(covered);
            return Ok(walk.prev());
        }
        let fault = if self.snapshot.last_row >= walk.next() {
            Fault::Missing
        } else {
            Fault::Truncated { should_reach: last }
        };
        Err(fault.at(walk.next()).into())
    }

    fn hash_before(&self, seq: u64) -> Result<Hash, VerifyError> {
        let before = self.readers.read(|connection| {
            let mut statement = connection.prepare("SELECT hash FROM flow_events WHERE seq = ?1")?;
            let mut rows = statement.query([(seq - 1).cast_signed()])?;
            rows.next()?.map(|row| row.get(0)).transpose()
        })?;
        Ok(before.map(Hash::from_bytes).ok_or(Fault::Missing.at(seq - 1))?)
    }
}

/// Stops without a word when the rows end before `to`.
fn step_range(
    connection: &Connection,
    walk: &mut Walk,
    told: &Mutex<Told>,
    covered: &mut Covered,
    from: u64,
    to: u64,
) -> rusqlite::Result<Result<(), Flaw>> {
    let place = "seq BETWEEN ?1 AND ?2 ORDER BY seq";
    let values = [from.cast_signed(), to.cast_signed()];
    step_rows(connection, place, values, |link| {
        walk.step(link)?;
        covered.take_in(link.seq, link.columns.timestamp);
        if Told::listens_to(link.columns.event_type) {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.hear(link.seq, &link.columns);
        }
        Ok(())
    })
}

fn step_back(connection: &Connection, leftovers: &mut Leftovers) -> rusqlite::Result<Result<(), Flaw>> {
    let place = "seq < ?1 ORDER BY seq DESC LIMIT ?2";
    let values = [leftovers.below(), RANGE_ROWS.cast_signed()];
    step_rows(connection, place, values, |link| leftovers.step(link))
}

pub(super) fn step_rows(
    connection: &Connection,
    place: &str,
    values: [i64; 2],
    mut step: impl FnMut(&Link<'_>) -> Result<(), Flaw>,
) -> rusqlite::Result<Result<(), Flaw>> {
    let sql = format!("SELECT {} FROM flow_events WHERE {place}", query::COLUMNS);
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(values)?;
    while let Some(row) = rows.next()? {
        let seq = row.get::<_, i64>(1)?.cast_unsigned();
        // Bytes that are no text are a change like any other.
        let stepped = borrow(row, seq)
            .ok_or(Fault::Changed.at(seq))
            .and_then(|link| step(&link));
        if stepped.is_err() {
            return Ok(stepped);
        }
    }
    Ok(Ok(()))
}

/// Gives the last command seen.
fn see_commands(connection: &Connection, told: &mut Told, behind: i64) -> rusqlite::Result<Result<Option<i64>, Flaw>> {
    let sql = "SELECT rowid, owner, request_id, correlation_id, result, stdout, stderr, closed_at_ms, digest
         FROM commands WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([behind, RANGE_COMMANDS])?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        last = Some(row.get(0)?);
        // The table lets nothing but text and bytes in; bytes that are no text are told by whoever reads them.
        let text = |column: usize| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
        let bytes = |column: usize| row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from);
        let kept = Kept {
            owner: text(1)?,
            request_id: text(2)?,
            correlation_id: text(3)?,
            result: text(4)?,
            stdout: bytes(5)?,
            stderr: bytes(6)?,
            digest: text(8)?,
        };
        if !told.see(&kept) {
            let found = readers::closings(connection, kept.correlation_id)?;
            let judged = told.judge(&kept, row.get(7)?, &found);
            if let Err(flaw) = judged {
                return Ok(Err(flaw));
            }
        }
    }
    Ok(Ok(last))
}

/// What is open must be what was opened, and what was opened must be open or closed.
fn prove_open(connection: &Connection, told: &Told) -> rusqlite::Result<Result<(), VerifyError>> {
    let sql = "SELECT owner, request_id, digest, correlation_id, opened_at_ms, abandoned FROM open_commands";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text = |column: usize| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
        let open = Opened {
            owner: text(0)?,
            request_id: text(1)?,
            digest: text(2)?,
            correlation_id: text(3)?,
            opened_at: Timestamp::from_millis(row.get(4)?),
            abandoned: text(5)?,
        };
        let events = readers::openings(connection, open.correlation_id)?;
        if let Err(what) = kept::prove_open(&open, events.iter().map(String::as_str)) {
            return Ok(Err(VerifyError::astray(what)));
        }
    }
    for (_, seq) in told.unclosed() {
        // One that a prune took meanwhile has ended.
        let Some((correlation_id, request_id)) = call_of(connection, seq)? else {
            continue;
        };
        let is_open = "SELECT 1 FROM open_commands WHERE request_id = ?1 AND correlation_id = ?2";
        let is_open = connection
            .prepare_cached(is_open)?
            .exists([&request_id, &correlation_id])?;
        let mut closed = readers::closings(connection, &correlation_id)?.into_iter();
        if !is_open && !closed.any(|it| kept::request_of(&it.payload) == request_id) {
            return Ok(Err(Fault::OpeningGone.at(seq).into()));
        }
    }
    for (_, seq) in told.unopened() {
        let Some((correlation_id, request_id)) = call_of(connection, seq)? else {
            continue;
        };
        let mut closed = readers::closings(connection, &correlation_id)?.into_iter();
        if closed.any(|it| kept::request_of(&it.payload) == request_id && kept::never_began(&it.payload)) {
            continue;
        }
        let openings = readers::openings(connection, &correlation_id)?;
        if !openings.iter().any(|it| kept::request_of(it) == request_id) {
            return Ok(Err(Fault::EndAlone.at(seq).into()));
        }
    }
    Ok(Ok(()))
}

/// Correlation and request of the call that a row tells of.
fn call_of(connection: &Connection, seq: u64) -> rusqlite::Result<Option<(String, String)>> {
    let sql = "SELECT correlation_id, payload FROM flow_events WHERE seq = ?1";
    let found = connection.query_row(sql, [seq.cast_signed()], |row| {
        Ok((row.get(0)?, kept::request_of(&row.get::<_, String>(1)?)))
    });
    found.optional()
}

fn borrow<'r>(row: &'r rusqlite::Row<'_>, seq: u64) -> Option<Link<'r>> {
    let text = |column: usize| row.get_ref(column).ok()?.as_str().ok();
    let hash = |column: usize| {
        let bytes = row.get_ref(column).ok()?.as_blob().ok()?;
        bytes.try_into().ok().map(Hash::from_bytes)
    };
    Some(Link {
        seq,
        columns: Columns {
            chain: text(0)?,
            event_id: text(2)?,
            timestamp: text(3)?,
            correlation_id: text(4)?,
            actor_type: text(5)?,
            actor_id: text(6)?,
            event_type: text(7)?,
            approval_state: row.get_ref(8).ok()?.as_str_or_null().ok()?,
            payload: text(9)?,
        },
        prev_hash: hash(10)?,
        hash: hash(11)?,
    })
}
