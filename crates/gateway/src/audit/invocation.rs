//! S2's McpToolInvocation: the fact of one `tools/call`, as a view of the record.
//!
//! Nothing is stored for it. A call that became a command is told by the events of that command, a
//! call that was answered while its command went on by the event of that answer, and every other call
//! by the one event it left. One event *settles* each invocation ([`SETTLING`]); the store finds those,
//! and [`derive`] puts the entity together.

use serde_json::{Map, Value, json};

use super::StoredCommand;
use super::event::EventType;
use super::redact::{REPLACEMENT, Redactor};
use crate::clock::Timestamp;
use crate::error::ErrorCode;
use crate::limits;
use crate::tools::exec::request::CommandTool;
use crate::tools::exec::result::CommandResult;

/// The events by which a call is known to have been answered. A command that was answered early has
/// two of them; the answer counts.
pub const SETTLING: [EventType; 3] = [
    EventType::ToolCalled,
    EventType::ToolAnswered,
    EventType::CommandCompleted,
];

/// An event as it was recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    pub event_id: String,
    pub timestamp: Timestamp,
    pub correlation_id: String,
    pub event_type: EventType,
    pub payload: Value,
}

impl Entry {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.payload[name].as_str()
    }
}

/// What the record has of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct Sources {
    pub settling: Entry,
    /// `command.received` of the same call; pruned ones are missing.
    pub opening: Option<Entry>,
    /// The command's row, for its result.
    pub command: Option<StoredCommand>,
    /// The id of the session that the events name by its mark; none when the session is no longer kept.
    pub session: Option<String>,
}

/// S2's entity.
#[derive(Clone, PartialEq, Debug)]
pub struct Invocation {
    pub invocation_id: String,
    /// None for a call outside any session.
    pub session_id: Option<String>,
    /// The client's id of the request, or null.
    pub request_id: Value,
    pub tool_name: String,
    pub arguments: Map<String, Value>,
    pub outcome: Outcome,
    pub started_at: Timestamp,
    // INVARIANT: not before `started_at`.
    pub finished_at: Timestamp,
    pub correlation_id: String,
}

/// Either a result or an error, never both.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    Ok(Value),
    Error(Value),
}

impl Invocation {
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("invocationId", json!(self.invocation_id));
        if let Some(session) = &self.session_id {
            put("sessionId", json!(session));
        }
        put("requestId", self.request_id.clone());
        put("toolName", json!(self.tool_name));
        put("arguments", Value::Object(self.arguments.clone()));
        match &self.outcome {
            Outcome::Ok(result) => {
                put("status", json!("ok"));
                put("result", result.clone());
            }
            Outcome::Error(error) => {
                put("status", json!("error"));
                put("error", error.clone());
            }
        }
        put("startedAt", json!(self.started_at.to_string()));
        put("finishedAt", json!(self.finished_at.to_string()));
        let took = self.finished_at.as_millis() - self.started_at.as_millis();
        put("durationMs", json!(took));
        put("correlation_id", json!(self.correlation_id));
        Value::Object(fields)
    }
}

/// The invocation that an event settles; none for an event that settles none.
pub fn derive(sources: Sources) -> Option<Invocation> {
    let Sources {
        settling,
        opening,
        command,
        session,
    } = sources;
    let first = opening.as_ref().unwrap_or(&settling);
    let outcome = match settling.event_type {
        EventType::CommandCompleted => completed(&settling, command.as_ref()),
        EventType::ToolCalled | EventType::ToolAnswered => match &settling.payload["error"] {
            Value::Null => Outcome::Ok(settling.payload["result"].clone()),
            error => Outcome::Error(error.clone()),
        },
        _ => return None,
    };
    let started = settling.text("started_at").and_then(|at| Timestamp::parse(at).ok());
    let started_at = opening
        .as_ref()
        .map(|opening| opening.timestamp)
        .or(started)
        .unwrap_or(settling.timestamp);
    Some(Invocation {
        invocation_id: first.event_id.clone(),
        session_id: session.or_else(|| first.text("session_id").map(str::to_owned)),
        request_id: client_id(first),
        tool_name: settling.text("tool").unwrap_or_default().to_owned(),
        arguments: arguments(first),
        outcome,
        started_at,
        finished_at: settling.timestamp.max(started_at),
        correlation_id: settling.correlation_id.clone(),
    })
}

/// The client's id of the request, as it was.
pub(super) fn client_id(entry: &Entry) -> Value {
    entry
        .text("rpc_id")
        .and_then(|id| serde_json::from_str(id).ok())
        .unwrap_or_default()
}

fn completed(end: &Entry, command: Option<&StoredCommand>) -> Outcome {
    if end.text("status") == Some("ok") {
        let result = command.and_then(|command| CommandResult::restored(command, None));
        return Outcome::Ok(result.map_or_else(|| remains(end), |result| result.structured()));
    }
    let code = end.text("error_code").and_then(ErrorCode::parse);
    Outcome::Error(refusal_error(
        code.unwrap_or(ErrorCode::InternalError),
        end.text("error_message").unwrap_or_default(),
        &json!({}),
        &end.correlation_id,
    ))
}

/// What the closing event alone knows of a result.
fn remains(end: &Entry) -> Value {
    let names = [
        "request_id",
        "status",
        "exit_code",
        "duration_ms",
        "audit_id",
        "sandbox",
    ];
    let known = names.map(|name| (name.to_owned(), end.payload[name].clone()));
    Value::Object(known.into_iter().collect())
}

/// S2's error: the table's code and what every JSON-RPC error of ours has in its data.
pub fn refusal_error(code: ErrorCode, message: &str, details: &Value, correlation_id: &str) -> Value {
    json!({
        "code": code.json_rpc(),
        "message": message,
        "data": {
            "errorCode": code.name(),
            "details": details,
            "retryable": code.retryable(),
            "correlation_id": correlation_id,
        },
    })
}

/// A call's arguments under the names its tool has for them.
pub(super) fn arguments(entry: &Entry) -> Map<String, Value> {
    let payload = &entry.payload;
    if let EventType::ToolCalled | EventType::ToolAnswered = entry.event_type {
        return payload["arguments"].as_object().cloned().unwrap_or_default();
    }
    if let Value::Array(names) = &payload["fields"] {
        let named = names.iter().filter_map(Value::as_str);
        return named.map(|name| (name.to_owned(), json!(NOT_READ))).collect();
    }
    // What a declared tool was called with stands beside what that became.
    if let Value::Object(given) = &payload["tool_arguments"] {
        return given.clone();
    }
    let tool = CommandTool::ALL
        .into_iter()
        .find(|tool| Some(tool.name()) == entry.text("tool"));
    let (command, args, directory) = match tool {
        Some(CommandTool::ExecuteCommand) | None => ("command", None, "cwd"),
        Some(CommandTool::ExecuteProcess | CommandTool::Declared(_)) => ("file", Some("args"), "cwd"),
        Some(CommandTool::RunCommand) => ("command", Some("args"), "working_directory"),
    };
    let mut told = Map::new();
    let mut put = |name: &str, value: &Value| {
        if !value.is_null() {
            told.insert(name.to_owned(), value.clone());
        }
    };
    put(command, &payload["command"]);
    if let Some(args) = args {
        put(args, &payload["arguments"]);
    }
    // A closing event has another word for it.
    put(directory, &payload["working_directory"]);
    put(directory, &payload["cwd"]);
    let names = [
        "justification",
        "sandbox",
        "network",
        "requested_at",
        "caller_id",
        "request_id",
    ];
    for name in names {
        if entry.event_type == EventType::CommandReceived || matches!(name, "caller_id" | "request_id") {
            put(name, &payload[name]);
        }
    }
    match (tool, payload["timeout_ms"].as_u64()) {
        (_, None) => {}
        (Some(CommandTool::RunCommand), Some(timeout)) => put("requested_timeout_seconds", &json!(timeout / 1_000)),
        (_, Some(timeout)) => put("timeout_ms", &json!(timeout)),
    }
    if let Some(bytes) = payload["input_bytes"].as_u64() {
        put("input", &json!(bytes_withheld(bytes)));
    }
    if let Value::Array(names) = &payload["env_names"] {
        let names = names.iter().filter_map(Value::as_str);
        let run = |name: &str| payload["env_run"].get(name).cloned();
        let env: Map<_, _> = names
            .map(|name| (name.to_owned(), run(name).unwrap_or_else(|| json!(REPLACEMENT))))
            .collect();
        put("env", &Value::Object(env));
    }
    told
}

/// Stands where an argument stood that could not be read: it may be anything, a secret too.
const NOT_READ: &str = "[not read]";

fn bytes_withheld(bytes: u64) -> String {
    format!("[{bytes} bytes]")
}

/// Arguments of a call that nobody reads further, as they may be recorded: redacted, of `env` the names
/// only, of `input` and of everything long only the length.
pub fn presentable_arguments(redactor: &Redactor, arguments: &Map<String, Value>) -> Value {
    let program = ["file", "command"]
        .iter()
        .find_map(|name| arguments.get(*name)?.as_str());
    let shown = arguments.iter().take(limits::ARGUMENTS_SHOWN_MAX).map(|(name, value)| {
        let value = match (name.as_str(), value) {
            ("input", Value::String(input)) => json!(bytes_withheld(input.len() as u64)),
            ("env", Value::Object(variables)) => {
                let names = variables.keys().take(limits::ARGUMENTS_SHOWN_MAX);
                names.map(|name| (cut(redactor, name), json!(REPLACEMENT))).collect()
            }
            ("input" | "env", Value::Null) => Value::Null,
            ("input" | "env", _) => json!(NOT_READ),
            // Withheld before it is searched for secrets: what is not kept need not be searched.
            (_, value) => match weight(value) {
                bytes if bytes > limits::ARGUMENT_BYTES_SHOWN => json!(bytes_withheld(bytes as u64)),
                _ if name == "args" && value.is_array() => {
                    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                    shallow(redactor.redact_items(program.unwrap_or_default(), items))
                }
                _ => shallow(redactor.redact_field(name, value)),
            },
        };
        (cut(redactor, name), value)
    });
    Value::Object(shown.collect())
}

/// Stands where something stood that was nested deeper than is kept.
const NESTED_DEEPER: &str = "[nested deeper]";

/// What a client nested, without what lies deeper than anybody reads: readers of JSON, ours and others,
/// refuse a document that nests too deep as a whole.
pub fn shallow(value: Value) -> Value {
    fn within(value: Value, levels: usize) -> Value {
        match value {
            Value::Array(_) | Value::Object(_) if levels == 0 => json!(NESTED_DEEPER),
            Value::Array(items) => items.into_iter().map(|item| within(item, levels - 1)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                Value::Object(fields.map(|(name, value)| (name, within(value, levels - 1))).collect())
            }
            plain => plain,
        }
    }
    within(value, limits::LEVELS_SHOWN_MAX)
}

fn cut(redactor: &Redactor, name: &str) -> String {
    let head: String = name.chars().take(4 * limits::ARGUMENT_NAME_CHARS_SHOWN).collect();
    let clean = redactor.redact_text(&head);
    clean.chars().take(limits::ARGUMENT_NAME_CHARS_SHOWN).collect()
}

/// Bytes of a value as JSON.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        other => other.to_string().len(),
    }
}

/// A client's id of a request, JSON, as it may be recorded.
pub fn presentable_id(redactor: &Redactor, id: &str) -> String {
    match serde_json::from_str(id) {
        Ok(Value::String(text)) => {
            let head: String = text.chars().take(4 * limits::RPC_ID_CHARS_SHOWN).collect();
            let clean = redactor.redact_text(&head);
            let shown: String = clean.chars().take(limits::RPC_ID_CHARS_SHOWN).collect();
            Value::String(shown).to_string()
        }
        Ok(Value::Number(number)) => number.to_string(),
        Ok(_) | Err(_) => "null".to_owned(),
    }
}

#[cfg(test)]
mod tests;
