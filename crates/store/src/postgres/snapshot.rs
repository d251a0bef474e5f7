//! What the record says of itself at one moment: each chain's head, its rows' ends and its checkpoints.

use countersign_gateway::audit::chain::Hash;

use super::ledger::{hash, seal};
use super::link::Link;
use super::trouble::Trouble;
use crate::checkpoint::{Checkpoint, Kind, OtherHead};
use crate::seal::Seal;

/// One chain.
pub(super) struct Snapshot {
    pub(super) chain: String,
    /// The key that the database says is its owner's.
    pub(super) public_key: String,
    /// Place and hash of the end, by the head row.
    pub(super) head: (u64, Hash),
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
    /// All chains, by their names. To be asked within one moment.
    pub(super) fn all(link: &Link) -> Result<Vec<Self>, Trouble> {
        let heads = link.all(
            "SELECT chain, seq, hash, public_key, seal FROM chain_heads ORDER BY chain",
            &[],
            |row| {
                Ok(Self {
                    chain: row.try_get(0)?,
                    head: (row.try_get::<_, i64>(1)?.cast_unsigned(), hash(row, 2)?),
                    public_key: row.try_get(3)?,
                    seal: seal(row, 4)?,
                    last_row: 0,
                    first: 1,
                    checkpoints: Vec::new(),
                    unreadable: None,
                })
            },
        )?;
        heads.into_iter().map(|head| head.with_rows(link)).collect()
    }

    /// Whether there is something to prove. A node that has written nothing yet has a head; rows count whatever their head
    /// says.
    pub(super) fn has_begun(&self) -> bool {
        self.head.0 > 0 || self.last_row > 0
    }

    /// The same with what its rows and checkpoints say.
    fn with_rows(self, link: &Link) -> Result<Self, Trouble> {
        let pruned = pruned(link, &self.chain, &self.public_key)?;
        let last_row = link
            .query_one("SELECT max(seq) FROM flow_events WHERE chain = $1", &[&self.chain])?
            .try_get::<_, Option<i64>>(0)?;
        let mut snapshot = Self {
            last_row: last_row.map_or(pruned, i64::cast_unsigned),
            first: pruned + 1,
            ..self
        };
        let rows = link.query(
            "SELECT seq, chain, hash, timestamp, kind, public_key, signature, heads FROM checkpoints
             WHERE chain = $1 ORDER BY seq, id",
            &[&snapshot.chain],
        )?;
        for row in rows {
            match checkpoint(&row)? {
                Some(checkpoint) => snapshot.checkpoints.push(checkpoint),
                None => snapshot.unreadable = Some(row.try_get::<_, i64>(0)?.cast_unsigned()),
            }
        }
        Ok(snapshot)
    }
}

/// A row of `seq, chain, hash, timestamp, kind, public_key, signature, heads`; none where it cannot be read as a checkpoint.
pub(super) fn checkpoint(row: &tokio_postgres::Row) -> Result<Option<Checkpoint>, Trouble> {
    let kind = Kind::parse(row.try_get(4)?);
    let heads = OtherHead::list_from_text(row.try_get(7)?);
    let Some((kind, heads)) = kind.zip(heads) else {
        return Ok(None);
    };
    Ok(Some(Checkpoint {
        chain: row.try_get(1)?,
        seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
        hash: hash(row, 2)?,
        timestamp: row.try_get(3)?,
        kind,
        public_key: row.try_get(5)?,
        heads,
        signature: row.try_get(6)?,
    }))
}

/// Place of the last row of a chain that a prune allows to be missing, one that was signed with its key; 0 if nothing was pruned.
pub(super) fn pruned(link: &Link, chain: &str, public_key: &str) -> Result<u64, Trouble> {
    let sql = "SELECT seq, chain, hash, timestamp, kind, public_key, signature, heads FROM checkpoints
         WHERE kind = 'prune' AND chain = $1 ORDER BY seq DESC, id DESC";
    let prunes = link.all(sql, &[&chain], checkpoint)?;
    let signed = prunes.into_iter().flatten().find(|it| it.is_signed_by(public_key));
    Ok(signed.map_or(0, |it| it.seq))
}
