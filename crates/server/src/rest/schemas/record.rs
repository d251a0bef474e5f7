//! What the record holds, as it is shown.

use countersign_gateway::audit::event::ActorType;
use serde_json::{Value, json};

use super::{count, hash, object, optional, text, texts, time, words};

pub(super) fn command() -> Value {
    let mut record = object(
        json!({
            "audit_id": text(),
            "timestamp": time(),
            "request_id": text(),
            "command": text(),
            "arguments": texts(),
            "working_directory": text(),
            "status": words(["ok", "rejected", "timeout", "failed"]),
            "exit_code": optional("integer"),
            "error_code": optional("string"),
            "error_message": text(),
            "duration_ms": count(),
            "sandbox": texts(),
            "policy_snapshot": {"type": "object"},
            "tool": text(),
            "caller_id": text(),
            "rule": text(),
            "source": text(),
            "kept_digest": hash(),
        }),
        &[
            "audit_id",
            "timestamp",
            "request_id",
            "command",
            "arguments",
            "working_directory",
            "status",
            "exit_code",
            "error_code",
            "duration_ms",
            "policy_snapshot",
        ],
    );
    // Rows outlive the program that wrote them.
    record["additionalProperties"] = json!(true);
    record
}

pub(super) fn event() -> Value {
    object(
        json!({
            "chain": text(),
            "seq": count(),
            "event_id": text(),
            "timestamp": time(),
            "correlation_id": text(),
            "actor_type": words(ActorType::ALL.iter().map(|kind| kind.as_str())),
            "actor_id": text(),
            "event_type": text(),
            "approval_state": text(),
            "payload": {},
            "prev_hash": hash(),
            "hash": hash(),
        }),
        &[
            "chain",
            "seq",
            "event_id",
            "timestamp",
            "correlation_id",
            "actor_type",
            "actor_id",
            "event_type",
            "payload",
            "prev_hash",
            "hash",
        ],
    )
}

/// S2's fields; what else there is says more of the same.
pub(super) fn invocation() -> Value {
    json!({
        "type": "object",
        "properties": {
            "invocationId": text(),
            "sessionId": text(),
            "toolName": text(),
            "arguments": {"type": "object"},
            "status": words(["ok", "error"]),
            "startedAt": time(),
            "finishedAt": time(),
            "durationMs": count(),
        },
        "required": ["toolName", "arguments", "status", "startedAt", "finishedAt", "durationMs"],
    })
}

pub(super) fn envelope() -> Value {
    json!({
        "type": "object",
        "properties": {"method": text(), "receivedAt": time(), "transport": text(), "error_code": text()},
        "required": ["method", "receivedAt"],
    })
}

pub(super) fn proof() -> Value {
    let sound = object(
        json!({
            "ok": {"const": true},
            "rows": count(),
            "first_seq": count(),
            "last_seq": count(),
            "last_hash": hash(),
            "checkpoints": count(),
            "public_key": text(),
            "proved_at": time(),
        }),
        &[
            "ok",
            "rows",
            "first_seq",
            "last_seq",
            "last_hash",
            "checkpoints",
            "public_key",
            "proved_at",
        ],
    );
    let flawed = object(
        json!({"ok": {"const": false}, "row": {"type": ["integer", "null"], "minimum": 0}, "problem": text(), "proved_at": time()}),
        &["ok", "row", "problem", "proved_at"],
    );
    json!({"oneOf": [sound, flawed]})
}
