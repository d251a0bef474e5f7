//! Proving single rows, for whoever is about to sign what follows from them.
//!
//! A row is what was written when it leads, link by link, to something that nobody makes without the record's key: the next
//! signed checkpoint, which is a thousand rows away at most, or the sealed end. What is believed is what was read on that way,
//! so that nothing can be put there for a moment.

use std::collections::BTreeSet;

use countersign_gateway::approval::proof::Told;
use countersign_gateway::audit::chain::{Hash, link};
use countersign_gateway::audit::row::Link;
use countersign_gateway::clock::Timestamp;

use crate::checkpoint::Checkpoint;
use crate::prove::{Fault, Flaw, Walk};

/// An event that was proved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Proved {
    pub(crate) event_id: String,
    pub(crate) correlation_id: String,
    pub(crate) event_type: String,
    pub(crate) timestamp: String,
    pub(crate) payload: String,
}

impl Proved {
    /// The same, for whoever holds an answer against it.
    pub(crate) fn told(self) -> Option<Told> {
        Some(Told {
            event_id: self.event_id,
            event_type: self.event_type,
            at: Timestamp::parse(&self.timestamp).ok()?,
            payload: self.payload,
        })
    }
}

/// Where rows must lead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub(crate) seq: u64,
    pub(crate) hash: Hash,
}

/// The way from a row to the anchor behind it.
pub(crate) struct Way<'a> {
    wanted: &'a BTreeSet<u64>,
    next: u64,
    prev: Option<Hash>,
    found: Vec<Proved>,
}

impl<'a> Way<'a> {
    /// Begins with the row at this place; keeps those that are wanted.
    pub(crate) fn new(first: u64, wanted: &'a BTreeSet<u64>) -> Self {
        Self {
            wanted,
            next: first,
            prev: None,
            found: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, row: &Link<'_>) -> Result<(), Flaw> {
        let follows = self.prev.is_none_or(|prev| prev == row.prev_hash);
        if row.seq != self.next || !follows || link(&row.prev_hash, row.seq, &row.columns) != row.hash {
            return Err(Fault::Changed.at(self.next));
        }
        if self.wanted.contains(&row.seq) {
            self.found.push(Proved {
                event_id: row.columns.event_id.to_owned(),
                correlation_id: row.columns.correlation_id.to_owned(),
                event_type: row.columns.event_type.to_owned(),
                timestamp: row.columns.timestamp.to_owned(),
                payload: row.columns.payload.to_owned(),
            });
        }
        self.prev = Some(row.hash);
        self.next += 1;
        Ok(())
    }

    /// What was found on a way that led there; nothing where it did not.
    pub(crate) fn reached(self, anchor: Anchor) -> Vec<Proved> {
        if self.next == anchor.seq + 1 && self.prev == Some(anchor.hash) {
            self.found
        } else {
            Vec::new()
        }
    }
}

/// The places that one anchor vouches for, and those behind it.
pub(crate) fn split(mut wanted: BTreeSet<u64>, anchor: Anchor) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let behind = wanted.split_off(&(anchor.seq + 1));
    (wanted, behind)
}

/// A walk over rows that are to go because they are old, and on to an anchor behind them.
pub(crate) struct OldRows {
    walk: Walk,
    up_to: u64,
    /// As rows tell their time.
    before: String,
    hash: Option<Hash>,
    anchor: Anchor,
}

impl OldRows {
    pub(crate) fn new(
        first: u64,
        start: Hash,
        checkpoints: &[Checkpoint],
        (up_to, before): (u64, Timestamp),
        anchor: Anchor,
    ) -> Self {
        Self {
            walk: Walk::new(first..=anchor.seq, start, checkpoints),
            up_to,
            before: before.to_string(),
            hash: None,
            anchor,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.walk.next()
    }

    pub(crate) fn step(&mut self, row: &Link<'_>) -> Result<(), Flaw> {
        self.walk.step(row)?;
        if row.seq <= self.up_to && *row.columns.timestamp >= *self.before {
            return Err(Fault::Changed.at(row.seq));
        }
        if row.seq == self.up_to {
            self.hash = Some(row.hash);
        }
        Ok(())
    }

    /// The hash of the last row that is to go.
    pub(crate) fn finish(self) -> Result<Hash, Flaw> {
        self.walk.finish(self.anchor.seq)?;
        let reached = self.walk.prev() == self.anchor.hash;
        self.hash
            .filter(|_| reached)
            .ok_or(Fault::CheckpointMismatch.at(self.anchor.seq))
    }
}
