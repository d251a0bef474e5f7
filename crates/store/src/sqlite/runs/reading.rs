//! Runs as they are read back.

use std::collections::BTreeSet;
use std::time::Duration;

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, JobId, RunId};
use countersign_gateway::run::keeping::{Link, LinkEnd, LinkKind, LinkType, RunFilter, Runs};
use countersign_gateway::run::lifecycle::{RunStatus, Runtime, TriggerKind, WaitState};
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::{Run, Timer};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use super::super::SqliteStore;
use super::super::readers::Readers;

macro_rules! columns {
    () => {
        "run_id, version, correlation_id, project, repository, agent_key, trigger_kind, trigger_label, runtime, \
         namespace, issue_number, pull_request_number, labels, title, instructions, requested_by, status, wait_state, \
         remaining_ms, clock_since_ms, reported_status, reason, job_id, created_at_ms, updated_at_ms, started_at_ms, \
         finished_at_ms"
    };
}
/// The columns that [`run`] reads, in its order.
pub(in super::super) const COLUMNS: &str = columns!();
pub(in super::super) const FIND: &str = concat!("SELECT ", columns!(), " FROM runs WHERE run_id = ?1");

/// A run as a connection sees it.
pub(in super::super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Run>> {
    connection.prepare_cached(FIND)?.query_row([id], run).optional()
}

impl Readers {
    fn runs(&self, rest: &str, values: impl Params) -> Result<Vec<Run>, RecordError> {
        self.all(
            &format!(concat!("SELECT ", columns!(), " FROM runs {}"), rest),
            values,
            run,
        )
    }
}

impl Runs for SqliteStore {
    fn find_run(&self, id: &RunId) -> Pending<Result<Option<Run>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| readers.first(FIND, [id.as_str()], run))
    }

    fn list_runs(&self, filter: RunFilter) -> Pending<Result<Vec<Run>, RecordError>> {
        self.read(move |readers| {
            let words: Vec<String> = filter
                .statuses
                .iter()
                .map(|status| format!("'{}'", status.as_str()))
                .collect();
            let statuses = if words.is_empty() {
                "1 = 1".to_owned()
            } else {
                format!("status IN ({})", words.join(", "))
            };
            let rest = format!(
                "WHERE {statuses} AND (?1 IS NULL OR repository = ?1) AND (?2 IS NULL OR issue_number = ?2)
                     AND (?3 IS NULL OR pull_request_number = ?3)
                 ORDER BY created_at_ms DESC, rowid DESC LIMIT ?4 OFFSET ?5"
            );
            let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            readers.runs(
                &rest,
                params![
                    filter.repository,
                    filter.issue_number.map(u64::cast_signed),
                    filter.pull_request_number.map(u64::cast_signed),
                    whole(filter.limit),
                    whole(filter.offset),
                ],
            )
        })
    }

    fn runs_due(&self, limit: usize) -> Pending<Result<Vec<Run>, RecordError>> {
        self.read(move |readers| {
            readers.runs(
                "WHERE status = 'pending' AND NOT EXISTS (SELECT 1 FROM runs AS other
                     WHERE other.repository = runs.repository AND other.issue_number = runs.issue_number
                         AND other.run_id <> runs.run_id
                         AND (other.status = 'running' OR other.status = 'pending'
                             AND (other.created_at_ms < runs.created_at_ms
                                 OR other.created_at_ms = runs.created_at_ms AND other.run_id < runs.run_id)))
                 ORDER BY created_at_ms, run_id LIMIT ?1",
                [i64::try_from(limit).unwrap_or(i64::MAX)],
            )
        })
    }

    fn jobs_left(&self, limit: usize) -> Pending<Result<Vec<(JobId, RunId)>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT jobs.job_id, runs.run_id FROM jobs JOIN runs ON runs.run_id = jobs.run_id
                 WHERE jobs.status IN ('pending', 'running') AND runs.finished_at_ms IS NOT NULL
                 ORDER BY jobs.created_at_ms LIMIT ?1";
            readers.all(sql, [i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
                let (job, run) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
                Ok((JobId::trusted(job), RunId::trusted(run)))
            })
        })
    }

    fn agent_session(&self, run: &RunId) -> Pending<Result<Option<AgentSession>, RecordError>> {
        let run = run.clone();
        self.read(move |readers| {
            let sql = "SELECT run_id, correlation_id, project_id, repository_full_name, issue_number, pr_number,
                     trigger_kind, agent_key, model, status, session_id, session_json, codex_cli_session_path,
                     snapshot_version, snapshot_checksum, snapshot_updated_at_ms, wait_state, timeout_guard_disabled,
                     last_heartbeat_at_ms, started_at_ms, finished_at_ms, created_at_ms, updated_at_ms
                 FROM agent_sessions WHERE run_id = ?1";
            readers.first(sql, [run.as_str()], session)
        })
    }

    fn links_of(&self, end: LinkEnd) -> Pending<Result<Vec<Link>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT source_type, source_id, target_type, target_id, link_type, metadata, created_at_ms
                 FROM links WHERE (source_type = ?1 AND source_id = ?2) OR (target_type = ?1 AND target_id = ?2)
                 ORDER BY created_at_ms, id";
            let found = readers.all(sql, params![end.kind.as_str(), end.id], link)?;
            // A newer program may know more kinds; what cannot be named is left out.
            Ok(found.into_iter().flatten().collect())
        })
    }
}

pub(in super::super) fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let text = |index: usize| row.get::<_, String>(index);
    let time = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_millis));
    let number = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(i64::cast_unsigned));
    let labels: BTreeSet<String> = serde_json::from_str(&text(12)?).unwrap_or_default();
    Ok(Run {
        id: RunId::trusted(text(0)?),
        version: row.get::<_, i64>(1)?.cast_unsigned(),
        correlation_id: CorrelationId::trusted(text(2)?),
        project: row.get(3)?,
        repository: row.get(4)?,
        agent_key: text(5)?,
        trigger_kind: TriggerKind::parse(&text(6)?).unwrap_or(TriggerKind::Manual),
        trigger_label: row.get(7)?,
        // The table allows no other words; the one that gives less stands for any.
        runtime: Runtime::parse(&text(8)?).unwrap_or(Runtime::CodeOnly),
        namespace: row.get(9)?,
        issue_number: number(10)?,
        pull_request_number: number(11)?,
        labels,
        title: row.get(13)?,
        instructions: row.get(14)?,
        requested_by: text(15)?,
        status: RunStatus::parse(&text(16)?).unwrap_or(RunStatus::Failed),
        wait_state: row.get::<_, Option<String>>(17)?.as_deref().and_then(WaitState::parse),
        timer: Timer {
            remaining: Duration::from_millis(row.get::<_, i64>(18)?.max(0).cast_unsigned()),
            since: time(19)?,
        },
        reported_status: row.get(20)?,
        reason: row.get(21)?,
        job_id: row.get::<_, Option<String>>(22)?.map(JobId::trusted),
        created_at: Timestamp::from_millis(row.get(23)?),
        updated_at: Timestamp::from_millis(row.get(24)?),
        started_at: time(25)?,
        finished_at: time(26)?,
    })
}

fn session(row: &Row<'_>) -> rusqlite::Result<AgentSession> {
    let text = |index: usize| row.get::<_, String>(index);
    let time = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_millis));
    let number = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(i64::cast_unsigned));
    Ok(AgentSession {
        run_id: RunId::trusted(text(0)?),
        correlation_id: CorrelationId::trusted(text(1)?),
        project: row.get(2)?,
        repository: row.get(3)?,
        issue_number: number(4)?,
        pull_request_number: number(5)?,
        trigger_kind: text(6)?,
        agent_key: text(7)?,
        model: row.get(8)?,
        status: text(9)?,
        session_id: row.get(10)?,
        session_json: text(11)?,
        rollout: row.get(12)?,
        snapshot_version: row.get::<_, i64>(13)?.cast_unsigned(),
        snapshot_checksum: row.get(14)?,
        snapshot_updated_at: time(15)?,
        wait_state: row.get(16)?,
        timeout_guard_disabled: row.get(17)?,
        last_heartbeat_at: time(18)?,
        started_at: time(19)?,
        finished_at: time(20)?,
        created_at: Timestamp::from_millis(row.get(21)?),
        updated_at: Timestamp::from_millis(row.get(22)?),
    })
}

fn link(row: &Row<'_>) -> rusqlite::Result<Option<Link>> {
    let text = |index: usize| row.get::<_, String>(index);
    let end = |kind: &str, id: String| {
        Some(LinkEnd {
            kind: LinkKind::parse(kind)?,
            id,
        })
    };
    let (source, target) = (end(&text(0)?, text(1)?), end(&text(2)?, text(3)?));
    let link_type = LinkType::parse(&text(4)?);
    let metadata = serde_json::from_str(&text(5)?).unwrap_or_default();
    let created_at = Timestamp::from_millis(row.get(6)?);
    Ok(source
        .zip(target)
        .zip(link_type)
        .map(|((source, target), link_type)| Link {
            source,
            target,
            link_type,
            metadata,
            created_at,
        }))
}
