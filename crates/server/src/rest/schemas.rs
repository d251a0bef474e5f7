//! The schemas that the table names. What the commands take and answer is said by the tools themselves.

mod jobs;
mod record;
mod runs;

use countersign_gateway::approval::callback::Word;
use countersign_gateway::approval::lifecycle::ApprovalStatus;
use countersign_gateway::approval::request::ApprovalType;
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::error::ErrorCode;
use countersign_gateway::limits::REASON_CHARS_MAX;
use countersign_gateway::session::lifetime::SessionState;
use countersign_gateway::session::{Role, Transport};
use countersign_gateway::tools::exec::request::CommandTool;
use countersign_gateway::tools::exec::schema;
use serde_json::{Map, Value, json};

pub(super) fn all() -> Value {
    json!({
        "Failure": failure(),
        "ApprovalRequest": approval(),
        "Decision": decision(),
        "CommandExecutionRequest": command(),
        "CommandExecutionResult": result(),
        "CommandAuditRecord": record::command(),
        "Job": jobs::job(),
        "WholeJob": jobs::whole(),
        "JobEvent": jobs::event(),
        "AgentProcess": jobs::process(),
        "Task": jobs::task(),
        "Message": jobs::message(),
        "Accepted": jobs::accepted(),
        "Run": runs::run(),
        "RunTrace": runs::trace(),
        "RunOrder": runs::order(),
        "RunCancellation": runs::cancellation(),
        "McpSession": session(),
        "Token": token(),
        "Event": record::event(),
        "McpToolInvocation": record::invocation(),
        "McpRequestEnvelope": record::envelope(),
        "Proof": record::proof(),
        "Policy": object(json!({"digest": text(), "content": {"type": "object"}}), &["digest", "content"]),
        "SupposedCall": supposed(),
        "Explanation": explanation(),
        "MetricsSummary": summary(),
        "Document": {"type": "object", "properties": {"openapi": text()}, "required": ["openapi"]},
    })
}

/// What a service calls back with, in either vocabulary.
pub(super) fn callback() -> Value {
    let words: Vec<_> = Word::WORDS.iter().map(|(word, _)| *word).collect();
    object(
        json!({
            "approval_request_id": text(),
            "correlation_id": text(),
            "decision": {"type": "string", "enum": words},
            "reason": text(),
            "actor_id": text(),
            "tool": text(),
            "metadata": {},
            "request_id": text(),
            "status": {"type": "string", "enum": ["success", "error"]},
            "result": {},
            "selected_option": {"type": "string", "description": "One of the options of a question."},
            "custom": {"type": "string", "description": "An answer to a question in words of one's own."},
        }),
        &[],
    )
}

/// What a service that called back is told.
pub(super) fn called_back() -> Value {
    object(
        json!({"id": text(), "correlation_id": text(), "run_id": text(), "tool_name": text(), "action": text(),
            "approval_state": words(ApprovalState::ALL.iter().map(|state| state.as_str()))}),
        &["id", "correlation_id", "tool_name", "action", "approval_state"],
    )
}

/// What became of a delivery.
pub(super) fn received() -> Value {
    object(
        json!({"status": words(["accepted", "duplicate", "ignored"].into_iter()), "delivery_id": text(), "reason": text()}),
        &["status", "delivery_id"],
    )
}

fn failure() -> Value {
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
    let error = object(
        json!({
            "errorCode": {"type": "string", "enum": codes},
            "message": text(),
            "details": {"type": "object"},
            "correlation_id": text(),
        }),
        &["errorCode", "message", "details", "correlation_id"],
    );
    object(
        json!({"error": error, "result": {"$ref": "#/components/schemas/CommandExecutionResult"}}),
        &["error"],
    )
}

fn approval() -> Value {
    let vote = object(
        json!({"credential": text(), "by": text(), "decision": choice(), "reason": text(), "at": time(),
            "answer": {"type": "object"}}),
        &["credential", "by", "decision", "reason", "at"],
    );
    object(
        json!({
            "requestId": text(),
            "jobId": text(),
            "type": words(ApprovalType::ALL.map(ApprovalType::as_str)),
            "createdAt": time(),
            "resolvedAt": time(),
            "status": words(ApprovalStatus::ALL.map(ApprovalStatus::as_str)),
            "details": {"type": "object"},
            "decision": choice(),
            "decisionReason": text(),
            "waitingDuration": count(),
            "approval_state": words(ApprovalState::ALL.iter().map(|state| state.as_str())),
            "correlation_id": text(),
            "run_id": text(),
            "requested_by": text(),
            "decided_by": text(),
            "arguments_digest": text(),
            "policy_digest": text(),
            "tool": text(),
            "approval_mode": words(["owner", "delegated"]),
            "command_request_id": text(),
            "expires_at": time(),
            "quorum": count(),
            "votes": {"type": "array", "items": vote},
            "selected_option": optional("string"),
            "selected_index": optional("integer"),
            "custom": optional("string"),
        }),
        &[
            "requestId",
            "type",
            "createdAt",
            "status",
            "details",
            "approval_state",
            "correlation_id",
            "requested_by",
            "arguments_digest",
            "policy_digest",
            "tool",
            "quorum",
            "votes",
        ],
    )
}

fn decision() -> Value {
    let mut decision = object(
        json!({
            "decision": words(["approve", "deny"]),
            "reason": {"type": "string", "description": format!("Kept up to {REASON_CHARS_MAX} characters.")},
            "selected_option": {"type": "string", "description": "One of the options of a question."},
            "custom": {"type": "string", "description": "An answer to a question in words of one's own."},
        }),
        &[],
    );
    let named = |name: &str| json!({"required": [name]});
    decision["anyOf"] = json!([named("decision"), named("selected_option"), named("custom")]);
    decision["not"] = json!({"required": ["selected_option", "custom"]});
    decision
}

/// The fields of a command tool; `tool` names which, where they do not tell.
fn command() -> Value {
    let forms = CommandTool::ALL.into_iter().filter_map(|tool| {
        let definitions = schema::definitions();
        let definition = definitions.into_iter().find(|it| it.name == tool.name())?;
        let mut form = nullable(definition.input_schema);
        form["properties"]["tool"] = json!({"const": tool.name()});
        Some(form)
    });
    json!({"anyOf": forms.collect::<Vec<_>>()})
}

/// What may be left out may be null as well.
fn nullable(mut form: Value) -> Value {
    let required = form["required"].clone();
    let is_required = |name: &str| {
        required
            .as_array()
            .is_some_and(|names| names.iter().any(|it| it == name))
    };
    for (name, property) in form["properties"].as_object_mut().into_iter().flatten() {
        if !is_required(name) {
            *property = json!({"anyOf": [property, {"type": "null"}]});
        }
    }
    form
}

fn result() -> Value {
    let mut definitions = schema::definitions().into_iter();
    definitions.next().map_or(Value::Null, |tool| tool.output_schema)
}

fn session() -> Value {
    object(
        json!({
            "sessionId": text(),
            "transport": transport(),
            "state": words(SessionState::ALL.map(SessionState::as_str)),
            "createdAt": time(),
            "lastActivityAt": time(),
            "credential": text(),
            "clientName": text(),
            "clientVersion": text(),
            "protocolVersion": text(),
            "expiresAt": time(),
        }),
        &[
            "sessionId",
            "transport",
            "state",
            "createdAt",
            "lastActivityAt",
            "credential",
        ],
    )
}

fn token() -> Value {
    object(
        json!({
            "id": text(),
            "role": words(Role::ALL.map(Role::as_str)),
            "name": text(),
            "createdAt": time(),
            "revokedAt": optional("string"),
            "expiresAt": optional("string"),
            "run": optional("string"),
        }),
        &["id", "role", "name", "createdAt", "revokedAt", "expiresAt", "run"],
    )
}

fn supposed() -> Value {
    let mut run = object(
        json!({
            "agent_key": optional("string"), "label": optional("string"), "project": optional("string"),
            "namespace": optional("string"), "cluster": optional("string"), "repository": optional("string"),
            "labels": texts(),
        }),
        &[],
    );
    run["type"] = json!(["object", "null"]);
    object(
        json!({
            "tool": text(),
            "arguments": {"type": "object", "description": "As a client would send them."},
            "role": {"enum": ["agent", "operator", null]},
            "run": run,
        }),
        &["tool"],
    )
}

fn explanation() -> Value {
    let part = object(
        json!({"rule": text(), "source": text(), "effect": text()}),
        &["rule", "source", "effect"],
    );
    object(
        json!({
            "verdict": words(["allow", "ask", "deny"]),
            "rule": text(),
            "source": text(),
            "sources": texts(),
            "reason": text(),
            "took_part": {"type": "array", "items": part},
            "keys": {"type": "object"},
            "programs": texts(),
            "error_code": text(),
            "cwd": text(),
            "timeout_ms": count(),
            "sandbox": words(["read-only", "workspace-write", "danger-full-access"]),
            "network": words(["deny", "allow"]),
        }),
        &[
            "verdict",
            "rule",
            "source",
            "sources",
            "reason",
            "took_part",
            "keys",
            "programs",
        ],
    )
}

/// S1's, every field.
fn summary() -> Value {
    let number = json!({"type": "number", "minimum": 0});
    let counts = [
        "totalJobs",
        "completedJobs",
        "failedJobs",
        "cancelledJobs",
        "timeoutJobs",
        "p50JobDuration",
        "p95JobDuration",
        "p99JobDuration",
        "totalApprovals",
        "autoApprovedCount",
        "manualApprovedCount",
        "deniedCount",
        "processRestarts",
        "sessionRecoveries",
    ];
    let mut fields = Map::new();
    fields.insert("periodStart".to_owned(), time());
    fields.insert("periodEnd".to_owned(), time());
    fields.extend(counts.map(|name| (name.to_owned(), count())));
    fields.insert("avgJobDuration".to_owned(), number.clone());
    fields.insert("avgApprovalDuration".to_owned(), number);
    let errors = json!({"type": "object", "additionalProperties": count()});
    fields.insert("errorDistribution".to_owned(), errors);
    let names: Vec<String> = fields.keys().cloned().collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    object(Value::Object(fields), &names)
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn texts() -> Value {
    json!({"type": "array", "items": text()})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn hash() -> Value {
    json!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn optional(kind: &str) -> Value {
    json!({"type": [kind, "null"]})
}

fn choice() -> Value {
    words(["allow", "deny"])
}

fn transport() -> Value {
    words(Transport::ALL.map(Transport::as_str))
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Value {
    json!({"type": "string", "enum": words.into_iter().collect::<Vec<_>>()})
}
