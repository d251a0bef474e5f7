//! Retention: old rows leave behind a signed checkpoint, so that the rest still verifies.
//!
//! A prune must be signed by whoever owns the chain, so each node prunes the chains of its own key. Everything else that
//! is old may be deleted by any node. The checkpoint comes first and is durable before the first row goes; deleting then
//! proceeds in small transactions. A prune that was cut short is finished by the next one.

use countersign_gateway::audit::chain::Hash;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::IdSource;

use super::ledger::Ledger;
use super::link::{Link, Values};
use super::trouble::Trouble;
use super::{PgStore, snapshot, verify, writer};
use crate::checkpoint::Kind;
use crate::sqlite::prune::{DAY_MILLIS, LEFT_SESSIONS, PruneError, Pruned, note};

/// Rows deleted in one transaction.
const DELETE_ROWS: i64 = 2_000;
/// The first row of a chain that stays would have gone by its time.
const NEXT_IS_OLD: &str = "SELECT 1 FROM
     (SELECT timestamp FROM flow_events WHERE chain = $1 AND seq > $2 ORDER BY seq LIMIT 1) AS next WHERE timestamp < $3";
/// Old commands of which no chain of this key tells any more.
const UNTOLD_COMMANDS: &str = "closed_at_ms < $1 AND NOT EXISTS
     (SELECT 1 FROM flow_events JOIN chain_heads ON chain_heads.chain = flow_events.chain
          WHERE flow_events.correlation_id = commands.correlation_id AND chain_heads.public_key = $2)";

impl PgStore {
    /// Deletes what is older than `before`, except what an open command still needs.
    pub fn prune(&self, before: Timestamp, ids: &IdSource) -> Result<Pruned, PruneError> {
        let unsigned = |source: Trouble| PruneError::Checkpoint { source: source.into() };
        let undeleted = |source: Trouble| PruneError::Delete { source: source.into() };
        let link = self.site.connect().map_err(unsigned)?;
        let mut pruned = Pruned {
            up_to: 0,
            rows: 0,
            commands: 0,
            is_held: false,
        };
        let own = "SELECT chain FROM chain_heads WHERE public_key = $1 ORDER BY chain";
        let chains = link
            .all(own, &[&self.site.key.public()], |row| Ok(row.try_get::<_, String>(0)?))
            .map_err(unsigned)?;
        let mut is_noted = false;
        for chain in chains {
            let (up_to, noted) = self.prune_chain(&link, &chain, before, ids, &mut pruned.is_held)?;
            is_noted |= noted;
            pruned.rows += delete_rows(&link, &chain, up_to).map_err(undeleted)?;
            if chain == self.site.node.name() {
                pruned.up_to = up_to;
            }
        }
        // What is kept of commands stands as long as the events that tell of it, in chains that are this node's to prune; of others
        // it goes by its own time. The record tells of it first, or their rows would be missed.
        let own = self.site.key.public();
        let old = format!("SELECT 1 FROM commands WHERE {UNTOLD_COMMANDS} LIMIT 1");
        if !is_noted && link.exists(&old, &[&before.as_millis(), &own]).map_err(unsigned)? {
            self.note_prune(&link, before, ids).map_err(unsigned)?;
        }
        pruned.commands = delete_commands(&link, before, own).map_err(undeleted)?;
        delete_others(&link, before).map_err(undeleted)?;
        Ok(pruned)
    }

    /// The daily retention job.
    pub fn prune_older_than(&self, days: u32, now: Timestamp, ids: &IdSource) -> Result<Pruned, PruneError> {
        let before = now.as_millis().saturating_sub(i64::from(days) * DAY_MILLIS);
        self.prune(Timestamp::from_millis(before), ids)
    }

    /// Says that what is older goes, though no row of the chain does.
    fn note_prune(&self, link: &Link, before: Timestamp, ids: &IdSource) -> Result<(), Trouble> {
        let pruned = snapshot::pruned(link, self.site.node.name(), self.site.key.public())?;
        let mut ledger = Ledger::begin(link, &self.site)?;
        let note = note(&self.site.options.clock.now(), ids, before, pruned);
        ledger.append(&note, &note.timestamp.to_string())?;
        let signed = writer::commit(ledger)?;
        self.site.witness.tell(signed);
        Ok(())
    }

    /// Gives the place up to which rows of a chain may go, and whether the record now tells of this prune.
    fn prune_chain(
        &self,
        link: &Link,
        chain: &str,
        before: Timestamp,
        ids: &IdSource,
        is_held: &mut bool,
    ) -> Result<(u64, bool), PruneError> {
        let unsigned = |source: Trouble| PruneError::Checkpoint { source: source.into() };
        // Before the chain is in hand: whoever wants to add to it would wait for as long as this takes. Rows do not
        // grow younger, and those of commands that are opened later stand behind them.
        let pruned = snapshot::pruned(link, chain, self.site.key.public()).map_err(unsigned)?;
        let first_young = first_young_row(link, chain, pruned, before).map_err(unsigned)?;
        let last_old = last_old_row(link, chain, pruned, first_young).map_err(unsigned)?;
        let behind = last_old.unwrap_or(pruned).cast_signed();
        let next: Values<'_> = &[&chain, &behind, &before.to_string()];
        *is_held |= link.exists(NEXT_IS_OLD, next).map_err(unsigned)?;
        let Some(up_to) = last_old else {
            return Ok((pruned, false));
        };
        let proved = verify::prove_old(&self.readers, chain, up_to, before);
        let hash = proved.map_err(|source| PruneError::Unproved { source })?;
        self.sign_prune(link, chain, (up_to, hash), before, ids)
            .map_err(unsigned)
    }

    /// The same of a place that was proved.
    fn sign_prune(
        &self,
        link: &Link,
        chain: &str,
        (up_to, hash): (u64, Hash),
        before: Timestamp,
        ids: &IdSource,
    ) -> Result<(u64, bool), Trouble> {
        let mut ledger = Ledger::begin(link, &self.site)?;
        let pruned = snapshot::pruned(link, chain, self.site.key.public())?;
        if pruned >= up_to {
            ledger.roll_back();
            return Ok((pruned, false));
        }
        let note = note(&self.site.options.clock.now(), ids, before, up_to);
        ledger.append(&note, &note.timestamp.to_string())?;
        ledger.sign_at(chain, up_to, hash, Kind::Prune)?;
        if chain == self.site.node.name() {
            ledger.is_checkpointed(up_to);
        }
        let old = "DELETE FROM checkpoints WHERE chain = $1 AND seq < $2";
        link.execute(old, &[&chain, &up_to.cast_signed()])?;
        let signed = writer::commit(ledger)?;
        self.site.witness.tell(signed);
        Ok((up_to, true))
    }
}

/// The place of the first row that is not old; behind all that there are where each is.
fn first_young_row(link: &Link, chain: &str, pruned: u64, before: Timestamp) -> Result<i64, Trouble> {
    // First, so that rows which come meanwhile are behind it.
    let end = link.query_one("SELECT seq FROM chain_heads WHERE chain = $1", &[&chain])?;
    let young = link.first(
        "SELECT seq FROM flow_events WHERE chain = $1 AND seq > $2 AND timestamp >= $3 ORDER BY seq LIMIT 1",
        &[&chain, &pruned.cast_signed(), &before.to_string()],
        |row| Ok(row.try_get::<_, i64>(0)?),
    )?;
    match young {
        Some(young) => Ok(young),
        None => Ok(end.try_get::<_, i64>(0)? + 1),
    }
}

/// The last row of those at the start that are all old, as far as they say, and that no open command needs.
fn last_old_row(link: &Link, chain: &str, pruned: u64, first_young: i64) -> Result<Option<u64>, Trouble> {
    let found = link.first(
        "SELECT seq FROM flow_events WHERE chain = $1 AND seq > $2 AND seq < least($3,
                 coalesce((SELECT min(seq) FROM flow_events
                           WHERE chain = $1 AND seq > $2 AND correlation_id IN
                               (SELECT correlation_id FROM open_commands
                                UNION ALL SELECT correlation_id FROM open_acts)), $3))
             ORDER BY seq DESC LIMIT 1",
        &[&chain, &pruned.cast_signed(), &first_young],
        |row| Ok(row.try_get::<_, i64>(0)?.cast_unsigned()),
    )?;
    Ok(found)
}

fn delete_rows(link: &Link, chain: &str, up_to: u64) -> Result<u64, Trouble> {
    in_batches(
        link,
        "DELETE FROM flow_events WHERE chain = $1 AND seq IN
             (SELECT seq FROM flow_events WHERE chain = $1 AND seq <= $2 ORDER BY seq LIMIT $3)",
        &[&chain, &up_to.cast_signed(), &DELETE_ROWS],
    )
}

/// Does again what deletes at most [`DELETE_ROWS`], as long as there is something to delete: no statement takes longer
/// than the database lets one, however much is old at once. Gives the number of rows.
fn in_batches(link: &Link, delete: &str, values: Values<'_>) -> Result<u64, Trouble> {
    let mut rows = 0;
    loop {
        let deleted = link.execute(delete, values)?;
        rows += deleted;
        if deleted < DELETE_ROWS.cast_unsigned() {
            return Ok(rows);
        }
    }
}

fn delete_commands(link: &Link, before: Timestamp, own: &str) -> Result<u64, Trouble> {
    let delete = format!(
        "DELETE FROM commands WHERE ctid = ANY
             (ARRAY(SELECT ctid FROM commands WHERE {UNTOLD_COMMANDS} ORDER BY closed_at_ms LIMIT $3))"
    );
    in_batches(link, &delete, &[&before.as_millis(), &own, &DELETE_ROWS])
}

fn delete_others(link: &Link, before: Timestamp) -> Result<(), Trouble> {
    let before = before.as_millis();
    link.execute(
        "DELETE FROM mcp_sessions WHERE state IN ('closed', 'expired') AND last_activity_at_ms < $1",
        &[&before],
    )?;
    // A settled question is needed no longer than the command it was about.
    link.execute(
        "DELETE FROM approvals WHERE resolved_at_ms < $1 AND NOT EXISTS
             (SELECT 1 FROM open_commands WHERE open_commands.owner = approvals.owner
                 AND open_commands.request_id = approvals.request_id)
             AND NOT EXISTS (SELECT 1 FROM open_acts WHERE open_acts.approval_id = approvals.approval_id)",
        &[&before],
    )?;
    prune_jobs(link, before)?;
    prune_runs(link, before)?;
    for old in [
        // An idempotency key is remembered as long as what was done under it.
        "DELETE FROM secret_syncs WHERE state IN ('applied', 'given-up') AND updated_at_ms < $1",
        "DELETE FROM delegated_executions WHERE ended_at_ms < $1",
        "DELETE FROM asked_acts WHERE closed_at_ms < $1",
        "DELETE FROM webhook_deliveries WHERE state <> 'pending' AND received_at_ms < $1",
    ] {
        link.execute(old, &[&before])?;
    }
    link.execute(
        "DELETE FROM run_messages WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = run_messages.run_id)",
        &[],
    )?;
    Ok(())
}

/// A run that has ended takes along what is kept of its agent and what it alone is linked with.
fn prune_runs(link: &Link, before: i64) -> Result<(), Trouble> {
    link.execute(
        "DELETE FROM runs WHERE finished_at_ms < $1 AND NOT EXISTS
             (SELECT 1 FROM jobs WHERE jobs.run_id = runs.run_id AND jobs.ended_at_ms IS NULL)",
        &[&before],
    )?;
    for of_nobody in [
        "DELETE FROM agent_sessions WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = agent_sessions.run_id)",
        "DELETE FROM links
             WHERE source_type = 'run' AND NOT EXISTS (SELECT 1 FROM runs WHERE run_id = source_id COLLATE \"C\")
                 OR target_type = 'run' AND NOT EXISTS (SELECT 1 FROM runs WHERE run_id = target_id COLLATE \"C\")",
    ] {
        link.execute(of_nobody, &[])?;
    }
    link.execute(
        "DELETE FROM links WHERE created_at_ms < $1 AND source_type <> 'run' AND target_type <> 'run'
             AND NOT EXISTS (SELECT 1 FROM links AS of_run WHERE of_run.source_type = 'run'
                 AND of_run.target_type = links.source_type AND of_run.target_id = links.source_id)",
        &[&before],
    )?;
    Ok(())
}

/// A session goes with the last of its jobs, and takes what its agent said along. What was used stays.
fn prune_jobs(link: &Link, before: i64) -> Result<(), Trouble> {
    link.execute(
        "DELETE FROM job_sessions WHERE filed_seq = last_seq AND NOT EXISTS
             (SELECT 1 FROM jobs WHERE jobs.session_id = job_sessions.session_id
                 AND (ended_at_ms IS NULL OR ended_at_ms >= $1))",
        &[&before],
    )?;
    let without_session = "NOT EXISTS (SELECT 1 FROM job_sessions WHERE job_sessions.session_id =";
    link.execute(
        &format!("DELETE FROM jobs WHERE ended_at_ms < $1 AND {without_session} jobs.session_id)"),
        &[&before],
    )?;
    for session in link.all(LEFT_SESSIONS, &[], |row| Ok(row.try_get::<_, String>(0)?))? {
        in_batches(
            link,
            "DELETE FROM job_events WHERE session_id = $1 AND seq IN
                 (SELECT seq FROM job_events WHERE session_id = $1 ORDER BY seq LIMIT $2)",
            &[&session, &DELETE_ROWS],
        )?;
    }
    link.execute(
        "DELETE FROM job_notes WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.job_id = job_notes.job_id)",
        &[],
    )?;
    Ok(())
}
