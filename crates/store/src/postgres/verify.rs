//! Proving the live record, while others write to it.
//!
//! Each chain is proved as far as its head stood at the start, in ranges. This node's own chain is judged by the key in
//! the state directory, the others by the keys under which they stand in the database; then every chain is held against
//! what the others' signed checkpoints say of it, its key included. Whoever rewrites a chain of another node, or
//! replaces its key, contradicts a signature that is not in the database's hands.

use std::collections::HashMap;

use countersign_gateway::audit::chain::Hash;
use countersign_gateway::audit::kept::Kept;
use countersign_gateway::audit::opened::Opened;
use countersign_gateway::audit::row::Row;
use countersign_gateway::clock::Timestamp;

use super::link::Link;
use super::query::{COLUMNS, read_row};
use super::readers::{self, Readers};
use super::snapshot::Snapshot;
use super::trouble::Trouble;
use super::{PgStore, acts, proving};
use crate::kept::{self, Told};
use crate::prove::{self, Fault, Flaw, Leftovers, Report, Voucher, Walk};
use crate::proved::OldRows;
use crate::sqlite::verify::{Progress, Range, VerifyError};

/// Rows read at once.
const RANGE_ROWS: u64 = 4_096;
/// Commands read at once; their outputs may be long.
const RANGE_COMMANDS: i64 = 32;

impl PgStore {
    /// Proves rows, heads and checkpoints of all chains; the first flaw is the error. A range is one of this node's own
    /// chain, and then only that is proved.
    pub fn verify(&self, range: Range, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report, VerifyError> {
        verify(&self.readers, range, progress)
    }
}

pub(super) fn verify(
    readers: &Readers,
    range: Range,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, VerifyError> {
    loop {
        let pruned = readers.read(last_prune)?;
        let chains = readers.read_at_once(Snapshot::all)?;
        let firsts: Vec<u64> = chains.iter().map(|chain| chain.first).collect();
        let rows_all = chains.iter().map(|it| it.last_row + 1 - it.first).sum();
        let proof = Proof {
            readers,
            chains,
            progress,
            rows_done: 0,
            rows_all,
            told: Told::default(),
        };
        let outcome = proof.run(range);
        // Rows that a prune took meanwhile look like missing ones.
        if outcome.is_err() {
            let now = readers.read_at_once(Snapshot::all)?;
            if now.iter().map(|chain| chain.first).ne(firsts) || readers.read(last_prune)? != pruned {
                continue;
            }
        }
        return outcome;
    }
}

/// Proves that the rows of a chain of this node's key up to this place are what was written, and old: whoever sets them back
/// would have them pruned. They must lead to what only that key can make. Gives the hash of the last.
pub(super) fn prove_old(readers: &Readers, chain: &str, up_to: u64, before: Timestamp) -> Result<Hash, VerifyError> {
    let site = &readers.site;
    let chains = readers.read_at_once(Snapshot::all)?;
    let found = chains.iter().find(|it| it.chain == chain);
    let snapshot = found.ok_or(Fault::HeadChanged.at(up_to))?;
    prove::prove_signatures(&snapshot.checkpoints, site.key.public())?;
    let anchor = readers.read(|link| proving::anchor(link, site, chain, up_to))?;
    let anchor = anchor.ok_or(Fault::HeadForged.at(up_to))?;
    let start = prove::start(snapshot.first, &snapshot.checkpoints)?;
    let mut walk = OldRows::new(snapshot.first, start, &snapshot.checkpoints, (up_to, before), anchor);
    while walk.next() <= anchor.seq {
        let from = walk.next();
        let to = anchor.seq.min(from + RANGE_ROWS - 1);
        for row in rows(readers, chain, from, to)? {
            walk.step(&row.as_link())?;
        }
        if walk.next() == from {
            break;
        }
    }
    Ok(walk.finish()?)
}

fn rows(readers: &Readers, chain: &str, from: u64, to: u64) -> Result<Vec<Row>, Trouble> {
    let sql = format!("SELECT {COLUMNS} FROM flow_events WHERE chain = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq");
    readers.read(|link| link.all(&sql, &[&chain, &from.cast_signed(), &to.cast_signed()], read_row))
}

struct Proof<'a> {
    readers: &'a Readers,
    chains: Vec<Snapshot>,
    progress: &'a (dyn Fn(Progress) + Sync),
    rows_done: u64,
    rows_all: u64,
    /// What the rows walked so far tell of commands.
    told: Told,
}

impl Proof<'_> {
    fn run(mut self, range: Range) -> Result<Report, VerifyError> {
        let site = &self.readers.site;
        let (own, own_key) = (site.node.name().to_owned(), site.key.public().to_owned());
        let chains = std::mem::take(&mut self.chains);
        let Some(mine) = chains.iter().find(|it| it.chain == own) else {
            let last = self.readers.read(|link| {
                let row = link.query_one("SELECT max(seq) FROM flow_events WHERE chain = $1", &[&own])?;
                Ok(row.try_get::<_, Option<i64>>(0)?)
            })?;
            return Err(Fault::HeadChanged.at(last.unwrap_or(0).cast_unsigned()).into());
        };
        let mut report = self.prove(mine, range, &own_key)?;
        if range != Range::ALL {
            return Ok(report);
        }
        for chain in chains.iter().filter(|it| it.chain != own && it.has_begun()) {
            let proved = self.prove(chain, Range::ALL, &chain.public_key);
            report.others.push(proved.map_err(|error| named(error, &chain.chain))?);
        }
        self.prove_ties(&chains)?;
        let kept = self.prove_kept();
        kept.map_err(|error| match error {
            VerifyError::Flawed(flaw) if flaw.chain.as_ref() == Some(&own) => Flaw { chain: None, ..flaw }.into(),
            other => other,
        })?;
        Ok(report)
    }

    fn prove(&mut self, chain: &Snapshot, range: Range, key: &str) -> Result<Report, VerifyError> {
        if let Some(seq) = chain.unreadable {
            return Err(Fault::BadSignature.at(seq).into());
        }
        prove::prove_signatures(&chain.checkpoints, key)?;
        let (head, head_hash) = chain.head;
        let first = range.first.unwrap_or(chain.first).max(chain.first);
        let last = range.last.unwrap_or(head).min(head);
        let prev = if first == chain.first {
            prove::start(first, &chain.checkpoints)?
        } else {
            self.hash_before(chain, first)?
        };
        let reached = self.walk(chain, first, last, prev)?;
        let mut end = Voucher::Nothing;
        if first == chain.first && last == head {
            prove_end(chain, head, head_hash, reached)?;
            // Only who has a node's key can tell its seal from another.
            let site = &self.readers.site;
            if chain.chain == site.node.name() {
                end = site.sealer.prove(&chain.chain, chain.head, chain.seal)?;
            }
            prove::prove_spacing(&chain.checkpoints, first, head)?;
            self.prove_leftovers(chain, first)?;
        }
        Ok(Report {
            chain: chain.chain.clone(),
            first_seq: first,
            last_seq: last,
            last_hash: reached,
            rows: (last + 1).saturating_sub(first),
            checkpoints: chain.checkpoints.len() as u64,
            unsigned: prove::unsigned(&chain.checkpoints, first, last),
            end,
            public_key: key.to_owned(),
            others: Vec::new(),
        })
    }

    /// Proves the rows from `first` to `last`; gives the hash of the last.
    fn walk(&mut self, chain: &Snapshot, first: u64, last: u64, prev: Hash) -> Result<Hash, VerifyError> {
        let mut walk = Walk::new(first..=last, prev, &chain.checkpoints);
        while walk.next() <= last {
            let from = walk.next();
            let to = last.min(from + RANGE_ROWS - 1);
            for row in rows(self.readers, &chain.chain, from, to)? {
                let link = row.as_link();
                walk.step(&link)?;
                self.told.hear(link.seq, &link.columns);
            }
            if walk.next() == from {
                break;
            }
            self.rows_done += walk.next() - from;
            (self.progress)(Progress {
                rows_done: self.rows_done,
                rows_all: self.rows_all,
            });
        }
        if walk.next() > last {
            return Ok(walk.prev());
        }
        let fault = if chain.last_row >= walk.next() {
            Fault::Missing
        } else {
            Fault::Truncated { should_reach: last }
        };
        Err(fault.at(walk.next()).into())
    }

    /// What stands before the first row must be what a prune had no time to delete.
    fn prove_leftovers(&self, chain: &Snapshot, first: u64) -> Result<(), VerifyError> {
        let sql = format!("SELECT {COLUMNS} FROM flow_events WHERE chain = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3");
        let mut leftovers = Leftovers::new(first, &chain.checkpoints)?;
        loop {
            let before = leftovers.below();
            let values = (&chain.chain, before, RANGE_ROWS.cast_signed());
            let rows = self
                .readers
                .read(|link| link.all(&sql, &[values.0, &values.1, &values.2], read_row))?;
            for row in &rows {
                leftovers.step(&row.as_link())?;
            }
            if leftovers.below() == before {
                return Ok(());
            }
        }
    }

    /// What is kept of commands must be what their closing events tell.
    fn prove_kept(&mut self) -> Result<(), VerifyError> {
        let sql = "SELECT owner, request_id, correlation_id, result, stdout, stderr, closed_at_ms, digest FROM commands
             WHERE (owner, request_id) > ($1, $2) ORDER BY owner, request_id LIMIT $3";
        let mut told = std::mem::take(&mut self.told);
        told.settle();
        let mut behind = (String::new(), String::new());
        loop {
            let rows = self
                .readers
                .read(|link| link.query(sql, &[&behind.0, &behind.1, &RANGE_COMMANDS]))?;
            for row in &rows {
                self.see_command(&mut told, row)?;
            }
            let Some(last) = rows.last() else { break };
            behind = (
                last.try_get(0).map_err(Trouble::from)?,
                last.try_get(1).map_err(Trouble::from)?,
            );
        }
        if let Some((chain, seq)) = told.first_missing() {
            let row = rows(self.readers, chain, seq, seq)?
                .pop()
                .ok_or(Fault::Missing.at(seq).of(chain))?;
            let fault = told.missing(&kept::request_of(&row.payload));
            return Err(fault.at(seq).of(chain).into());
        }
        if let Some(request_id) = told.stranger() {
            return Err(VerifyError::astray(kept::added(request_id)));
        }
        if let Some(twice) = told.ended_twice() {
            return Err(twice.clone().into());
        }
        self.prove_open(&told)?;
        let site = &self.readers.site;
        let acts = self.readers.read_at_once(|link| acts::prove_open(link, site))?;
        acts.map_err(VerifyError::astray)
    }

    fn see_command(&self, told: &mut Told, row: &tokio_postgres::Row) -> Result<(), VerifyError> {
        let read = || {
            let kept = Kept {
                owner: row.try_get(0)?,
                request_id: row.try_get(1)?,
                correlation_id: row.try_get(2)?,
                result: row.try_get(3)?,
                stdout: row.try_get(4)?,
                stderr: row.try_get(5)?,
                digest: row.try_get(7)?,
            };
            Ok::<_, Trouble>((kept, row.try_get(6)?))
        };
        let (kept, closed_at_ms) = read()?;
        if told.see(&kept) {
            return Ok(());
        }
        let found = self.readers.read(|link| readers::closings(link, kept.correlation_id))?;
        Ok(told.judge(&kept, closed_at_ms, &found)?)
    }

    /// What is open must be what was opened, and what was opened must be open or closed.
    fn prove_open(&self, told: &Told) -> Result<(), VerifyError> {
        let sql = "SELECT owner, request_id, digest, correlation_id, opened_at_ms, abandoned FROM open_commands";
        for row in self.readers.read(|link| link.query(sql, &[]))? {
            let read = || {
                Ok::<_, Trouble>(Opened {
                    owner: row.try_get(0)?,
                    request_id: row.try_get(1)?,
                    digest: row.try_get(2)?,
                    correlation_id: row.try_get(3)?,
                    opened_at: Timestamp::from_millis(row.try_get(4)?),
                    abandoned: row.try_get(5)?,
                })
            };
            let open = read()?;
            let events = self.readers.read(|link| readers::openings(link, open.correlation_id))?;
            kept::prove_open(&open, events.iter().map(String::as_str)).map_err(VerifyError::astray)?;
        }
        for (chain, seq) in told.unclosed() {
            // One that a prune took meanwhile has ended.
            let Some(row) = rows(self.readers, chain, seq, seq)?.pop() else {
                continue;
            };
            let (correlation_id, request_id) = (row.correlation_id, kept::request_of(&row.payload));
            let is_open = "SELECT 1 FROM open_commands WHERE request_id = $1 AND correlation_id = $2";
            let found = self.readers.read(|link| {
                let open = link.query(is_open, &[&request_id, &correlation_id])?;
                Ok((!open.is_empty(), readers::closings(link, &correlation_id)?))
            })?;
            let (is_open, closed) = found;
            if !is_open && !closed.iter().any(|it| kept::request_of(&it.payload) == request_id) {
                return Err(Fault::OpeningGone.at(seq).of(chain).into());
            }
        }
        for (chain, seq) in told.unopened() {
            let Some(row) = rows(self.readers, chain, seq, seq)?.pop() else {
                continue;
            };
            if kept::never_began(&row.payload) {
                continue;
            }
            let openings = self.readers.read(|link| readers::openings(link, &row.correlation_id))?;
            let request_id = kept::request_of(&row.payload);
            if !openings.iter().any(|it| kept::request_of(it) == request_id) {
                return Err(Fault::EndAlone.at(seq).of(chain).into());
            }
        }
        Ok(())
    }

    fn hash_before(&self, chain: &Snapshot, seq: u64) -> Result<Hash, VerifyError> {
        let before = rows(self.readers, &chain.chain, seq - 1, seq - 1)?;
        Ok(before.first().map(|row| row.hash).ok_or(Fault::Missing.at(seq - 1))?)
    }

    /// Every chain must still be what the checkpoints of the others say it was.
    fn prove_ties(&self, chains: &[Snapshot]) -> Result<(), VerifyError> {
        let known: HashMap<&str, &Snapshot> = chains.iter().map(|it| (it.chain.as_str(), it)).collect();
        let (mut names, mut seqs, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        let said = chains.iter().flat_map(|it| &it.checkpoints).flat_map(|it| &it.heads);
        for head in said {
            let chain = known.get(head.chain.as_str());
            let Some(chain) = chain.filter(|chain| chain.last_row >= head.seq) else {
                let should_reach = head.seq;
                let from = chain.map_or(1, |chain| chain.last_row + 1);
                return Err(Fault::Truncated { should_reach }.at(from).of(&head.chain).into());
            };
            if chain.public_key != head.public_key {
                return Err(Fault::OtherKey.at(head.seq).of(&head.chain).into());
            }
            if head.seq >= chain.first {
                names.push(head.chain.as_str());
                seqs.push(head.seq.cast_signed());
                hashes.push(head.hash.as_bytes().as_slice());
            }
        }
        // A row that belongs to no chain was put there, or taken out of one.
        let stray = self.readers.read(|link| {
            link.first(
                "SELECT chain, seq FROM flow_events
                 WHERE NOT EXISTS (SELECT 1 FROM chain_heads WHERE chain_heads.chain = flow_events.chain)
                 ORDER BY chain, seq LIMIT 1",
                &[],
                |row| Ok((row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?.cast_unsigned())),
            )
        })?;
        if let Some((chain, seq)) = stray {
            return Err(Fault::HeadChanged.at(seq).of(&chain).into());
        }
        let other = self.readers.read(|link| {
            link.first(
                "SELECT said.chain, said.seq FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS said (chain, seq, hash)
                     LEFT JOIN flow_events ON flow_events.chain = said.chain AND flow_events.seq = said.seq
                 WHERE flow_events.hash IS DISTINCT FROM said.hash ORDER BY said.chain, said.seq LIMIT 1",
                &[&names, &seqs, &hashes],
                |row| Ok((row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?.cast_unsigned())),
            )
        })?;
        match other {
            Some((chain, seq)) => Err(Fault::CheckpointMismatch.at(seq).of(&chain).into()),
            None => Ok(()),
        }
    }
}

/// The place of the last prune of any node: it takes what is kept of all.
fn last_prune(link: &Link) -> Result<Option<i64>, Trouble> {
    let sql = "SELECT max(place) FROM flow_events WHERE event_type = 'audit.pruned'
             AND event_type <> 'command.received' AND event_type <> 'command.validated'
             AND event_type <> 'command.dispatched' AND event_type <> 'command.completed'";
    Ok(link.query_one(sql, &[])?.try_get(0)?)
}

/// The head row must name the last row, and no checkpoint may lie beyond it.
fn prove_end(chain: &Snapshot, head: u64, head_hash: Hash, reached: Hash) -> Result<(), Flaw> {
    let beyond = chain.checkpoints.last().map_or(0, |it| it.seq);
    if beyond > head {
        return Err(Fault::Truncated { should_reach: beyond }.at(head + 1));
    }
    if chain.last_row != head || head_hash != reached {
        return Err(Fault::HeadChanged.at(head));
    }
    Ok(())
}

/// The same error, which says in which chain.
fn named(error: VerifyError, chain: &str) -> VerifyError {
    match error {
        VerifyError::Flawed(flaw) => VerifyError::Flawed(flaw.of(chain)),
        other @ (VerifyError::Astray { .. } | VerifyError::Read { .. }) => other,
    }
}
