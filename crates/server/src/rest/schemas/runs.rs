//! Runs: S4's run under the names of the reference, with ours beside them.

use countersign_gateway::limits::{REASON_CHARS_MAX, RUN_INSTRUCTIONS_CHARS_MAX, RUN_TIME_MAX, RUN_TITLE_CHARS_MAX};
use countersign_gateway::run::lifecycle::{RunStatus, Runtime, TriggerKind, WaitState};
use countersign_gateway::run::manual::{KEY_CHARS_MAX, LABELS_MAX, NAME_CHARS_MAX, OCCASIONS, REPOSITORY_CHARS_MAX};
use serde_json::{Value, json};

use super::{count, object, text, texts, time, words};

const REQUIRED: &[&str] = &[
    "run_id",
    "correlation_id",
    "agent_key",
    "trigger_kind",
    "status",
    "runtime",
    "labels",
    "requested_by",
    "timer",
    "created_at",
    "updated_at",
];

pub(super) fn run() -> Value {
    object(fields(), REQUIRED)
}

/// With all that belongs to it.
pub(super) fn trace() -> Value {
    let mut fields = fields();
    let end = object(json!({"type": text(), "id": text()}), &["type", "id"]);
    let link = object(
        json!({"source": end, "target": end, "link_type": text(), "metadata": {"type": "object"}, "created_at": time()}),
        &["source", "target", "link_type", "metadata", "created_at"],
    );
    fields["links"] = json!({"type": "array", "items": link});
    fields["approvals"] = json!({"type": "array", "items": {"$ref": "#/components/schemas/ApprovalRequest"}});
    fields["session"] = object(
        json!({
            "run_id": text(), "correlation_id": text(), "project_id": text(), "repository_full_name": text(),
            "issue_number": count(), "branch_name": text(), "pr_number": count(), "pr_url": text(),
            "trigger_kind": text(), "template_kind": text(), "template_source": text(), "template_locale": text(), "reasoning_effort": text(),
            "status": text(), "agent_key": text(), "model": text(), "session_id": text(),
            "codex_cli_session_path": text(), "snapshot_version": count(), "snapshot_checksum": text(),
            "snapshot_updated_at": time(), "wait_state": text(), "timeout_guard_disabled": {"type": "boolean"},
            "last_heartbeat_at": time(), "started_at": time(), "finished_at": time(), "created_at": time(),
            "updated_at": time(),
        }),
        &[
            "run_id",
            "correlation_id",
            "trigger_kind",
            "created_at",
            "updated_at",
            "status",
            "agent_key",
            "snapshot_version",
            "timeout_guard_disabled",
        ],
    );
    let required: Vec<&str> = REQUIRED.iter().copied().chain(["links", "approvals"]).collect();
    object(fields, &required)
}

fn fields() -> Value {
    let timer = object(
        json!({"remaining_ms": count(), "paused": {"type": "boolean"}, "deadline": {"type": ["string", "null"]}}),
        &["remaining_ms", "paused"],
    );
    json!({
        "run_id": text(),
        "correlation_id": text(),
        "project_id": text(),
        "project": text(),
        "repository_full_name": text(),
        "repository": text(),
        "agent_key": text(),
        "issue_number": count(),
        "issue_url": text(),
        "pull_request_number": count(),
        "pull_request_url": text(),
        "trigger_kind": words(TriggerKind::ALL.iter().map(|kind| kind.as_str())),
        "trigger_label": text(),
        "status": words(RunStatus::ALL.iter().map(|status| status.as_str())),
        "wait_state": words(WaitState::ALL.iter().map(|state| state.as_str())),
        "runtime": words(Runtime::ALL.iter().map(|runtime| runtime.as_str())),
        "namespace": text(),
        "labels": texts(),
        "title": text(),
        "instructions": text(),
        "requested_by": text(),
        "timer": timer,
        "reported_status": text(),
        "reason": text(),
        "job_id": text(),
        "created_at": time(),
        "updated_at": time(),
        "started_at": time(),
        "finished_at": time(),
    })
}

pub(super) fn order() -> Value {
    let name = |max: usize| json!({"type": "string", "minLength": 1, "maxLength": max});
    let number = json!({"type": "integer", "minimum": 1, "maximum": i64::MAX});
    let mut order = object(
        json!({
            "repository": {"type": "string", "pattern": "^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$", "maxLength": REPOSITORY_CHARS_MAX},
            "project": name(NAME_CHARS_MAX),
            "issue_number": number,
            "pull_request_number": number,
            "label": {"type": "string", "pattern": "^run:.+$", "maxLength": NAME_CHARS_MAX},
            "agent_key": name(KEY_CHARS_MAX),
            "runtime": words(Runtime::ALL.iter().map(|runtime| runtime.as_str())),
            "namespace": name(KEY_CHARS_MAX),
            "labels": {"type": "array", "items": name(NAME_CHARS_MAX), "maxItems": LABELS_MAX},
            "title": name(RUN_TITLE_CHARS_MAX),
            "instructions": name(RUN_INSTRUCTIONS_CHARS_MAX),
            "timeout_ms": {"type": "integer", "minimum": 1, "maximum": RUN_TIME_MAX.as_millis() as u64},
        }),
        &[],
    );
    // An issue and a pull request are numbers of a repository.
    order["dependentRequired"] = json!({"issue_number": ["repository"], "pull_request_number": ["repository"]});
    order["anyOf"] = OCCASIONS.iter().map(|name| json!({ "required": [name] })).collect();
    order
}

pub(super) fn cancellation() -> Value {
    let reason = json!({"type": "string", "minLength": 1, "maxLength": REASON_CHARS_MAX});
    object(json!({ "reason": reason }), &["reason"])
}
