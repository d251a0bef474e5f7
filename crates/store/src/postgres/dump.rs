//! Writing the live record to a file that verifies alone (see [`crate::export`]): this node's chain, then the others'.

use std::io::Write;

use countersign_gateway::audit::chain::Hash;
use countersign_gateway::audit::row::Row;

use super::PgStore;
use super::query::{COLUMNS, read_row};
use super::readers::Readers;
use super::snapshot::Snapshot;
use super::trouble::Trouble;
use crate::dump::write_chain;
use crate::export::Start;
use crate::sqlite::dump::ExportError;

impl PgStore {
    /// Writes the record as it stands now. Damage is exported as it is; verifying finds it.
    pub fn export(&self, writer: &mut dyn Write) -> Result<(), ExportError> {
        export(&self.readers, writer)
    }
}

pub(super) fn export(readers: &Readers, writer: &mut dyn Write) -> Result<(), ExportError> {
    let own = readers.site.node.name();
    let mut chains = readers.read_at_once(Snapshot::all).map_err(unread)?;
    chains.retain(|chain| chain.has_begun() || chain.chain == own);
    chains.sort_by_key(|chain| chain.chain != own);
    let count = chains.len() as u64;
    for chain in &chains {
        export_chain(readers, writer, chain, count)?;
    }
    writer.flush().map_err(|source| ExportError::Write { source })
}

fn export_chain(readers: &Readers, writer: &mut dyn Write, chain: &Snapshot, chains: u64) -> Result<(), ExportError> {
    let key = &readers.site.key;
    let pruned = chain.checkpoints.iter().rfind(|it| it.seq + 1 == chain.first);
    let start = Start {
        public_key: key.public().to_owned(),
        chain: chain.chain.clone(),
        chain_key: (chain.public_key != key.public()).then(|| chain.public_key.clone()),
        chains,
        first_seq: chain.first,
        last_seq: chain.last_row,
        prev_hash: pruned.map_or(Hash::GENESIS, |it| it.hash),
    };
    let sealed = if chain.chain == readers.site.node.name() {
        let sealer = &readers.site.sealer;
        sealer.sealed_end(&chain.chain, Some(chain.head), chain.seal)?
    } else {
        None
    };
    write_chain(writer, key, &start, &chain.checkpoints, sealed, |from, to| {
        rows(readers, &chain.chain, from, to)
    })
}

fn rows(readers: &Readers, chain: &str, from: u64, to: u64) -> Result<Vec<Row>, ExportError> {
    let sql = format!("SELECT {COLUMNS} FROM flow_events WHERE chain = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq");
    readers
        .read(|link| link.all(&sql, &[&chain, &from.cast_signed(), &to.cast_signed()], read_row))
        .map_err(unread)
}

fn unread(source: Trouble) -> ExportError {
    ExportError::Read { source: source.into() }
}
