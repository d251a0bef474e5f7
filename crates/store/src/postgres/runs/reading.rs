//! Runs as they are read back.

use std::collections::HashMap;

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::ids::{JobId, RunId};
use countersign_gateway::run::keeping::{Link, LinkEnd, RunFilter, Runs};
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::Run;

use super::super::PgStore;
use super::super::link::{self as connection, Values};
use super::super::readers::Readers;
use super::super::trouble::Trouble;
use crate::rows::runs::{ARE_DUE, COLUMNS, LINK_COLUMNS, SESSION_COLUMNS, link, run, session};
use crate::rows::{at_most, one_of};

/// A run as a connection sees it.
pub(in super::super) fn find(link: &connection::Link, id: &str) -> Result<Option<Run>, Trouble> {
    link.first(&format!("SELECT {COLUMNS} FROM runs WHERE run_id = $1"), &[&id], run)
}

/// A run that stays as it is for everybody else until the transaction ends.
pub(super) fn lock(link: &connection::Link, id: &str) -> Result<Option<Run>, Trouble> {
    link.first(
        &format!("SELECT {COLUMNS} FROM runs WHERE run_id = $1 FOR NO KEY UPDATE"),
        &[&id],
        run,
    )
}

/// The runs of tokens in force that have not ended, by their ids.
pub(in super::super) fn under_way(link: &connection::Link) -> Result<HashMap<String, Run>, Trouble> {
    let sql = format!(
        "SELECT {COLUMNS} FROM runs WHERE finished_at_ms IS NULL
             AND run_id IN (SELECT run FROM tokens WHERE run IS NOT NULL AND revoked_at_ms IS NULL)"
    );
    let found = link.all(&sql, &[], run)?.into_iter();
    Ok(found.map(|run| (run.id.as_str().to_owned(), run)).collect())
}

impl Readers {
    fn runs(&self, rest: &str, values: Values<'_>) -> Result<Vec<Run>, RecordError> {
        self.all(&format!("SELECT {COLUMNS} FROM runs {rest}"), values, run)
    }
}

impl Runs for PgStore {
    fn find_run(&self, id: &RunId) -> Pending<Result<Option<Run>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| Ok(readers.runs("WHERE run_id = $1", &[&id.as_str()])?.pop()))
    }

    fn list_runs(&self, filter: RunFilter) -> Pending<Result<Vec<Run>, RecordError>> {
        self.read(move |readers| {
            let rest = format!(
                "WHERE {} AND ($1::text IS NULL OR repository = $1) AND ($2::bigint IS NULL OR issue_number = $2)
                     AND ($3::bigint IS NULL OR pull_request_number = $3)
                 ORDER BY created_at_ms DESC, arrival DESC LIMIT $4 OFFSET $5",
                one_of("status", filter.statuses.iter().map(|status| status.as_str()))
            );
            readers.runs(
                &rest,
                &[
                    &filter.repository,
                    &filter.issue_number.map(u64::cast_signed),
                    &filter.pull_request_number.map(u64::cast_signed),
                    &at_most(filter.limit),
                    &at_most(filter.offset),
                ],
            )
        })
    }

    fn runs_due(&self, limit: usize) -> Pending<Result<Vec<Run>, RecordError>> {
        self.read(move |readers| {
            readers.runs(
                &format!("WHERE {ARE_DUE} ORDER BY created_at_ms, run_id LIMIT $1"),
                &[&at_most(limit)],
            )
        })
    }

    fn jobs_left(&self, limit: usize) -> Pending<Result<Vec<(JobId, RunId)>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT jobs.job_id, runs.run_id FROM jobs JOIN runs ON runs.run_id = jobs.run_id
                 WHERE jobs.status IN ('pending', 'running') AND runs.finished_at_ms IS NOT NULL
                 ORDER BY jobs.created_at_ms LIMIT $1";
            readers.all(sql, &[&at_most(limit)], |row| {
                let (job, run) = (row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?);
                Ok((JobId::trusted(job), RunId::trusted(run)))
            })
        })
    }

    fn agent_session(&self, run: &RunId) -> Pending<Result<Option<AgentSession>, RecordError>> {
        let run = run.clone();
        self.read(move |readers| {
            let sql = format!("SELECT {SESSION_COLUMNS} FROM agent_sessions WHERE run_id = $1");
            readers.first(&sql, &[&run.as_str()], session)
        })
    }

    fn links_of(&self, end: LinkEnd) -> Pending<Result<Vec<Link>, RecordError>> {
        self.read(move |readers| {
            let sql = format!(
                "SELECT {LINK_COLUMNS} FROM links
                 WHERE (source_type = $1 AND source_id = $2) OR (target_type = $1 AND target_id = $2)
                 ORDER BY created_at_ms, id"
            );
            let found = readers.all(&sql, &[&end.kind.as_str(), &end.id], link)?;
            Ok(found.into_iter().flatten().collect())
        })
    }
}
