//! The statements of a writing transaction, prepared once per connection.
//!
//! The chain's head is read inside each transaction and never kept: several processes write to one
//! file. A checkpoint that falls due is signed in the same transaction, so two processes can neither
//! skip nor repeat one; a signature costs a few microseconds in a thousand rows.

use std::thread;
use std::time::{Duration, Instant};

use countersign_gateway::audit::chain::{Columns, Hash, link};
use countersign_gateway::audit::event::Draft;
use countersign_gateway::audit::{CloseCommand, OpenCommand};
use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::site::Site;
use super::{CHAIN, trouble};
use crate::checkpoint::{self, Checkpoint, Kind};

/// Where the chain ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) hash: Hash,
    /// Place of the last checkpoint.
    pub(super) checkpointed: u64,
}

pub(super) struct Ledger<'c> {
    site: &'c Site,
    begin: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    head: Statement<'c>,
    move_head: Statement<'c>,
    insert_event: Statement<'c>,
    insert_checkpoint: Statement<'c>,
    open_command: Statement<'c>,
    close_command: Statement<'c>,
    find_event: Statement<'c>,
    connection: &'c Connection,
    /// Checkpoints of the transaction under way.
    signed: Vec<Checkpoint>,
}

impl<'c> Ledger<'c> {
    pub(super) fn prepare(connection: &'c Connection, site: &'c Site) -> rusqlite::Result<Self> {
        Ok(Self {
            site,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            head: connection
                .prepare("SELECT seq, hash, checkpointed FROM chain_heads WHERE chain = ?1")?,
            move_head: connection.prepare(
                "UPDATE chain_heads SET seq = ?2, hash = ?3, checkpointed = ?4 WHERE chain = ?1",
            )?,
            insert_event: connection.prepare(
                "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type,
                     actor_id, event_type, approval_state, payload, prev_hash, hash)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?,
            insert_checkpoint: connection.prepare(
                "INSERT INTO checkpoints (chain, seq, hash, timestamp, kind, public_key, signature)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?,
            open_command: connection.prepare(
                "INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms, process,
                     abandoned)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
            )?,
            // The first end stands: a later one, or one of other content, changes nothing.
            close_command: connection.prepare(
                "INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms,
                     closed_at_ms, result, stdout, stderr)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT DO UPDATE SET closed_at_ms = excluded.closed_at_ms,
                     result = excluded.result, stdout = excluded.stdout, stderr = excluded.stderr,
                     process = NULL, abandoned = NULL
                 WHERE result IS NULL AND digest = excluded.digest",
            )?,
            find_event: connection.prepare(
                "SELECT seq FROM flow_events
                 WHERE event_id = ?1 AND event_type = ?2 AND payload = ?3",
            )?,
            connection,
            signed: Vec::new(),
        })
    }

    pub(super) fn begin(&mut self) -> rusqlite::Result<Head> {
        self.signed.clear();
        self.take_turn()?;
        self.head.query_row([CHAIN], |row| {
            Ok(Head {
                seq: row.get::<_, i64>(0)?.cast_unsigned(),
                hash: Hash::from_bytes(row.get(1)?),
                checkpointed: row.get::<_, i64>(2)?.cast_unsigned(),
            })
        })
    }

    /// Waits for the right to write. SQLite itself would sleep for milliseconds, several times as
    /// long as another process needs for its commit.
    fn take_turn(&mut self) -> rusqlite::Result<()> {
        const PAUSE_MIN: Duration = Duration::from_micros(50);
        const PAUSE_MAX: Duration = Duration::from_millis(5);
        let patience = self.site.options.busy_timeout;
        let deadline = Instant::now() + patience;
        let mut pause = PAUSE_MIN;
        self.connection.busy_timeout(Duration::ZERO)?;
        let turn = loop {
            match self.begin.execute([]) {
                Err(error) if trouble::is_busy(&error) && Instant::now() < deadline => {
                    thread::sleep(pause);
                    pause = (pause * 5 / 4).min(PAUSE_MAX);
                }
                turn => break turn,
            }
        };
        self.connection.busy_timeout(patience)?;
        turn.map(|_| ())
    }

    /// Ends the transaction; gives the checkpoints that are now part of the record.
    pub(super) fn commit(&mut self, head: &Head) -> rusqlite::Result<Vec<Checkpoint>> {
        self.move_head.execute(params![
            CHAIN,
            head.seq.cast_signed(),
            head.hash.as_bytes(),
            head.checkpointed.cast_signed()
        ])?;
        self.commit.execute([])?;
        Ok(std::mem::take(&mut self.signed))
    }

    pub(super) fn roll_back(&mut self) {
        self.signed.clear();
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.rollback.execute([]) {
            tracing::warn!(%error, "rollback failed");
        }
    }

    /// Links one event behind the head.
    pub(super) fn append(
        &mut self,
        head: &mut Head,
        draft: &Draft,
        timestamp: &str,
    ) -> rusqlite::Result<()> {
        let columns = Columns {
            chain: CHAIN,
            event_id: draft.event_id.as_str(),
            timestamp,
            correlation_id: draft.correlation_id.as_str(),
            actor_type: draft.actor.kind.as_str(),
            actor_id: &draft.actor.id,
            event_type: draft.event_type.as_str(),
            approval_state: draft.approval_state.map(|state| state.as_str()),
            payload: draft.payload(),
        };
        let seq = head.seq + 1;
        let hash = link(&head.hash, seq, &columns);
        self.insert_event.execute(params![
            columns.chain,
            seq.cast_signed(),
            columns.event_id,
            columns.timestamp,
            columns.correlation_id,
            columns.actor_type,
            columns.actor_id,
            columns.event_type,
            columns.approval_state,
            columns.payload,
            head.hash.as_bytes(),
            hash.as_bytes(),
        ])?;
        head.seq = seq;
        head.hash = hash;
        if seq - head.checkpointed >= checkpoint::EVERY_ROWS {
            self.checkpoint(head, Kind::Periodic)?;
        }
        Ok(())
    }

    /// Signs the chain as it stands at the head.
    pub(super) fn checkpoint(&mut self, head: &mut Head, kind: Kind) -> rusqlite::Result<()> {
        self.sign_at(head.seq, head.hash, kind)?;
        head.checkpointed = head.seq;
        Ok(())
    }

    pub(super) fn sign_at(&mut self, seq: u64, hash: Hash, kind: Kind) -> rusqlite::Result<()> {
        let moment = self.site.options.clock.now().to_string();
        let signed = Checkpoint::sign(&self.site.key, kind, CHAIN, seq, hash, moment);
        self.insert_checkpoint.execute(params![
            signed.chain,
            signed.seq.cast_signed(),
            signed.hash.as_bytes(),
            signed.timestamp,
            signed.kind.as_str(),
            signed.public_key,
            signed.signature,
        ])?;
        self.signed.push(signed);
        Ok(())
    }

    /// False when the owner has used the request id before.
    pub(super) fn open_command(&mut self, open: &OpenCommand) -> rusqlite::Result<bool> {
        let rows = self.open_command.execute(params![
            open.owner.as_str(),
            open.request_id.as_str(),
            open.digest,
            open.correlation_id.as_str(),
            open.opened_at.as_millis(),
            self.site.process.as_str(),
            open.abandoned,
        ])?;
        Ok(rows == 1)
    }

    /// False when the command had ended before.
    pub(super) fn close_command(&mut self, close: &CloseCommand) -> rusqlite::Result<bool> {
        let rows = self.close_command.execute(params![
            close.owner.as_str(),
            close.request_id.as_str(),
            close.digest,
            close.correlation_id.as_str(),
            close.opened_at.as_millis(),
            self.site.options.clock.now().as_millis(),
            close.result,
            close.stdout,
            close.stderr,
        ])?;
        Ok(rows == 1)
    }

    /// The place of an event that is already in the record, word for word.
    pub(super) fn find(&mut self, draft: &Draft) -> rusqlite::Result<Option<u64>> {
        let key = params![
            draft.event_id.as_str(),
            draft.event_type.as_str(),
            draft.payload()
        ];
        let seq = self
            .find_event
            .query_row(key, |row| row.get::<_, i64>(0))
            .optional()?;
        Ok(seq.map(i64::cast_unsigned))
    }
}
