//! Runs as they are read back.

use std::sync::LazyLock;

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::ids::{JobId, RunId};
use countersign_gateway::run::keeping::{Link, LinkEnd, RunFilter, Runs};
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::Run;
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use super::super::SqliteStore;
use super::super::readers::Readers;
use crate::rows::runs::{ARE_DUE, COLUMNS, LINK_COLUMNS, SESSION_COLUMNS, link, run, session};
use crate::rows::{at_most, one_of};

static FIND: LazyLock<String> = LazyLock::new(|| format!("SELECT {COLUMNS} FROM runs WHERE run_id = ?1"));

/// A run as a connection sees it.
pub(in super::super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Run>> {
    connection
        .prepare_cached(&FIND)?
        .query_row([id], |row| run(row))
        .optional()
}

impl Readers {
    fn runs(&self, rest: &str, values: impl Params) -> Result<Vec<Run>, RecordError> {
        self.all(&format!("SELECT {COLUMNS} FROM runs {rest}"), values, |row| run(row))
    }
}

impl Runs for SqliteStore {
    fn find_run(&self, id: &RunId) -> Pending<Result<Option<Run>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| readers.first(&FIND, [id.as_str()], |row| run(row)))
    }

    fn list_runs(&self, filter: RunFilter) -> Pending<Result<Vec<Run>, RecordError>> {
        self.read(move |readers| {
            let statuses = one_of("status", filter.statuses.iter().map(|status| status.as_str()));
            let rest = format!(
                "WHERE {statuses} AND (?1 IS NULL OR repository = ?1) AND (?2 IS NULL OR issue_number = ?2)
                     AND (?3 IS NULL OR pull_request_number = ?3)
                 ORDER BY created_at_ms DESC, rowid DESC LIMIT ?4 OFFSET ?5"
            );
            readers.runs(
                &rest,
                params![
                    filter.repository,
                    filter.issue_number.map(u64::cast_signed),
                    filter.pull_request_number.map(u64::cast_signed),
                    at_most(filter.limit),
                    at_most(filter.offset),
                ],
            )
        })
    }

    fn runs_due(&self, limit: usize) -> Pending<Result<Vec<Run>, RecordError>> {
        self.read(move |readers| {
            readers.runs(
                &format!("WHERE {ARE_DUE} ORDER BY created_at_ms, run_id LIMIT ?1"),
                [at_most(limit)],
            )
        })
    }

    fn jobs_left(&self, limit: usize) -> Pending<Result<Vec<(JobId, RunId)>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT jobs.job_id, runs.run_id FROM jobs JOIN runs ON runs.run_id = jobs.run_id
                 WHERE jobs.status IN ('pending', 'running') AND runs.finished_at_ms IS NOT NULL
                 ORDER BY jobs.created_at_ms LIMIT ?1";
            readers.all(sql, [at_most(limit)], |row| {
                let (job, run) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
                Ok((JobId::trusted(job), RunId::trusted(run)))
            })
        })
    }

    fn agent_session(&self, run: &RunId) -> Pending<Result<Option<AgentSession>, RecordError>> {
        let run = run.clone();
        self.read(move |readers| {
            let sql = format!("SELECT {SESSION_COLUMNS} FROM agent_sessions WHERE run_id = ?1");
            readers.first(&sql, [run.as_str()], |row| session(row))
        })
    }

    fn links_of(&self, end: LinkEnd) -> Pending<Result<Vec<Link>, RecordError>> {
        self.read(move |readers| {
            let sql = format!(
                "SELECT {LINK_COLUMNS} FROM links
                 WHERE (source_type = ?1 AND source_id = ?2) OR (target_type = ?1 AND target_id = ?2)
                 ORDER BY created_at_ms, id"
            );
            let found = readers.all(&sql, params![end.kind.as_str(), end.id], |row| link(row))?;
            Ok(found.into_iter().flatten().collect())
        })
    }
}
