//! What the record says of itself at one moment: its head, its rows' ends and its checkpoints.

use countersign_gateway::audit::chain::Hash;
use rusqlite::{Connection, OptionalExtension};

use super::CHAIN;
use super::readers::Readers;
use crate::checkpoint::{Checkpoint, Kind};
use crate::key::Key;
use crate::seal::Seal;

pub(super) struct Snapshot {
    /// Place and hash of the end, by the head row.
    pub(super) head: Option<(u64, Hash)>,
    /// The seal on it.
    pub(super) seal: Option<Seal>,
    /// Place of the last row.
    pub(super) last_row: u64,
    /// Place of the first row that must be there.
    pub(super) first: u64,
    /// In the order of their places.
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Place of a checkpoint that cannot be read as one.
    pub(super) unreadable: Option<u64>,
}

impl Snapshot {
    pub(super) fn take(readers: &Readers) -> rusqlite::Result<Self> {
        readers.read(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let snapshot = Self::read(&transaction, readers.key())?;
            transaction.finish()?;
            Ok(snapshot)
        })
    }

    pub(super) fn read(connection: &Connection, key: &Key) -> rusqlite::Result<Self> {
        let head = connection
            .query_row(
                "SELECT seq, hash, seal FROM chain_heads WHERE chain = ?1",
                [CHAIN],
                |row| {
                    let head = (row.get::<_, i64>(0)?.cast_unsigned(), Hash::from_bytes(row.get(1)?));
                    Ok((head, row.get::<_, Option<Seal>>(2)?))
                },
            )
            .optional()?;
        let pruned = pruned(connection, key)?;
        let last_row = connection.query_row("SELECT max(seq) FROM flow_events", [], |row| {
            row.get::<_, Option<i64>>(0)
        })?;
        let mut snapshot = Self {
            head: head.map(|(head, _)| head),
            seal: head.and_then(|(_, seal)| seal),
            last_row: last_row.map_or(pruned, i64::cast_unsigned),
            first: pruned + 1,
            checkpoints: Vec::new(),
            unreadable: None,
        };
        let mut statement = connection.prepare(
            "SELECT seq, chain, hash, timestamp, kind, public_key, signature FROM checkpoints
             ORDER BY seq, id",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            match checkpoint(row)? {
                Some(checkpoint) => snapshot.checkpoints.push(checkpoint),
                None => snapshot.unreadable = Some(row.get::<_, i64>(0)?.cast_unsigned()),
            }
        }
        Ok(snapshot)
    }
}

/// A row of `seq, chain, hash, timestamp, kind, public_key, signature`; none where it cannot be read as a checkpoint.
pub(super) fn checkpoint(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Checkpoint>> {
    let Some(kind) = Kind::parse(&row.get::<_, String>(4)?) else {
        return Ok(None);
    };
    Ok(Some(Checkpoint {
        chain: row.get(1)?,
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        hash: Hash::from_bytes(row.get(2)?),
        timestamp: row.get(3)?,
        kind,
        public_key: row.get(5)?,
        heads: Vec::new(),
        signature: row.get(6)?,
    }))
}

/// Place of the last row that a prune allows to be missing, one that was signed with the record's key; 0 if nothing was pruned.
pub(super) fn pruned(connection: &Connection, key: &Key) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, chain, hash, timestamp, kind, public_key, signature FROM checkpoints
         WHERE kind = 'prune' ORDER BY seq DESC, id DESC",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let signed = checkpoint(row)?.filter(|it| it.chain == CHAIN && it.is_signed_by(key.public()));
        if let Some(signed) = signed {
            return Ok(signed.seq);
        }
    }
    Ok(0)
}
