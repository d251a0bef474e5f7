//! Jobs: S1's Job, Session, Event and processes under S1's names, with ours beside them.

use countersign_gateway::job::desk::ProcessStatus;
use countersign_gateway::job::event::JobEventType;
use countersign_gateway::job::lifecycle::{JobStatus, SessionStatus, SubState};
use countersign_gateway::tools::jobs::{Offered, schema};
use serde_json::{Value, json};

use super::{count, nullable, object, text, time, words};

pub(super) fn job() -> Value {
    let whole = job_fields();
    object(whole, REQUIRED)
}

const REQUIRED: &[&str] = &[
    "jobId",
    "requestId",
    "status",
    "createdAt",
    "updatedAt",
    "input",
    "agent",
    "startedBy",
    "correlation_id",
];

fn job_fields() -> Value {
    let metrics = object(
        json!({"startTime": time(), "endTime": time(), "duration": count(), "approvalCount": count(),
            "approvalDuration": count()}),
        &["approvalCount", "approvalDuration"],
    );
    let error = object(
        json!({"code": text(), "message": text(), "details": {"type": "object"}, "retryable": {"type": "boolean"}}),
        &["code", "message", "retryable"],
    );
    json!({
        "jobId": text(),
        "requestId": text(),
        "conversationId": text(),
        "status": words(JobStatus::ALL.iter().map(|status| status.as_str())),
        "subState": words(SubState::ALL.iter().map(|state| state.as_str())),
        "createdAt": time(),
        "updatedAt": time(),
        "input": {"type": "object", "properties": {"prompt": text()}, "required": ["prompt"]},
        "output": object(json!({"result": text(), "error": error, "metrics": metrics}), &["metrics"]),
        "agent": text(),
        "startedBy": text(),
        "correlation_id": text(),
        "run_id": text(),
        "resumesAt": time(),
    })
}

/// With all that belongs to it.
pub(super) fn whole() -> Value {
    let mut fields = job_fields();
    fields["session"] = object(
        json!({
            "conversationId": text(), "sessionName": text(), "jobId": text(), "createdAt": time(),
            "sessionDir": text(), "rolloutRef": text(), "processId": count(),
            "status": words(SessionStatus::ALL.iter().map(|status| status.as_str())),
            "config": {"type": "object"}, "agent": text(),
        }),
        &[
            "sessionName",
            "jobId",
            "createdAt",
            "sessionDir",
            "status",
            "config",
            "agent",
        ],
    );
    fields["usage"] = object(
        json!({"model": text(), "promptTokens": count(), "completionTokens": count(), "totalTokens": count(),
            "costUsd": {"type": "number", "minimum": 0}}),
        &["promptTokens", "completionTokens", "totalTokens"],
    );
    object(fields, &[REQUIRED, &["session", "usage"]].concat())
}

pub(super) fn event() -> Value {
    object(
        json!({
            "seq": count(), "eventId": text(), "timestamp": time(), "jobId": text(), "sessionId": text(),
            "type": words(JobEventType::ALL.iter().map(|kind| kind.as_str())), "data": {"type": "object"},
        }),
        &["seq", "eventId", "timestamp", "jobId", "type", "data"],
    )
}

pub(super) fn process() -> Value {
    object(
        json!({
            "pid": count(), "status": words(ProcessStatus::ALL.iter().map(|status| status.as_str())),
            "currentJobId": text(), "sessionId": text(), "createdAt": time(), "agent": text(),
        }),
        &["pid", "status", "sessionId", "createdAt", "agent"],
    )
}

/// What `start-task` takes; which agents there are differs from server to server.
pub(super) fn task() -> Value {
    let mut task = tool("start-task").0;
    task["properties"]["agent"] = json!({"type": "string"});
    nullable(task)
}

/// What `send-message` takes beside the conversation, which the address names.
pub(super) fn message() -> Value {
    let mut message = tool("send-message").0;
    if let Some(fields) = message["properties"].as_object_mut() {
        fields.remove("conversationId");
    }
    message["required"] = json!([]);
    let mut message = nullable(message);
    message["anyOf"] = json!([
        {"required": ["message"], "properties": {"message": {"type": "string"}}},
        {"required": ["items"], "properties": {"items": {"type": "array", "minItems": 1}}},
    ]);
    message
}

/// S1's ToolResult.
pub(super) fn accepted() -> Value {
    tool("start-task").1
}

fn tool(name: &str) -> (Value, Value) {
    let anybody = Offered {
        names: vec![String::new()],
        codex: None,
    };
    let found = schema::definitions(&anybody).into_iter().find(|tool| tool.name == name);
    found.map_or_else(Default::default, |tool| (tool.input_schema, tool.output_schema))
}
