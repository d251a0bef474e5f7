//! Runs in the database: written with their events, each change over the version it was made from.
//!
//! What follows from a change of something else is written with it: a question stops its run's clock and its
//! answer lets it go on, a job's every step is told in `agent_sessions`, and the end of a run ends its tokens.

mod reading;

pub(super) use reading::find;

use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::Change;
use countersign_gateway::audit::event::Draft;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{ConversationId, IdSource, JobId};
use countersign_gateway::job::keeping::JobChange;
use countersign_gateway::job::lifecycle::SubState;
use countersign_gateway::run::keeping::{HeadChange, Link, ReviewChange, RunChange};
use countersign_gateway::run::lifecycle::WaitState;
use countersign_gateway::run::state::Run;
use countersign_gateway::run::{telling, view};
use rusqlite::{OptionalExtension as _, params};
use serde_json::json;

use super::ledger::Ledger;
use crate::rows::runs::{checksum, clocked, remaining, session_json, session_status, set_up};

const INSERT: &str = "INSERT INTO runs (run_id, version, correlation_id, project, repository, agent_key, trigger_kind,
         trigger_label, runtime, namespace, issue_number, pull_request_number, labels, title, instructions,
         requested_by, status, wait_state, remaining_ms, clock_since_ms, reported_status, reason, job_id,
         created_at_ms, updated_at_ms, started_at_ms, finished_at_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
         ?24, ?25, ?26, ?27) ON CONFLICT DO NOTHING";
/// The arrows of `run/lifecycle.rs` once more: this connection has no triggers. Another run of the same issue
/// that is under way is looked for here, because an update that meets it would be an error.
const ADVANCE: &str = "UPDATE runs SET version = ?3, pull_request_number = ?4, status = ?5, wait_state = ?6,
         remaining_ms = ?7, clock_since_ms = ?8, reported_status = ?9, reason = ?10, job_id = ?11, namespace = ?12,
         updated_at_ms = ?13, started_at_ms = ?14, finished_at_ms = ?15, labels = ?16
     WHERE run_id = ?1 AND version = ?2
         AND (status = ?5 AND status IN ('pending', 'running')
             OR status = 'pending' AND ?5 IN ('running', 'failed', 'cancelled')
             OR status = 'running' AND ?5 IN ('succeeded', 'failed', 'cancelled'))
         AND NOT (?5 = 'running' AND EXISTS (SELECT 1 FROM runs AS other
             WHERE other.run_id <> ?1 AND other.status = 'running' AND other.repository = runs.repository
                 AND other.issue_number = runs.issue_number))";
/// All that is still learned of a run that has ended.
const NAME_PULL_REQUEST: &str = "UPDATE runs SET version = ?3, pull_request_number = ?4, updated_at_ms = ?5
     WHERE run_id = ?1 AND version = ?2 AND status = ?6 AND finished_at_ms IS NOT NULL AND pull_request_number IS NULL";
const SESSION_OF_PULL_REQUEST: &str = "UPDATE agent_sessions SET pr_number = ?2, pr_url = ?3
     WHERE run_id = ?1 AND pr_number IS NOT ?2";
const END_TOKENS: &str = "UPDATE tokens SET revoked_at_ms = ?2 WHERE run = ?1 AND revoked_at_ms IS NULL";
const COUNT_TOKENS: &str = "UPDATE tokens_version SET version = version + 1
     WHERE EXISTS (SELECT 1 FROM tokens WHERE run = ?1 AND revoked_at_ms IS NULL)";
const LINK: &str = "INSERT INTO links (source_type, source_id, target_type, target_id, link_type, metadata,
         created_at_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
const IS_ASKED: &str = "SELECT 1 FROM approvals WHERE run_id = ?1 AND state = 'pending' LIMIT 1";
const CHECKSUM: &str = "SELECT snapshot_checksum FROM agent_sessions WHERE run_id = ?1";
const HAS_BEGUN: &str = "SELECT 1 FROM agent_sessions WHERE run_id = ?1 AND started_at_ms IS NOT NULL";
const SESSION_OF: &str = "SELECT last_seq, config, rollout FROM job_sessions WHERE session_id = ?1";
const SESSION: &str = "INSERT INTO agent_sessions (run_id, correlation_id, project_id, repository_full_name,
         issue_number, pr_number, trigger_kind, agent_key, model, status, session_id, session_json,
         codex_cli_session_path, snapshot_version, snapshot_checksum, snapshot_updated_at_ms, wait_state,
         timeout_guard_disabled, last_heartbeat_at_ms, started_at_ms, finished_at_ms, created_at_ms, updated_at_ms,
         pr_url, reasoning_effort, branch_name, template_kind, template_source, template_locale)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?16, ?19, ?20, ?16, ?16,
         ?21, ?22, ?23, ?24, ?25, ?26)
     ON CONFLICT (run_id) DO UPDATE SET pr_number = excluded.pr_number, pr_url = excluded.pr_url,
         reasoning_effort = excluded.reasoning_effort,
         branch_name = coalesce(agent_sessions.pr_head, excluded.branch_name, agent_sessions.branch_name),
         model = coalesce(excluded.model, agent_sessions.model), status = excluded.status,
         session_id = excluded.session_id, session_json = excluded.session_json,
         codex_cli_session_path = excluded.codex_cli_session_path, snapshot_version = excluded.snapshot_version,
         snapshot_checksum = excluded.snapshot_checksum, snapshot_updated_at_ms = excluded.snapshot_updated_at_ms,
         wait_state = coalesce(excluded.wait_state, nullif(nullif(agent_sessions.wait_state, 'mcp'), 'backpressure')),
         timeout_guard_disabled = excluded.timeout_guard_disabled,
         last_heartbeat_at_ms = excluded.last_heartbeat_at_ms, started_at_ms = excluded.started_at_ms,
         finished_at_ms = excluded.finished_at_ms, updated_at_ms = excluded.updated_at_ms";
const SESSION_HEAD: &str = "UPDATE agent_sessions SET pr_head = ?2, branch_name = ?2 WHERE run_id = ?1";
const SESSION_REVIEWED: &str = "UPDATE agent_sessions SET wait_state = ?2, updated_at_ms = ?3
     WHERE run_id = ?1 AND (wait_state IS NULL OR wait_state = 'owner_review')";
const SESSION_WAITS: &str = "UPDATE agent_sessions SET wait_state = ?2, timeout_guard_disabled = ?3,
         updated_at_ms = ?4
     WHERE run_id = ?1";

impl Ledger<'_> {
    /// False when the run does not stand where the change expects it, or another of its issue is in the way.
    pub(super) fn write_run(&self, change: &RunChange) -> rusqlite::Result<bool> {
        let run = &change.run;
        let written = match change.from {
            None => self.insert_run(run)?,
            Some(from) => match self.advance_run(run, from)? {
                0 => self.name_pull_request(run, from)?,
                advanced => advanced,
            },
        };
        if let (1, Some(number)) = (written, run.pull_request_number) {
            self.statement(SESSION_OF_PULL_REQUEST)?.execute(params![
                run.id.as_str(),
                number.cast_signed(),
                view::pull_request_url(run),
            ])?;
        }
        if written == 1 && change.from.is_some() {
            // Whoever keeps a copy of its tokens keeps one of the run.
            self.statement(COUNT_TOKENS)?.execute([run.id.as_str()])?;
        }
        if written == 1 && run.has_ended() {
            let ended = run.finished_at.unwrap_or(run.updated_at).as_millis();
            self.statement(END_TOKENS)?.execute(params![run.id.as_str(), ended])?;
        }
        Ok(written == 1)
    }

    pub(super) fn write_reviews(&self, changes: &[ReviewChange]) -> rusqlite::Result<()> {
        for change in changes {
            let state = change.waits.then_some(WaitState::OwnerReview.as_str());
            let row = params![change.run_id.as_str(), state, change.now.as_millis()];
            self.statement(SESSION_REVIEWED)?.execute(row)?;
        }
        Ok(())
    }

    pub(super) fn write_heads(&self, changes: &[HeadChange]) -> rusqlite::Result<()> {
        for change in changes {
            let row = params![change.run_id.as_str(), change.branch];
            self.statement(SESSION_HEAD)?.execute(row)?;
        }
        Ok(())
    }

    pub(super) fn write_links(&self, links: &[Link]) -> rusqlite::Result<()> {
        for link in links {
            self.statement(LINK)?.execute(params![
                link.source.kind.as_str(),
                link.source.id,
                link.target.kind.as_str(),
                link.target.id,
                link.link_type.as_str(),
                serde_json::Value::Object(link.metadata.clone()).to_string(),
                link.created_at.as_millis(),
            ])?;
        }
        Ok(())
    }

    /// What follows for runs from what a change says of questions and jobs; gives the events that tell of it.
    pub(super) fn follow_runs(&self, change: &Change) -> rusqlite::Result<Vec<Draft>> {
        let mut told = Vec::new();
        for approval in &change.approvals {
            told.extend(self.run_of_question(&approval.approval)?);
        }
        for job in &change.jobs {
            told.extend(self.run_of_job(job)?);
        }
        Ok(told)
    }

    /// A question stops its run's clock; the last answer lets it go on.
    fn run_of_question(&self, approval: &ApprovalRequest) -> rusqlite::Result<Option<Draft>> {
        let Some(run) = approval.run_id.as_deref() else {
            return Ok(None);
        };
        let Some(run) = self.run(run)? else {
            return Ok(None);
        };
        let (state, now) = (WaitState::Mcp, approval.resolved_at.unwrap_or(approval.created_at));
        let is_asked = self.statement(IS_ASKED)?.exists([run.id.as_str()])?;
        self.clock(&run, clocked(&run, state, is_asked, now), now)
    }

    /// A limit of its model stops a run's clock like a question does. Every change of a job is told in its
    /// agent's session.
    fn run_of_job(&self, change: &JobChange) -> rusqlite::Result<Vec<Draft>> {
        let job = &change.job;
        let Some(run) = job.run_id.as_deref() else {
            return Ok(Vec::new());
        };
        let Some(run) = self.run(run)? else {
            return Ok(Vec::new());
        };
        let (state, now) = (WaitState::Backpressure, job.updated_at);
        let is_paused = job.sub_state == Some(SubState::PausedLimit);
        let told = self.clock(&run, clocked(&run, state, is_paused, now), now)?;
        let run = self.run(run.id.as_str())?.unwrap_or(run);
        let begins = job.metrics.start_time.is_some() && !self.statement(HAS_BEGUN)?.exists([run.id.as_str()])?;
        self.write_agent_session(&run, change)?;
        let ready = begins.then(|| telling::ready(&run, job, IdSource::random().event(), now));
        Ok(told.into_iter().chain(ready).collect())
    }

    fn clock(&self, run: &Run, next: Option<(Run, Draft)>, now: Timestamp) -> rusqlite::Result<Option<Draft>> {
        let Some((next, told)) = next else {
            return Ok(None);
        };
        self.advance_run(&next, run.version)?;
        self.statement(SESSION_WAITS)?.execute(params![
            next.id.as_str(),
            next.wait_state.map(WaitState::as_str),
            next.wait_state.is_some(),
            now.as_millis(),
        ])?;
        Ok(Some(told))
    }

    fn write_agent_session(&self, run: &Run, change: &JobChange) -> rusqlite::Result<()> {
        let job = &change.job;
        let kept = self
            .statement(SESSION_OF)?
            .query_row([job.session_id.as_str()], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, Option<String>>(2)?,
                ))
            })
            .optional()?;
        let (version, config, rollout) = kept.unwrap_or_default();
        let set_up = set_up(change, &config);
        let before = self
            .statement(CHECKSUM)?
            .query_row([run.id.as_str()], |row| row.get::<_, Option<String>>(0))
            .optional()?
            .flatten();
        self.statement(SESSION)?.execute(params![
            run.id.as_str(),
            run.correlation_id.as_str(),
            run.project,
            run.repository,
            run.issue_number.map(u64::cast_signed),
            run.pull_request_number.map(u64::cast_signed),
            run.trigger_kind.as_str(),
            run.agent_key,
            set_up.model,
            session_status(job),
            job.conversation_id.as_ref().map(ConversationId::as_str),
            session_json(job, &config),
            rollout,
            version,
            checksum(before, change),
            job.updated_at.as_millis(),
            run.wait_state.map(WaitState::as_str),
            run.wait_state.is_some(),
            job.metrics.start_time.map(Timestamp::as_millis),
            job.metrics.end_time.map(Timestamp::as_millis),
            view::pull_request_url(run),
            set_up.reasoning_effort,
            set_up.branch,
            set_up.template_kind,
            set_up.template_source,
            set_up.template_locale,
        ])?;
        Ok(())
    }

    fn insert_run(&self, run: &Run) -> rusqlite::Result<usize> {
        let time = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        self.statement(INSERT)?.execute(params![
            run.id.as_str(),
            run.version.cast_signed(),
            run.correlation_id.as_str(),
            run.project,
            run.repository,
            run.agent_key,
            run.trigger_kind.as_str(),
            run.trigger_label,
            run.runtime.as_str(),
            run.namespace,
            run.issue_number.map(u64::cast_signed),
            run.pull_request_number.map(u64::cast_signed),
            json!(run.labels).to_string(),
            run.title,
            run.instructions,
            run.requested_by,
            run.status.as_str(),
            run.wait_state.map(WaitState::as_str),
            remaining(run),
            time(run.timer.since),
            run.reported_status,
            run.reason,
            run.job_id.as_ref().map(JobId::as_str),
            run.created_at.as_millis(),
            run.updated_at.as_millis(),
            time(run.started_at),
            time(run.finished_at),
        ])
    }

    fn advance_run(&self, run: &Run, from: u64) -> rusqlite::Result<usize> {
        let time = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        self.statement(ADVANCE)?.execute(params![
            run.id.as_str(),
            from.cast_signed(),
            run.version.cast_signed(),
            run.pull_request_number.map(u64::cast_signed),
            run.status.as_str(),
            run.wait_state.map(WaitState::as_str),
            remaining(run),
            time(run.timer.since),
            run.reported_status,
            run.reason,
            run.job_id.as_ref().map(JobId::as_str),
            run.namespace,
            run.updated_at.as_millis(),
            time(run.started_at),
            time(run.finished_at),
            json!(run.labels).to_string(),
        ])
    }

    fn name_pull_request(&self, run: &Run, from: u64) -> rusqlite::Result<usize> {
        let Some(number) = run.pull_request_number else {
            return Ok(0);
        };
        self.statement(NAME_PULL_REQUEST)?.execute(params![
            run.id.as_str(),
            from.cast_signed(),
            run.version.cast_signed(),
            number.cast_signed(),
            run.updated_at.as_millis(),
            run.status.as_str(),
        ])
    }

    /// A run as this transaction sees it.
    fn run(&self, id: &str) -> rusqlite::Result<Option<Run>> {
        find(self.connection(), id)
    }
}
