//! The statements of a writing transaction, prepared once per connection.
//!
//! The chain's head is read inside each transaction and never kept: several processes write to one
//! file. A checkpoint that falls due is signed in the same transaction, so two processes can neither
//! skip nor repeat one; a signature costs a few microseconds in a thousand rows.

use std::thread;
use std::time::{Duration, Instant};

use countersign_gateway::audit::chain::{Hash, link};
use countersign_gateway::audit::event::Draft;
use countersign_gateway::audit::{CloseCommand, OpenCommand};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, RequestId};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::site::Site;
use super::spans::SPAN_ROWS;
use super::{CHAIN, snapshot, trouble};
use crate::checkpoint::{self, Checkpoint, Kind};
use crate::known::Found;
use crate::rows::events::columns;
use crate::rows::sessions;
use crate::seal::Seal;

/// Where the chain ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) hash: Hash,
    /// Place of the last checkpoint.
    pub(super) checkpointed: u64,
}

/// Statements are prepared once per connection, by its own cache.
pub(super) struct Ledger<'c> {
    site: &'c Site,
    connection: &'c Connection,
    /// Checkpoints of the transaction under way.
    signed: Vec<Checkpoint>,
}

/// Statements that a connection keeps prepared; more than there are below.
pub(super) const STATEMENTS_KEPT: usize = 64;

const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";
const HEAD: &str = "SELECT seq, hash, checkpointed, seal FROM chain_heads WHERE chain = ?1";
const MOVE_HEAD: &str = "UPDATE chain_heads SET seq = ?2, hash = ?3, checkpointed = ?4, seal = ?5, sealed_seq = ?2
     WHERE chain = ?1";
const HASH_AT: &str = "SELECT hash FROM flow_events WHERE seq = ?1";
const INSERT_EVENT: &str = "INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type,
         actor_id, event_type, approval_state, payload, prev_hash, hash)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const INSERT_CHECKPOINT: &str = "INSERT INTO checkpoints (chain, seq, hash, timestamp, kind, public_key, signature)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// What the rows of a span cover, found when its last one is written.
const INSERT_SPAN: &str = "INSERT INTO spans
     SELECT ?1, min(timestamp), max(timestamp) FROM flow_events WHERE seq > ?1 - ?2 AND seq <= ?1";
const HAS_ENDED: &str = "SELECT 1 FROM commands WHERE owner = ?1 AND request_id = ?2";
const OPEN_COMMAND: &str = "INSERT INTO open_commands (owner, request_id, digest, correlation_id, opened_at_ms,
         process, abandoned, session_id, rpc_id, rpc_digest)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";
const OPENED_AS: &str = "SELECT digest, session_id, rpc_id, rpc_digest FROM open_commands
     WHERE owner = ?1 AND request_id = ?2";
const CLOSE_COMMAND: &str = "INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms,
         closed_at_ms, result, stdout, stderr, session_id, rpc_id, rpc_digest)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING";
const WANT_END: &str = "UPDATE open_commands SET end_wanted = 1 WHERE owner = ?1 AND request_id = ?2";
const NO_LONGER_OPEN: &str = "DELETE FROM open_commands WHERE owner = ?1 AND request_id = ?2";
const IS_WRITTEN: &str = "SELECT 1 FROM flow_events WHERE correlation_id = ?1 AND event_id = ?2";
const FIND_EVENT: &str = "SELECT seq FROM flow_events
     WHERE correlation_id = ?1 AND event_id = ?2 AND event_type = ?3 AND payload = ?4";

/// What to do while another process writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Wait, as long as the options allow.
    Wait,
    /// Wait so long.
    Within(Duration),
    /// Give up at once.
    NowOrNever,
}

impl<'c> Ledger<'c> {
    pub(super) fn over(connection: &'c Connection, site: &'c Site) -> Self {
        Self {
            site,
            connection,
            signed: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.site.options.clock.now()
    }

    /// Who writes here.
    pub(super) fn process(&self) -> &'c str {
        self.site.process.as_str()
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    pub(super) fn statement(&self, text: &'static str) -> rusqlite::Result<CachedStatement<'c>> {
        self.connection.prepare_cached(text)
    }

    pub(super) fn begin(&mut self, turn: Turn) -> rusqlite::Result<Head> {
        self.signed.clear();
        self.take_turn(turn)?;
        let (head, seal) = self.statement(HEAD)?.query_row([CHAIN], |row| {
            let head = Head {
                seq: row.get::<_, i64>(0)?.cast_unsigned(),
                hash: Hash::from_bytes(row.get(1)?),
                checkpointed: row.get::<_, i64>(2)?.cast_unsigned(),
            };
            Ok((head, row.get::<_, Option<Seal>>(3)?))
        })?;
        // Whoever goes on behind rows of somebody else would seal and sign those too.
        let is_ours = |seal| self.site.sealer.is_sealed(CHAIN, head.seq, &head.hash, &seal);
        if !seal.is_some_and(is_ours) {
            return Err(trouble::unsealed());
        }
        self.prove_continued(&head)?;
        Ok(head)
    }

    /// What this process wrote was acknowledged; an older copy does not have it.
    fn prove_continued(&self, head: &Head) -> rusqlite::Result<()> {
        let goes_on = match self.site.known.find(head.seq, head.hash) {
            Found::Continued => true,
            Found::SetBack => false,
            Found::If(seq, hash) => {
                let row = self
                    .statement(HASH_AT)?
                    .query_row([seq.cast_signed()], |row| row.get(0));
                match row.optional()?.map(Hash::from_bytes) {
                    Some(found) => found == hash,
                    None => seq <= snapshot::pruned(self.connection, &self.site.key)?,
                }
            }
        };
        if !goes_on {
            return Err(trouble::set_back());
        }
        self.site.known.is_now(head.seq, head.hash);
        Ok(())
    }

    /// Waits for the right to write. SQLite itself would sleep for milliseconds, several times as
    /// long as another process needs for its commit.
    fn take_turn(&mut self, turn: Turn) -> rusqlite::Result<()> {
        const PAUSE_MIN: Duration = Duration::from_micros(50);
        const PAUSE_MAX: Duration = Duration::from_millis(5);
        let patience = self.site.options.busy_timeout;
        let deadline = match turn {
            Turn::Wait => Instant::now() + patience,
            Turn::Within(patience) => Instant::now() + patience,
            Turn::NowOrNever => Instant::now(),
        };
        let mut pause = PAUSE_MIN;
        let mut begin = self.statement(BEGIN)?;
        self.connection.busy_timeout(Duration::ZERO)?;
        let turn = loop {
            match begin.execute([]) {
                // Asked each time: the end of the process may be called while this waits.
                Err(error) if trouble::is_busy(&error) && Instant::now() < self.site.health.bounded(deadline) => {
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
        self.statement(MOVE_HEAD)?.execute(params![
            CHAIN,
            head.seq.cast_signed(),
            head.hash.as_bytes(),
            head.checkpointed.cast_signed(),
            self.site.sealer.seal(CHAIN, head.seq, &head.hash),
        ])?;
        self.statement(COMMIT)?.execute([])?;
        self.site.known.is_now(head.seq, head.hash);
        // Whoever follows the record looks again.
        self.site.written.send_if_modified(|written| {
            // Several connections write, and the later one may be told first.
            let is_further = head.seq > *written;
            *written = head.seq.max(*written);
            is_further
        });
        Ok(std::mem::take(&mut self.signed))
    }

    pub(super) fn roll_back(&mut self) {
        self.signed.clear();
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.statement(ROLLBACK).and_then(|mut rollback| rollback.execute([])) {
            tracing::warn!(%error, "rollback failed");
        }
    }

    /// Links one event behind the head.
    pub(super) fn append(&mut self, head: &mut Head, draft: &Draft, timestamp: &str) -> rusqlite::Result<()> {
        let columns = columns(draft, CHAIN, timestamp);
        let seq = head.seq + 1;
        let hash = link(&head.hash, seq, &columns);
        self.statement(INSERT_EVENT)?.execute(params![
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
        if seq.is_multiple_of(SPAN_ROWS) {
            self.statement(INSERT_SPAN)?
                .execute([seq.cast_signed(), SPAN_ROWS.cast_signed()])?;
        }
        if checkpoint::is_due(head.checkpointed, seq) {
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
        self.statement(INSERT_CHECKPOINT)?.execute(params![
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
        let key = [open.owner.as_str(), open.request_id.as_str()];
        if self.statement(HAS_ENDED)?.exists(key)? {
            return Ok(false);
        }
        let (session, rpc_id, rpc_digest) = sessions::asked(open.asked.as_ref());
        let rows = self.statement(OPEN_COMMAND)?.execute(params![
            key[0],
            key[1],
            open.digest,
            open.correlation_id.as_str(),
            open.opened_at.as_millis(),
            self.site.process.as_str(),
            open.abandoned,
            session,
            rpc_id,
            rpc_digest,
        ])?;
        Ok(rows == 1)
    }

    /// The process that works on a command looks for this.
    pub(super) fn want_end(&self, owner: &CredentialId, request_id: &RequestId) -> rusqlite::Result<()> {
        self.statement(WANT_END)?
            .execute([owner.as_str(), request_id.as_str()])?;
        Ok(())
    }

    /// False when the command had ended before: the first end stands. One of other content changes nothing
    /// either.
    pub(super) fn close_command(&mut self, close: &CloseCommand) -> rusqlite::Result<bool> {
        let key = [close.owner.as_str(), close.request_id.as_str()];
        let opened = self
            .statement(OPENED_AS)?
            .query_row(key, |row| Ok((row.get::<_, String>(0)?, sessions::read_asked(row, 1)?)))
            .optional()?;
        let asked = match opened {
            Some((digest, _)) if digest != close.digest => return Ok(false),
            Some((_, asked)) => asked,
            None => None,
        };
        // Whoever goes on with a command that waited does not know the request that first asked for it.
        let (session, rpc_id, rpc_digest) = sessions::asked(close.asked.as_ref().or(asked.as_ref()));
        let rows = self.statement(CLOSE_COMMAND)?.execute(params![
            key[0],
            key[1],
            close.digest,
            close.correlation_id.as_str(),
            close.opened_at.as_millis(),
            self.site.options.clock.now().as_millis(),
            close.result,
            close.stdout,
            close.stderr,
            session,
            rpc_id,
            rpc_digest,
        ])?;
        if rows == 0 {
            return Ok(false);
        }
        self.statement(NO_LONGER_OPEN)?.execute(key)?;
        Ok(true)
    }

    /// Whether an event of this call with this id is in the record.
    pub(super) fn is_written(&mut self, draft: &Draft) -> rusqlite::Result<bool> {
        self.statement(IS_WRITTEN)?
            .exists([draft.correlation_id.as_str(), draft.event_id.as_str()])
    }

    /// The place of an event that is already in the record, word for word.
    pub(super) fn find(&mut self, draft: &Draft) -> rusqlite::Result<Option<u64>> {
        let key = params![
            draft.correlation_id.as_str(),
            draft.event_id.as_str(),
            draft.event_type.as_str(),
            draft.payload()
        ];
        let seq = self
            .statement(FIND_EVENT)?
            .query_row(key, |row| row.get::<_, i64>(0))
            .optional()?;
        Ok(seq.map(i64::cast_unsigned))
    }
}

#[cfg(test)]
mod tests {
    use super::super::migrations;
    use super::*;

    #[test]
    fn nothing_that_every_command_asks_goes_through_a_table() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrations::apply(&mut connection).unwrap();
        let asked = [
            HEAD,
            MOVE_HEAD,
            INSERT_EVENT,
            INSERT_SPAN,
            HAS_ENDED,
            OPEN_COMMAND,
            OPENED_AS,
            CLOSE_COMMAND,
            NO_LONGER_OPEN,
            IS_WRITTEN,
            FIND_EVENT,
        ];
        for statement in asked {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let values = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3));
            let steps: Vec<_> = steps.unwrap().map(Result::unwrap).collect();
            assert!(
                steps.iter().all(|step| step.starts_with("SEARCH")),
                "{statement}: {steps:?}"
            );
        }
    }
}
