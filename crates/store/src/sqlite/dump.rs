//! Writing the live record to a file that verifies alone (see [`crate::export`]).

use std::io::{self, Write};

use countersign_gateway::audit::chain::Hash;

use super::readers::Readers;
use super::site::Site;
use super::snapshot::Snapshot;
use super::{CHAIN, SqliteStore, query};
use crate::Trouble;
use crate::dump::write_chain;
use crate::export::Start;
use countersign_gateway::audit::row::Row;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("the record cannot be read: {source}")]
    Read { source: Trouble },
    #[error("the export cannot be written")]
    Write { source: io::Error },
    #[error("the payload of row {seq} is not JSON; `audit verify` tells more")]
    Payload { seq: u64, source: serde_json::Error },
    #[error("the end of the record is not sealed by its key, and so not signed; `audit verify` tells more")]
    Unsealed,
}

impl SqliteStore {
    /// Writes the record as it stands now. Damage is exported as it is; verifying finds it.
    pub fn export(&self, writer: &mut dyn Write) -> Result<(), ExportError> {
        export(&self.readers, &self.site, writer)
    }
}

pub(super) fn export(readers: &Readers, site: &Site, writer: &mut dyn Write) -> Result<(), ExportError> {
    let snapshot = Snapshot::take(readers).map_err(|source| ExportError::Read { source: source.into() })?;
    let pruned = snapshot.checkpoints.iter().rfind(|it| it.seq + 1 == snapshot.first);
    let start = Start {
        public_key: site.key.public().to_owned(),
        chain: CHAIN.to_owned(),
        chain_key: None,
        chains: 1,
        first_seq: snapshot.first,
        last_seq: snapshot.last_row,
        prev_hash: pruned.map_or(Hash::GENESIS, |it| it.hash),
    };
    let sealed = site.sealer.sealed_end(CHAIN, snapshot.head, snapshot.seal)?;
    write_chain(writer, &site.key, &start, &snapshot.checkpoints, sealed, |from, to| {
        rows(readers, from, to)
    })?;
    writer.flush().map_err(|source| ExportError::Write { source })
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
