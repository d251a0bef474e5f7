//! Proving a chain, row by row, without trusting whoever hands the rows in.
//!
//! A [`Walk`] goes forward from a known hash and holds each row against the one before it and each
//! checkpoint against its row. The first thing that is wrong is a [`Flaw`], named by place and kind.
//! No files and no SQL here: the live record and an exported file are walked alike.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;

use countersign_gateway::audit::chain::{Hash, link};

use crate::checkpoint::{Checkpoint, EVERY_ROWS, Kind};
use countersign_gateway::audit::row::Link;

/// How far from its place a moved row is recognised.
const MOVED_ROWS_MAX: u64 = 10_000;

/// What a sound record looks like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub chain: String,
    pub first_seq: u64,
    pub last_seq: u64,
    pub last_hash: Hash,
    pub rows: u64,
    pub checkpoints: u64,
    /// Rows behind the last signed checkpoint.
    pub unsigned: u64,
    /// What vouches for the end of the chain, and so for those.
    pub end: Voucher,
    /// The key that signed the checkpoints, in hexadecimal.
    pub public_key: String,
    /// The chains of other nodes, where there are any.
    pub others: Vec<Report>,
}

/// What vouches for the last row of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Voucher {
    /// The head is sealed with the chain's own key, which was at hand.
    Seal,
    /// The signed last line of an exported file.
    Signature,
    /// Nothing but the links: the head is one of another node, whose key is not at hand, or was never sealed.
    Nothing,
}

impl Voucher {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Signature => "signature",
            Self::Nothing => "nothing",
        }
    }
}

/// How many rows up to `last` stand behind the last of the checkpoints.
pub(crate) fn unsigned(checkpoints: &[Checkpoint], first: u64, last: u64) -> u64 {
    let signed = checkpoints.iter().map(|it| it.seq).filter(|seq| *seq <= last).max();
    last.saturating_sub(signed.unwrap_or(0).max(first.saturating_sub(1)))
}

impl Report {
    /// This chain and the others.
    pub fn chains(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }
}

/// The first thing found wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("row {seq}{}: {fault}", in_chain(.chain.as_deref()))]
pub struct Flaw {
    pub seq: u64,
    pub fault: Fault,
    /// The chain, where it is another node's.
    pub chain: Option<String>,
}

impl Flaw {
    /// The same in the chain of another node.
    pub(crate) fn of(self, chain: &str) -> Self {
        let chain = Some(chain.to_owned());
        Self { chain, ..self }
    }
}

fn in_chain(chain: Option<&str>) -> String {
    chain.map_or_else(String::new, |chain| format!(" of chain `{chain}`"))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The row is not what was linked.
    Changed,
    Missing,
    /// The row was written at another place.
    Reordered {
        written_at: u64,
    },
    /// The row is sound in itself but names another row before it.
    Unlinked,
    /// The record ends here though it went on.
    Truncated {
        should_reach: u64,
    },
    /// The head row names another end than the rows have.
    HeadChanged,
    /// The head row has a seal that the record's key did not make.
    HeadForged,
    /// The head row has no seal though this program leaves one.
    HeadUnsealed,
    /// The checkpoint at this row is not signed by the record's key.
    BadSignature,
    /// A signed statement about this row, a checkpoint or a file's end, names another hash.
    CheckpointMismatch,
    /// No checkpoint where one is due.
    CheckpointMissing,
    /// Rows before this one are gone without a signed prune.
    StartUnproven,
    /// A row before the first one that no prune has left there.
    Added,
    /// Another node has signed that this chain's key is another one.
    OtherKey,
    /// What the witness was told of this row was signed by another key.
    WitnessKey,
    /// The row is sound, and what is kept of its command is not what it tells.
    KeptChanged,
    /// The row is sound, and nothing is kept of its command though it tells that something is.
    KeptMissing,
    /// The row is sound and tells of nothing that is kept, and yet something is.
    KeptAdded,
    /// The row tells of an opening, and the command is neither open nor closed.
    OpeningGone,
    /// The row tells of the end of a command, and none of its beginning.
    EndAlone,
    /// The row tells of the end of an act that had ended before.
    EndedTwice,
    /// The rows up to this one are sound, and what leads to them by their time does not.
    SpanChanged,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("changed"),
            Self::Missing => f.write_str("missing"),
            Self::Reordered { written_at } => {
                write!(f, "reordered, it was written as row {written_at}")
            }
            Self::Unlinked => f.write_str("changed, it does not follow the row before it"),
            Self::Truncated { should_reach } => {
                write!(f, "truncated, the record should reach row {should_reach}")
            }
            Self::HeadChanged => f.write_str("the head row was changed, it names another end"),
            Self::HeadForged => f.write_str(
                "the head row's seal was not made with the record's key, rows behind the last checkpoint were rewritten or cut off",
            ),
            Self::HeadUnsealed => f.write_str("the head row's seal is missing"),
            Self::BadSignature => f.write_str("bad signature of the checkpoint here"),
            Self::CheckpointMismatch => f.write_str("changed, what was signed here has another hash"),
            Self::CheckpointMissing => f.write_str("missing checkpoint, one is due by here"),
            Self::OtherKey => f.write_str("the chain's key was replaced, another node has signed another one"),
            Self::WitnessKey => f.write_str("the record's key was replaced, the witness was told by another one"),
            Self::StartUnproven => f.write_str("missing rows before it, and no signed prune covers them"),
            Self::KeptChanged => f.write_str("the output or the result that is kept of its command was changed"),
            Self::KeptMissing => f.write_str("the output and the result of its command are gone, and no prune took them"),
            Self::KeptAdded => f.write_str("nothing is kept of its command, somebody put an output and a result there"),
            Self::OpeningGone => f.write_str("the command that was opened here is neither open nor closed, what was to close it is gone"),
            Self::EndAlone => f.write_str("a command ends here and no row tells of its beginning, somebody had this end written"),
            Self::EndedTwice => f.write_str("an act ends here a second time, somebody put it among the open ones again"),
            Self::SpanChanged => f.write_str("what leads to the rows up to here by their time was changed"),
            Self::Added => f.write_str("added, the record has no such row"),
        }
    }
}

impl Fault {
    pub(crate) fn at(self, seq: u64) -> Flaw {
        Flaw {
            seq,
            fault: self,
            chain: None,
        }
    }
}

/// A walk along the chain.
pub(crate) struct Walk {
    next: u64,
    prev: Hash,
    /// Checkpoints ahead, by place.
    checkpoints: VecDeque<Checkpoint>,
}

impl Walk {
    /// Starts before the first of these rows, behind the hash `prev`, past those of the checkpoints that stand among
    /// them.
    pub(crate) fn new(rows: RangeInclusive<u64>, prev: Hash, checkpoints: &[Checkpoint]) -> Self {
        Self {
            next: *rows.start(),
            prev,
            checkpoints: checkpoints
                .iter()
                .filter(|it| rows.contains(&it.seq))
                .cloned()
                .collect(),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The hash of the last row.
    pub(crate) fn prev(&self) -> Hash {
        self.prev
    }

    pub(crate) fn step(&mut self, row: &Link<'_>) -> Result<(), Flaw> {
        if row.seq > self.next {
            return Err(Fault::Missing.at(self.next));
        }
        let linked = link(&self.prev, self.next, &row.columns);
        if row.seq != self.next || row.prev_hash != self.prev || row.hash != linked {
            return Err(judge(row, self.next));
        }
        while let Some(checkpoint) = self.checkpoints.front()
            && checkpoint.seq <= row.seq
        {
            if checkpoint.seq == row.seq && checkpoint.hash != row.hash {
                return Err(Fault::CheckpointMismatch.at(row.seq));
            }
            self.checkpoints.pop_front();
        }
        self.next += 1;
        self.prev = row.hash;
        Ok(())
    }

    /// Ends the walk; `last` is the row that it must have reached.
    pub(crate) fn finish(&self, last: u64) -> Result<(), Flaw> {
        let should_reach = self.checkpoints.back().map_or(last, |it| it.seq.max(last));
        if should_reach >= self.next {
            return Err(Fault::Truncated { should_reach }.at(self.next));
        }
        Ok(())
    }
}

/// A walk back from the first row that must be there. A prune that was cut short leaves rows, without a gap up to the
/// place that it signed, and deletes them from the start, so that this way none goes missing. Any other was put there.
pub(crate) struct Leftovers {
    below: i64,
    /// The hash of the row before; none where the record begins.
    expected: Option<Hash>,
}

impl Leftovers {
    pub(crate) fn new(first: u64, checkpoints: &[Checkpoint]) -> Result<Self, Flaw> {
        let expected = start(first, checkpoints).map(|hash| Some(hash).filter(|_| first > 1))?;
        let below = first.cast_signed();
        Ok(Self { below, expected })
    }

    /// Rows are looked for before this place.
    pub(crate) fn below(&self) -> i64 {
        self.below
    }

    pub(crate) fn step(&mut self, row: &Link<'_>) -> Result<(), Flaw> {
        let place = row.seq.cast_signed();
        let Some(expected) = self.expected.filter(|_| place == self.below - 1 && place > 0) else {
            return Err(Fault::Added.at(u64::try_from(place).unwrap_or(0)));
        };
        if row.hash != expected || link(&row.prev_hash, row.seq, &row.columns) != expected {
            return Err(Fault::Changed.at(row.seq));
        }
        self.below = place;
        self.expected = Some(row.prev_hash);
        Ok(())
    }
}

/// Says what happened to a row that does not fit.
fn judge(row: &Link<'_>, place: u64) -> Flaw {
    let fits = |seq: u64| link(&row.prev_hash, seq, &row.columns) == row.hash;
    if fits(place) {
        return Fault::Unlinked.at(place);
    }
    let near = place.saturating_sub(MOVED_ROWS_MAX).max(1)..=place + MOVED_ROWS_MAX;
    match near.into_iter().find(|&seq| fits(seq)) {
        Some(written_at) => Fault::Reordered { written_at }.at(place),
        None => Fault::Changed.at(place),
    }
}

pub(crate) fn prove_signatures(checkpoints: &[Checkpoint], public_key: &str) -> Result<(), Flaw> {
    match checkpoints.iter().find(|it| !it.is_signed_by(public_key)) {
        Some(forged) => Err(Fault::BadSignature.at(forged.seq)),
        None => Ok(()),
    }
}

/// Checks that no checkpoint is missing between `first` and `last`. They stand in the order of
/// their places.
pub(crate) fn prove_spacing(checkpoints: &[Checkpoint], first: u64, last: u64) -> Result<(), Flaw> {
    let mut covered = first.saturating_sub(1);
    for checkpoint in checkpoints.iter().filter(|it| it.seq >= first) {
        if checkpoint.seq > covered + EVERY_ROWS {
            break;
        }
        covered = checkpoint.seq;
    }
    if last >= covered + EVERY_ROWS {
        return Err(Fault::CheckpointMissing.at(covered + EVERY_ROWS));
    }
    Ok(())
}

/// The hash before the first row: nothing, or what the last signed prune left.
pub(crate) fn start(first: u64, checkpoints: &[Checkpoint]) -> Result<Hash, Flaw> {
    if first == 1 {
        return Ok(Hash::GENESIS);
    }
    checkpoints
        .iter()
        .find(|it| it.kind == Kind::Prune && it.seq + 1 == first)
        .map(|it| it.hash)
        .ok_or(Fault::StartUnproven.at(first))
}
