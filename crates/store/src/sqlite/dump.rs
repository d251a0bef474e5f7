//! Writing the live record to a file that verifies alone (see [`crate::export`]).

use std::io::{self, Write};

use countersign_gateway::audit::chain::Hash;

use super::readers::Readers;
use super::snapshot::Snapshot;
use super::{CHAIN, SqliteStore, query};
use crate::Trouble;
use crate::export::{End, Start, write_checkpoint};
use crate::key::Key;
use countersign_gateway::audit::row::Row;

/// Rows read in one transaction.
const RANGE_ROWS: u64 = 1_024;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("the record cannot be read: {source}")]
    Read { source: Trouble },
    #[error("the export cannot be written")]
    Write { source: io::Error },
    #[error("the payload of row {seq} is not JSON; `audit verify` tells more")]
    Payload { seq: u64, source: serde_json::Error },
}

impl SqliteStore {
    /// Writes the record as it stands now. Damage is exported as it is; verifying finds it.
    pub fn export(&self, writer: &mut dyn Write) -> Result<(), ExportError> {
        export(&self.readers, &self.site.key, writer)
    }
}

pub(super) fn export(readers: &Readers, key: &Key, writer: &mut dyn Write) -> Result<(), ExportError> {
    let unwritten = |source| ExportError::Write { source };
    let snapshot = Snapshot::take(readers).map_err(|source| ExportError::Read { source: source.into() })?;
    let pruned = snapshot.checkpoints.iter().rfind(|it| it.seq + 1 == snapshot.first);
    let start = Start {
        public_key: key.public().to_owned(),
        chain: CHAIN.to_owned(),
        chain_key: None,
        chains: 1,
        first_seq: snapshot.first,
        last_seq: snapshot.last_row,
        prev_hash: pruned.map_or(Hash::GENESIS, |it| it.hash),
    };
    start.write(writer).map_err(unwritten)?;
    let mut last_hash = start.prev_hash;
    let mut from = start.first_seq;
    while from <= start.last_seq {
        let to = start.last_seq.min(from + RANGE_ROWS - 1);
        for row in rows(readers, from, to)? {
            let line = row
                .to_json()
                .map_err(|source| ExportError::Payload { seq: row.seq, source })?;
            writeln!(writer, "{line}").map_err(unwritten)?;
            last_hash = row.hash;
        }
        from = to + 1;
    }
    for checkpoint in &snapshot.checkpoints {
        write_checkpoint(writer, checkpoint).map_err(unwritten)?;
    }
    let checkpoints = snapshot.checkpoints.len() as u64;
    End::sign(key, &start, last_hash, checkpoints)
        .write(writer)
        .and_then(|()| writer.flush())
        .map_err(unwritten)
}

fn rows(readers: &Readers, from: u64, to: u64) -> Result<Vec<Row>, ExportError> {
    let sql = format!(
        "SELECT {} FROM flow_events WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
        query::COLUMNS
    );
    readers
        .read(|connection| {
            connection
                .prepare(&sql)?
                .query_map([from.cast_signed(), to.cast_signed()], query::read_row)?
                .collect()
        })
        .map_err(|source| ExportError::Read { source: source.into() })
}
