//! What the control tools have in common: tools that reach past this machine, each with its own approval.

use serde_json::{Map, Value, json};

use crate::approval::ClearedAct;
use crate::audit::RecordError;
use crate::error::{ErrorCode, Refusal};
use crate::tools::acts::Asked;

/// The project of callers that belong to no run.
pub const PROJECT_OUTSIDE_RUNS: &str = "default";

/// The project that a caller acts for.
pub(super) fn project(asked: &Asked<'_>) -> String {
    let context = asked.policy.context(asked.caller);
    context.project.unwrap_or(PROJECT_OUTSIDE_RUNS).to_owned()
}

/// The fields that every result of theirs has, and those of a refusal.
pub(super) fn result() -> Value {
    json!({
        "status": {"type": "string", "enum": ["ok", "rejected", "pending", "failed"]},
        "message": {"type": "string"},
        "request_id": {"type": ["string", "null"], "description": "The approval by which it was done."},
        "approval_state": {"type": ["string", "null"]},
        "environment": {"type": "string"},
        "dry_run": {"type": "boolean"},
        "error": {"type": "object"},
        "error_code": {"type": "string", "description": "One of countersign://errors."},
        "error_message": {"type": "string"},
        "error_details": {"type": "object"},
        "retryable": {"type": "boolean"},
        "approval_id": {"type": "string"},
    })
}

/// The beginning of a result that was not refused.
pub(super) fn answered(cleared: Option<&ClearedAct>, environment: &str, message: &str) -> Map<String, Value> {
    let approval = cleared.and_then(|cleared| cleared.approval());
    Map::from_iter([
        ("status".to_owned(), json!("ok")),
        ("request_id".to_owned(), json!(approval.map(|id| id.as_str()))),
        ("approval_state".to_owned(), json!(cleared.map(|_| "applied"))),
        ("environment".to_owned(), json!(environment)),
        ("message".to_owned(), json!(message)),
    ])
}

/// What a caller is told when the record of what a tool acts upon cannot be read or written.
pub(super) fn unkept(error: &RecordError) -> Refusal {
    match error {
        RecordError::TargetMoved => Refusal::new(
            ErrorCode::Conflict,
            "another call changes the same at this moment; look how it stands and call again",
        ),
        RecordError::RequestIdTaken(_)
        | RecordError::SessionMoved
        | RecordError::ApprovalMoved
        | RecordError::JobMoved
        | RecordError::NoPlace
        | RecordError::RunMoved
        | RecordError::DelegationMoved
        | RecordError::LeaseTaken(_)
        | RecordError::DeliveryKnown(_)
        | RecordError::SessionNameTaken
        | RecordError::Unavailable(_) => error.refusal("try again later"),
    }
}
