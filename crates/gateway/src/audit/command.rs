//! S0's CommandAuditRecord: what the closing event of every command request says.

use serde_json::{Value, json};

use crate::audit::redact::Redactor;
use crate::clock::Timestamp;
use crate::error::Status;
use crate::ids::{EventId, RequestId};
use crate::tools::exec::request::{Act, CommandRequest};

/// The record of one command, before it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct CommandAuditRecord {
    pub request_id: RequestId,
    pub command: String,
    pub arguments: Vec<String>,
    pub working_directory: String,
    pub policy_snapshot: Value,
    /// What is worth keeping beyond S0's fields.
    pub extra: Value,
}

impl CommandAuditRecord {
    /// The request as asked, redacted. `programs` are the parsed programs of a shell line, and `cwd`
    /// the canonical directory once it is known.
    pub fn of(
        request_id: RequestId,
        request: &CommandRequest,
        programs: &[String],
        cwd: Option<&str>,
        snapshot: Value,
        redactor: &Redactor,
    ) -> Self {
        let (command, arguments) = match &request.act {
            Act::Line(line) => (redactor.redact_text(line).into_owned(), redactor.redact_args(programs)),
            Act::Argv { file, args } => (redactor.redact_text(file).into_owned(), redactor.redact_args(args)),
        };
        let directory = cwd.or(request.cwd.as_deref()).unwrap_or(".");
        Self {
            request_id,
            command,
            arguments,
            working_directory: redactor.redact_text(directory).into_owned(),
            policy_snapshot: snapshot,
            extra: json!({"tool": request.tool.name(), "caller_id": request.caller_id.as_deref().map(|id| redactor.redact_text(id))}),
        }
    }

    /// For arguments that could not even be read: what was asked is unknown.
    pub fn unreadable(request_id: RequestId, tool: &str, snapshot: Value) -> Self {
        Self {
            request_id,
            command: String::new(),
            arguments: Vec::new(),
            working_directory: String::new(),
            policy_snapshot: snapshot,
            extra: json!({"tool": tool}),
        }
    }

    /// The payload of the closing event.
    pub fn closed(&self, audit_id: &EventId, at: Timestamp, end: &End<'_>) -> Value {
        let mut payload = self.ending(end);
        payload["audit_id"] = json!(audit_id.as_str());
        payload["timestamp"] = json!(at.to_string());
        payload
    }

    /// The same without id and time, for whoever closes it later.
    pub fn ending(&self, end: &End<'_>) -> Value {
        json!({
            "request_id": self.request_id.as_str(),
            "command": self.command,
            "arguments": self.arguments,
            "working_directory": self.working_directory,
            "status": end.status.as_str(),
            "error_code": end.error_code,
            "error_message": end.error_message,
            "exit_code": end.exit_code,
            "duration_ms": end.duration_ms,
            "sandbox": end.sandbox,
            "policy_snapshot": self.policy_snapshot,
            "tool": self.extra["tool"],
            "caller_id": self.extra["caller_id"],
        })
    }
}

/// How the command ended, as recorded.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    pub status: Status,
    pub error_code: Option<&'a str>,
    pub error_message: Option<&'a str>,
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    pub sandbox: &'a [&'static str],
}
