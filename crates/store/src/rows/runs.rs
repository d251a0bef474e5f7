//! Runs, the sessions of their agents, and links.

use std::collections::BTreeSet;
use std::time::Duration;

use countersign_gateway::audit::event::{Draft, EventType};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, IdSource, JobId, RunId};
use countersign_gateway::job::keeping::JobChange;
use countersign_gateway::job::lifecycle::JobStatus;
use countersign_gateway::job::state::Job;
use countersign_gateway::run::keeping::{Link, LinkEnd, LinkKind, LinkType};
use countersign_gateway::run::lifecycle::{RunStatus, Runtime, TriggerKind, WaitState};
use countersign_gateway::run::session::AgentSession;
use countersign_gateway::run::state::{Run, Timer};
use countersign_gateway::run::telling;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Cells;
use crate::hex;

/// The columns that [`run`] reads, in its order.
pub(crate) const COLUMNS: &str = "run_id, version, correlation_id, project, repository, agent_key, trigger_kind, \
     trigger_label, runtime, namespace, issue_number, pull_request_number, labels, title, instructions, requested_by, \
     status, wait_state, remaining_ms, clock_since_ms, reported_status, reason, job_id, created_at_ms, updated_at_ms, \
     started_at_ms, finished_at_ms";
pub(crate) const COLUMN_COUNT: usize = 27;
/// The columns that [`session`] reads, in its order.
pub(crate) const SESSION_COLUMNS: &str = "run_id, correlation_id, project_id, repository_full_name, issue_number, \
     pr_number, trigger_kind, agent_key, model, status, session_id, session_json, codex_cli_session_path, \
     snapshot_version, snapshot_checksum, snapshot_updated_at_ms, wait_state, timeout_guard_disabled, \
     last_heartbeat_at_ms, started_at_ms, finished_at_ms, created_at_ms, updated_at_ms, pr_url, reasoning_effort, \
     branch_name, template_kind, template_source, template_locale";
/// The columns that [`link`] reads, in its order.
pub(crate) const LINK_COLUMNS: &str =
    "source_type, source_id, target_type, target_id, link_type, metadata, created_at_ms";
/// Those that wait and are the first of their issue, which has none under way.
pub(crate) const ARE_DUE: &str = "status = 'pending' AND NOT EXISTS (SELECT 1 FROM runs AS other
     WHERE other.repository = runs.repository AND other.issue_number = runs.issue_number
         AND other.run_id <> runs.run_id
         AND (other.status = 'running' OR other.status = 'pending'
             AND (other.created_at_ms < runs.created_at_ms
                 OR other.created_at_ms = runs.created_at_ms AND other.run_id < runs.run_id)))";

pub(crate) fn run<R: Cells>(row: &R) -> Result<Run, R::Error> {
    let labels: BTreeSet<String> = serde_json::from_str(&row.text(12)?).unwrap_or_default();
    Ok(Run {
        id: RunId::trusted(row.text(0)?),
        version: row.count(1)?,
        correlation_id: CorrelationId::trusted(row.text(2)?),
        project: row.any_text(3)?,
        repository: row.any_text(4)?,
        agent_key: row.text(5)?,
        trigger_kind: TriggerKind::parse(&row.text(6)?).unwrap_or(TriggerKind::Manual),
        trigger_label: row.any_text(7)?,
        // The table allows no other words; the one that gives less stands for any.
        runtime: Runtime::parse(&row.text(8)?).unwrap_or(Runtime::CodeOnly),
        namespace: row.any_text(9)?,
        issue_number: row.any_count(10)?,
        pull_request_number: row.any_count(11)?,
        labels,
        title: row.any_text(13)?,
        instructions: row.any_text(14)?,
        requested_by: row.text(15)?,
        status: RunStatus::parse(&row.text(16)?).unwrap_or(RunStatus::Failed),
        wait_state: row.any_text(17)?.as_deref().and_then(WaitState::parse),
        timer: Timer {
            remaining: Duration::from_millis(row.whole(18)?.max(0).cast_unsigned()),
            since: row.any_time(19)?,
        },
        reported_status: row.any_text(20)?,
        reason: row.any_text(21)?,
        job_id: row.any_text(22)?.map(JobId::trusted),
        created_at: row.time(23)?,
        updated_at: row.time(24)?,
        started_at: row.any_time(25)?,
        finished_at: row.any_time(26)?,
    })
}

pub(crate) fn session<R: Cells>(row: &R) -> Result<AgentSession, R::Error> {
    Ok(AgentSession {
        run_id: RunId::trusted(row.text(0)?),
        correlation_id: CorrelationId::trusted(row.text(1)?),
        project: row.any_text(2)?,
        repository: row.any_text(3)?,
        issue_number: row.any_count(4)?,
        pull_request_number: row.any_count(5)?,
        trigger_kind: row.text(6)?,
        agent_key: row.text(7)?,
        model: row.any_text(8)?,
        status: row.text(9)?,
        session_id: row.any_text(10)?,
        session_json: row.text(11)?,
        rollout: row.any_text(12)?,
        snapshot_version: row.count(13)?,
        snapshot_checksum: row.any_text(14)?,
        snapshot_updated_at: row.any_time(15)?,
        wait_state: row.any_text(16)?,
        timeout_guard_disabled: row.flag(17)?,
        last_heartbeat_at: row.any_time(18)?,
        started_at: row.any_time(19)?,
        finished_at: row.any_time(20)?,
        created_at: row.time(21)?,
        updated_at: row.time(22)?,
        pull_request_url: row.any_text(23)?,
        reasoning_effort: row.any_text(24)?,
        branch_name: row.any_text(25)?,
        template_kind: row.any_text(26)?,
        template_source: row.any_text(27)?,
        template_locale: row.any_text(28)?,
    })
}

/// None of a kind that a newer program may know: what cannot be named is left out.
pub(crate) fn link<R: Cells>(row: &R) -> Result<Option<Link>, R::Error> {
    let end = |kind: &str, id: String| {
        Some(LinkEnd {
            kind: LinkKind::parse(kind)?,
            id,
        })
    };
    let source = end(&row.text(0)?, row.text(1)?);
    let target = end(&row.text(2)?, row.text(3)?);
    let link_type = LinkType::parse(&row.text(4)?);
    let metadata = serde_json::from_str(&row.text(5)?).unwrap_or_default();
    let created_at = row.time(6)?;
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

/// A run whose clock stops while something waits and goes on when nothing does, and the event that tells of it; none
/// where that changes nothing.
pub(crate) fn clocked(run: &Run, state: WaitState, waits: bool, now: Timestamp) -> Option<(Run, Draft)> {
    let (next, kind) = if waits {
        (run.waiting(state, now)?, EventType::WaitPaused)
    } else {
        (run.going_on(state, now)?, EventType::WaitResumed)
    };
    let event = IdSource::random().event();
    let told = telling::clock(&next, event, now, kind, state.as_str());
    Some((next, told))
}

/// What was left of a run's time.
pub(crate) fn remaining(run: &Run) -> i64 {
    i64::try_from(run.timer.remaining.as_millis()).unwrap_or(i64::MAX)
}

/// The word for a run's agent, by the job that it works on.
pub(crate) fn session_status(job: &Job) -> &'static str {
    match job.status() {
        JobStatus::Pending | JobStatus::Running => "running",
        JobStatus::Completed => "succeeded",
        JobStatus::Failed if job.metrics.start_time.is_none() => "failed_precondition",
        JobStatus::Failed | JobStatus::Timeout => "failed",
        JobStatus::Cancelled => "cancelled",
    }
}

/// What a run's agent was asked and how it is set up.
pub(crate) fn session_json(job: &Job, config: &str) -> String {
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    json!({"job": job.to_json(), "config": config}).to_string()
}

/// What a session's settings say of a run's agent, and the model that it says to have used.
#[derive(Default)]
pub(crate) struct SetUp {
    pub(crate) model: Option<String>,
    pub(crate) reasoning_effort: Option<String>,
    pub(crate) branch: Option<String>,
    pub(crate) template_kind: Option<String>,
    pub(crate) template_source: Option<String>,
    pub(crate) template_locale: Option<String>,
}

pub(crate) fn set_up(change: &JobChange, config: &str) -> SetUp {
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let used = change.usage.as_ref().and_then(|usage| usage.model.clone());
    SetUp {
        model: used.or_else(|| text(&config["model"])),
        reasoning_effort: text(&config["reasoningEffort"]),
        branch: text(&config["branch"]),
        template_kind: text(&config["template"]["kind"]),
        template_source: text(&config["template"]["source"]),
        template_locale: text(&config["template"]["locale"]),
    }
}

/// The digest over all events so far and these.
pub(crate) fn checksum(before: Option<String>, change: &JobChange) -> Option<String> {
    change.events.iter().fold(before, |before, event| {
        let mut digest = Sha256::new();
        digest.update(before.unwrap_or_default());
        digest.update(event.event_id.as_str());
        digest.update(event.kind.as_str());
        digest.update(event.data.to_string());
        Some(hex::encode(&digest.finalize()))
    })
}
