//! Runs as people and programs see them.

use serde_json::{Value, json};

use super::keeping::{Link, LinkEnd};
use super::lifecycle::WaitState;
use super::session::AgentSession;
use super::state::Run;
use crate::clock::Timestamp;
use crate::ids::JobId;

/// S4's run item, under the names of the reference.
pub fn item(run: &Run) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let mut shown = json!({
        "run_id": run.id.as_str(),
        "correlation_id": run.correlation_id.as_str(),
        "project_id": run.project,
        "repository_full_name": run.repository,
        "agent_key": run.agent_key,
        "issue_number": run.issue_number,
        "issue_url": url(run, "issues", run.issue_number),
        "pull_request_number": run.pull_request_number,
        "pull_request_url": pull_request_url(run),
        "trigger_kind": run.trigger_kind.as_str(),
        "trigger_label": run.trigger_label,
        "status": run.status.as_str(),
        "created_at": run.created_at.to_string(),
        "started_at": time(run.started_at),
        "finished_at": time(run.finished_at),
    });
    without_nulls(&mut shown);
    shown
}

/// All of a run, with its clock as it stands now.
pub fn whole(run: &Run, now: Timestamp) -> Value {
    let mut shown = item(run);
    let left = u64::try_from(run.timer.left(now).as_millis()).unwrap_or(u64::MAX);
    let more = json!({
        "project": run.project,
        "repository": run.repository,
        "runtime": run.runtime.as_str(),
        "namespace": run.namespace,
        "labels": run.labels,
        "title": run.title,
        "instructions": run.instructions,
        "requested_by": run.requested_by,
        "wait_state": run.wait_state.map(WaitState::as_str),
        "timer": {
            "remaining_ms": left,
            "paused": run.timer.since.is_none(),
            "deadline": run.timer.deadline().map(|at| at.to_string()),
        },
        "reported_status": run.reported_status,
        "reason": run.reason,
        "job_id": run.job_id.as_ref().map(JobId::as_str),
        "updated_at": run.updated_at.to_string(),
    });
    if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
        shown.extend(more);
    }
    without_nulls(&mut shown);
    shown
}

/// What a run belongs to, and what is kept of its agent.
pub fn trace(run: &Run, links: &[Link], session: Option<&AgentSession>, now: Timestamp) -> Value {
    let mut shown = whole(run, now);
    shown["links"] = links.iter().map(link).collect();
    if let Some(session) = session {
        shown["session"] = agent_session(session);
    }
    shown
}

/// A row of `links`.
pub fn link(link: &Link) -> Value {
    let end = |end: &LinkEnd| json!({"type": end.kind.as_str(), "id": end.id});
    json!({
        "source": end(&link.source), "target": end(&link.target), "link_type": link.link_type.as_str(),
        "metadata": link.metadata, "created_at": link.created_at.to_string(),
    })
}

/// A row of `agent_sessions`.
pub fn agent_session(session: &AgentSession) -> Value {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let mut shown = json!({
        "run_id": session.run_id.as_str(),
        "correlation_id": session.correlation_id.as_str(),
        "project_id": session.project,
        "repository_full_name": session.repository,
        "issue_number": session.issue_number,
        "branch_name": session.branch_name,
        "pr_number": session.pull_request_number,
        "pr_url": session.pull_request_url,
        "trigger_kind": session.trigger_kind,
        "template_kind": session.template_kind,
        "template_source": session.template_source,
        "template_locale": session.template_locale,
        "status": session.status,
        "agent_key": session.agent_key,
        "model": session.model,
        "reasoning_effort": session.reasoning_effort,
        "session_id": session.session_id,
        "codex_cli_session_path": session.rollout,
        "snapshot_version": session.snapshot_version,
        "snapshot_checksum": session.snapshot_checksum,
        "snapshot_updated_at": time(session.snapshot_updated_at),
        "wait_state": session.wait_state,
        "timeout_guard_disabled": session.timeout_guard_disabled,
        "last_heartbeat_at": time(session.last_heartbeat_at),
        "started_at": time(session.started_at),
        "finished_at": time(session.finished_at),
        "created_at": session.created_at.to_string(),
        "updated_at": session.updated_at.to_string(),
    });
    without_nulls(&mut shown);
    shown
}

/// Where a run's pull request can be looked at.
pub fn pull_request_url(run: &Run) -> Option<String> {
    url(run, "pull", run.pull_request_number)
}

fn url(run: &Run, what: &str, number: Option<u64>) -> Option<String> {
    let (repository, number) = (run.repository.as_deref()?, number?);
    Some(format!("https://github.com/{repository}/{what}/{number}"))
}

fn without_nulls(shown: &mut Value) {
    if let Value::Object(fields) = shown {
        fields.retain(|_, value| !value.is_null());
    }
}
