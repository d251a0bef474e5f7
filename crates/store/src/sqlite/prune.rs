//! Retention: old rows leave behind a signed checkpoint, so that the rest still verifies.
//!
//! The checkpoint comes first and is durable before the first row goes; deleting then proceeds in
//! small transactions between the writers'. A prune that was cut short is finished by the next one.
//!
//! What goes is overwritten: who prunes because something should not have been kept expects it to be gone from the files.

use countersign_gateway::audit::chain::Hash;
use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::IdSource;
use rusqlite::{Connection, OptionalExtension};
use serde_json::json;

use super::ledger::{Ledger, Turn};
use super::log::{Log, Queue};
use super::verify::{self, VerifyError};
use super::{SqliteStore, snapshot, spans};
use crate::Trouble;
use crate::checkpoint::Kind;

/// Rows deleted in one transaction: others write in between.
const DELETE_ROWS: u64 = 2_000;
/// Bytes deleted in one transaction, all of which are overwritten; one row may have more.
const DELETE_BYTES: i64 = 4 << 20;
/// Pages that writers have freed, overwritten before others are added to them. There are few, but for those that earlier prunes
/// overwrote.
const FREE_PAGES_MAX: i64 = 1_024;
pub(crate) const DAY_MILLIS: i64 = 86_400_000;

/// The sessions that are gone but for what their agents said. From one session to the next by the key of the table: agents
/// say far more than there are sessions.
pub(crate) const LEFT_SESSIONS: &str = "WITH RECURSIVE said(id) AS (
        SELECT min(session_id) FROM job_events
        UNION ALL
        SELECT (SELECT min(session_id) FROM job_events WHERE session_id > said.id) FROM said WHERE said.id IS NOT NULL)
    SELECT id FROM said
        WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM job_sessions WHERE job_sessions.session_id = said.id)";

/// The first row that stays would have gone by its time.
const NEXT_IS_OLD: &str = "SELECT 1 FROM (SELECT timestamp FROM flow_events WHERE seq > ?1 ORDER BY seq LIMIT 1)
     WHERE timestamp < ?2";

/// What a prune did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pruned {
    /// Place of the last row that is gone; 0 if none ever was.
    pub up_to: u64,
    pub rows: u64,
    pub commands: u64,
    /// Old rows stay, since a command or an act that is open needs them.
    pub is_held: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    #[error("nothing is removed from a record that is not sound, {source}; `audit verify` tells more")]
    Unproved { source: VerifyError },
    #[error("the prune checkpoint cannot be written: {source}")]
    Checkpoint { source: Trouble },
    #[error("old rows cannot be deleted: {source}")]
    Delete { source: Trouble },
}

impl SqliteStore {
    /// Deletes what is older than `before`, except what an open command still needs.
    pub fn prune(&self, before: Timestamp, ids: &IdSource) -> Result<Pruned, PruneError> {
        let connection = self
            .site
            .connect()
            .map_err(|source| PruneError::Checkpoint { source: source.into() })?;
        let unsigned = |source: rusqlite::Error| PruneError::Checkpoint { source: source.into() };
        let pruned = snapshot::pruned(&connection, &self.site.key).map_err(unsigned)?;
        let last_old = last_old_row(&connection, pruned, before).map_err(unsigned)?;
        let next = (last_old.unwrap_or(pruned).cast_signed(), before.to_string());
        let is_held = connection.prepare(NEXT_IS_OLD).and_then(|mut it| it.exists(next));
        let is_held = is_held.map_err(unsigned)?;
        let up_to = match last_old {
            Some(up_to) => {
                let proved = verify::prove_old(&self.readers, &self.site, up_to, before);
                let hash = proved.map_err(|source| PruneError::Unproved { source })?;
                self.sign_prune(&connection, (up_to, hash), before, ids)
                    .map_err(unsigned)?
            }
            None => pruned,
        };
        let erased = self.erase(&connection, up_to, before);
        let erased = erased.map_err(|source| PruneError::Delete { source: source.into() })?;
        Ok(Pruned { is_held, ..erased })
    }

    /// Deletes with zeros in the place of what was there, in the database and in its log.
    fn erase(&self, connection: &Connection, up_to: u64, before: Timestamp) -> rusqlite::Result<Pruned> {
        let mut log = Log::new(&self.site);
        let changes = connection.total_changes();
        connection.pragma_update(None, "secure_delete", true)?;
        let pruned = delete(connection, up_to, before, &mut || {
            log.upkeep(connection, Queue::Waiting);
        })?;
        if connection.total_changes() > changes {
            log.forget(connection)?;
        }
        Ok(pruned)
    }

    /// The daily retention job.
    pub fn prune_older_than(&self, days: u32, now: Timestamp, ids: &IdSource) -> Result<Pruned, PruneError> {
        let before = now.as_millis().saturating_sub(i64::from(days) * DAY_MILLIS);
        self.prune(Timestamp::from_millis(before), ids)
    }

    /// Gives the place up to which rows may go: the one that was proved, or what another prune has signed meanwhile.
    fn sign_prune(
        &self,
        connection: &Connection,
        (up_to, hash): (u64, Hash),
        before: Timestamp,
        ids: &IdSource,
    ) -> rusqlite::Result<u64> {
        let mut ledger = Ledger::over(connection, &self.site);
        let mut work = || {
            let mut head = ledger.begin(Turn::Wait)?;
            let pruned = snapshot::pruned(connection, &self.site.key)?;
            if pruned >= up_to {
                ledger.roll_back();
                return Ok((pruned, Vec::new()));
            }
            let note = note(&self.site.options.clock.now(), ids, before, up_to);
            ledger.append(&mut head, &note, &note.timestamp.to_string())?;
            ledger.sign_at(up_to, hash, Kind::Prune)?;
            head.checkpointed = head.checkpointed.max(up_to);
            connection.execute("DELETE FROM checkpoints WHERE seq < ?1", [up_to.cast_signed()])?;
            Ok((up_to, ledger.commit(&head)?))
        };
        let outcome = work();
        match outcome {
            Ok((up_to, signed)) => {
                self.site.witness.tell(signed);
                Ok(up_to)
            }
            Err(error) => {
                ledger.roll_back();
                Err(error)
            }
        }
    }
}

pub(crate) fn note(now: &Timestamp, ids: &IdSource, before: Timestamp, up_to: u64) -> Draft {
    let payload = json!({"before": before.to_string(), "up_to_seq": up_to});
    let actor = Actor::system("retention");
    let kind = EventType::AuditPruned;
    Draft::new(ids.event(), *now, ids.correlation(), actor, kind, &payload)
}

/// The last row of those at the start that are all old, as far as they say, and that no open command needs. Rows do not grow
/// younger, and those of commands that are opened later stand behind them.
fn last_old_row(connection: &Connection, pruned: u64, before: Timestamp) -> rusqlite::Result<Option<u64>> {
    // Only the stretch in which the first young row must be is gone through.
    let all_old = spans::places(connection, Some(before), None)?.behind;
    let first_kept = connection.query_row(
        "SELECT min(coalesce((SELECT seq FROM flow_events
                              WHERE seq > max(?1, ?4) AND timestamp >= ?2 ORDER BY seq LIMIT 1), ?3),
                    coalesce((SELECT min(seq) FROM flow_events WHERE seq > ?1 AND correlation_id IN
                              (SELECT correlation_id FROM open_commands
                               UNION ALL SELECT correlation_id FROM open_acts)), ?3))",
        (pruned.cast_signed(), before.to_string(), i64::MAX, all_old),
        |row| row.get::<_, i64>(0),
    )?;
    connection
        .query_row(
            "SELECT seq FROM flow_events WHERE seq > ?1 AND seq < ?2 ORDER BY seq DESC LIMIT 1",
            (pruned.cast_signed(), first_kept),
            |row| Ok(row.get::<_, i64>(0)?.cast_unsigned()),
        )
        .optional()
}

/// `go_on` is called between transactions.
fn delete(connection: &Connection, up_to: u64, before: Timestamp, go_on: &mut dyn FnMut()) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned {
        up_to,
        rows: 0,
        commands: 0,
        is_held: false,
    };
    while let Some(last) = next_events(connection, up_to)? {
        if pruned.rows == 0 {
            overwrite_free_pages(connection)?;
        }
        pruned.rows += connection.execute("DELETE FROM flow_events WHERE seq <= ?1", [last])? as u64;
        go_on();
    }
    connection.execute("DELETE FROM spans WHERE last_seq <= ?1", [up_to.cast_signed()])?;
    pruned.commands = delete_commands(connection, before, go_on)?;
    connection.execute(
        "DELETE FROM mcp_sessions WHERE state IN ('closed', 'expired') AND last_activity_at_ms < ?1",
        [before.as_millis()],
    )?;
    // A settled question is needed no longer than the command it was about.
    connection.execute(
        "DELETE FROM approvals WHERE resolved_at_ms < ?1 AND NOT EXISTS
             (SELECT 1 FROM open_commands WHERE open_commands.owner = approvals.owner
                 AND open_commands.request_id = approvals.request_id)
             AND approval_id NOT IN (SELECT approval_id FROM open_acts WHERE approval_id IS NOT NULL)",
        [before.as_millis()],
    )?;
    // An idempotency key is remembered as long as what was done under it.
    connection.execute(
        "DELETE FROM secret_syncs WHERE state IN ('applied', 'given-up') AND updated_at_ms < ?1",
        [before.as_millis()],
    )?;
    connection.execute(
        "DELETE FROM delegated_executions WHERE ended_at_ms < ?1",
        [before.as_millis()],
    )?;
    connection.execute("DELETE FROM asked_acts WHERE closed_at_ms < ?1", [before.as_millis()])?;
    prune_jobs(connection, before)?;
    prune_runs(connection, before)?;
    connection.execute(
        "DELETE FROM webhook_deliveries WHERE state <> 'pending' AND received_at_ms < ?1",
        [before.as_millis()],
    )?;
    connection.execute(
        "DELETE FROM run_messages WHERE run_id NOT IN (SELECT run_id FROM runs)",
        [],
    )?;
    Ok(pruned)
}

/// What writers deleted on their way, open commands above all, lies in pages that nothing is in any more. They are taken up
/// by zeros and given back.
fn overwrite_free_pages(connection: &Connection) -> rusqlite::Result<()> {
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    // One for the table itself, and of each other one all but the number of the next.
    let bytes = (free.min(FREE_PAGES_MAX) - 1) * (page - 4);
    if bytes <= 0 {
        return Ok(());
    }
    let zeros = connection.unchecked_transaction()?;
    zeros.execute_batch("CREATE TABLE zeros (zeros BLOB NOT NULL) STRICT")?;
    zeros.execute("INSERT INTO zeros VALUES (zeroblob(?1))", [bytes])?;
    zeros.execute_batch("DROP TABLE zeros")?;
    zeros.commit()
}

/// The last of the events that go next.
fn next_events(connection: &Connection, up_to: u64) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT seq, octet_length(payload) FROM flow_events WHERE seq <= ?1 ORDER BY seq LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([up_to.cast_signed(), DELETE_ROWS.cast_signed()])?;
    let (mut last, mut bytes) = (None, 0);
    while let Some(row) = rows.next()?
        && bytes < DELETE_BYTES
    {
        last = Some(row.get(0)?);
        bytes += row.get::<_, i64>(1)?;
    }
    Ok(last)
}

/// Commands stand in the order of their ends, but for clocks that were set: they are gone through from the start, a few
/// at a time, as far as there are old ones. What is kept of a command stands as long as the events that tell of it.
fn delete_commands(connection: &Connection, before: Timestamp, go_on: &mut dyn FnMut()) -> rusqlite::Result<u64> {
    let mut deleted = 0;
    let mut behind = i64::MIN;
    while let Some(last) = next_commands(connection, behind, before)? {
        deleted += connection.execute(
            "DELETE FROM commands WHERE rowid > ?1 AND rowid <= ?2 AND closed_at_ms < ?3
                 AND NOT EXISTS (SELECT 1 FROM flow_events WHERE flow_events.correlation_id = commands.correlation_id)",
            [behind, last, before.as_millis()],
        )? as u64;
        behind = last;
        go_on();
    }
    Ok(deleted)
}

/// The last of the commands to look at next; none where none of them is old.
fn next_commands(connection: &Connection, behind: i64, before: Timestamp) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT rowid, closed_at_ms < ?3, octet_length(result) + octet_length(stdout) + octet_length(stderr)
         FROM commands WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([behind, DELETE_ROWS.cast_signed(), before.as_millis()])?;
    let (mut last, mut has_old, mut bytes) = (None, false, 0);
    while let Some(row) = rows.next()?
        && bytes < DELETE_BYTES
    {
        last = Some(row.get(0)?);
        if row.get(1)? {
            has_old = true;
            bytes += row.get::<_, i64>(2)?;
        }
    }
    Ok(last.filter(|_| has_old))
}

/// A run that has ended takes along what is kept of its agent and what it alone is linked with.
fn prune_runs(connection: &Connection, before: Timestamp) -> rusqlite::Result<()> {
    let before = before.as_millis();
    connection.execute(
        "DELETE FROM runs WHERE finished_at_ms < ?1 AND NOT EXISTS
             (SELECT 1 FROM jobs WHERE jobs.run_id = runs.run_id AND jobs.ended_at_ms IS NULL)",
        [before],
    )?;
    let is_gone = "NOT IN (SELECT run_id FROM runs)";
    connection.execute(&format!("DELETE FROM agent_sessions WHERE run_id {is_gone}"), [])?;
    connection.execute(
        &format!(
            "DELETE FROM links WHERE source_type = 'run' AND source_id {is_gone}
                 OR target_type = 'run' AND target_id {is_gone}"
        ),
        [],
    )?;
    connection.execute(
        "DELETE FROM links WHERE created_at_ms < ?1 AND source_type <> 'run' AND target_type <> 'run'
             AND NOT EXISTS (SELECT 1 FROM links AS of_run WHERE of_run.source_type = 'run'
                 AND of_run.target_type = links.source_type AND of_run.target_id = links.source_id)",
        [before],
    )?;
    Ok(())
}

/// A session goes with the last of its jobs, and takes what its agent said along. What was used stays.
fn prune_jobs(connection: &Connection, before: Timestamp) -> rusqlite::Result<()> {
    let before = before.as_millis();
    connection.execute(
        "DELETE FROM job_sessions WHERE filed_seq = last_seq AND NOT EXISTS
             (SELECT 1 FROM jobs WHERE jobs.session_id = job_sessions.session_id
                 AND (ended_at_ms IS NULL OR ended_at_ms >= ?1))",
        [before],
    )?;
    let without_session = "session_id NOT IN (SELECT session_id FROM job_sessions)";
    connection.execute(
        &format!("DELETE FROM jobs WHERE ended_at_ms < ?1 AND {without_session}"),
        [before],
    )?;
    let mut left = connection.prepare(LEFT_SESSIONS)?;
    let left = left.query_map([], |row| row.get(0))?;
    for session in left.collect::<rusqlite::Result<Vec<String>>>()? {
        delete_said(connection, &session)?;
    }
    connection.execute(
        "DELETE FROM job_notes WHERE job_id NOT IN (SELECT job_id FROM jobs)",
        [],
    )?;
    Ok(())
}

/// What the agent of a session that is gone had said.
fn delete_said(connection: &Connection, session: &str) -> rusqlite::Result<()> {
    loop {
        let rows = connection.execute(
            "DELETE FROM job_events WHERE session_id = ?1 AND seq IN
                 (SELECT seq FROM job_events WHERE session_id = ?1 ORDER BY seq LIMIT ?2)",
            (session, DELETE_ROWS.cast_signed()),
        )? as u64;
        if rows < DELETE_ROWS {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::migrations;
    use super::*;

    #[test]
    fn commands_go_by_the_time_of_their_end_however_many_there_are() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrations::apply(&mut connection).unwrap();
        // In the order of their ends, but for one whose clock was behind.
        let made = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
             INSERT INTO commands (owner, request_id, digest, correlation_id, opened_at_ms, closed_at_ms, result,
                     stdout, stderr)
                 SELECT 'o', i, 'd', i, 0, iif(i = 5500, 1, i), '', x'', x'' FROM n";
        connection.execute(made, []).unwrap();
        let delete = |before| delete_commands(&connection, Timestamp::from_millis(before), &mut || ()).unwrap();
        assert_eq!(delete(0), 0);
        assert_eq!(delete(5_000), 5_000);
        let left: (i64, i64) = connection
            .query_row("SELECT count(*), min(closed_at_ms) FROM commands", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(left, (4_000, 5_000));
    }
}
