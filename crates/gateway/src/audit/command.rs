//! S0's CommandAuditRecord: what the closing event of every command request says.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::audit::kept;
use crate::audit::payload::{Object, Payload};
use crate::audit::redact::Redactor;
use crate::clock::Timestamp;
use crate::error::{Refusal, Status};
use crate::ids::{EventId, RequestId};
use crate::policy::decide::Rule;
use crate::tools::exec::request::{Act, CommandRequest};

/// The record of one command, before it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct CommandAuditRecord {
    pub request_id: RequestId,
    pub command: String,
    pub arguments: Vec<String>,
    pub working_directory: String,
    pub policy_snapshot: Arc<Payload>,
    pub tool: String,
    pub caller_id: Option<String>,
    /// The rule by which policy refused it; a request that passed has its rule in an event of its own.
    pub denied_by: Option<Rule>,
}

impl CommandAuditRecord {
    /// The request as asked, redacted. `programs` are the parsed programs of a shell line, and `cwd` is the directory
    /// it works in or wanted to.
    pub fn of(
        request_id: RequestId,
        request: &CommandRequest,
        programs: &[String],
        cwd: &Path,
        snapshot: Arc<Payload>,
        redactor: &Redactor,
    ) -> Self {
        let (command, arguments) = match &request.act {
            Act::Line(line) => {
                let programs = programs.iter().map(|name| redactor.redact_text(name).into_owned());
                (redactor.redact_line(line).into_owned(), programs.collect())
            }
            Act::Argv { file, args } => (
                redactor.redact_text(file).into_owned(),
                redactor.redact_args(file, args),
            ),
        };
        Self {
            request_id,
            command,
            arguments,
            working_directory: redactor.redact_text(&cwd.to_string_lossy()).into_owned(),
            policy_snapshot: snapshot,
            tool: request.tool.name().to_owned(),
            caller_id: request
                .caller_id
                .as_deref()
                .map(|id| redactor.redact_text(id).into_owned()),
            denied_by: None,
        }
    }

    /// The payload of the closing event.
    pub fn closed(&self, audit_id: &EventId, at: Timestamp, end: &End<'_>) -> Payload {
        self.fields(end)
            .text("audit_id", audit_id.as_str())
            .text("timestamp", &at.to_string())
            .finish()
    }

    /// The same without id and time, for whoever closes it later.
    pub fn ending(&self, end: &End<'_>) -> Payload {
        self.fields(end).finish()
    }

    fn fields(&self, end: &End<'_>) -> Object {
        let object = Object::new()
            .text("request_id", self.request_id.as_str())
            .text("command", &self.command)
            .texts("arguments", self.arguments.iter().map(String::as_str))
            .text("working_directory", &self.working_directory)
            .text("status", end.status.as_str())
            .whole("duration_ms", i64::try_from(end.duration_ms).unwrap_or(i64::MAX))
            .texts("sandbox", end.sandbox.iter().copied())
            .part("policy_snapshot", &self.policy_snapshot)
            .text("tool", &self.tool)
            .optional_text("caller_id", self.caller_id.as_deref())
            .optional_text("error_message", end.error_message)
            .optional_text("rule", self.denied_by.as_ref().map(|rule| rule.name.as_str()))
            .optional_text("source", self.denied_by.as_ref().map(|rule| rule.source.as_str()))
            .optional_text(kept::FIELD, end.kept_digest)
            .text_or_null("error_code", end.error_code);
        match end.exit_code {
            Some(code) => object.whole("exit_code", code.into()),
            None => object.null("exit_code"),
        }
    }
}

/// The payload of the closing event of a command that somebody else opened, from what was stored with its
/// opening.
pub fn closed_later(stored: &str, audit_id: &EventId, at: Timestamp, end: Option<&Refusal>) -> Value {
    let mut payload: Map<String, Value> = serde_json::from_str(stored).unwrap_or_default();
    let mut put = |name: &str, value: &str| payload.insert(name.to_owned(), value.into());
    put("audit_id", audit_id.as_str());
    put("timestamp", &at.to_string());
    if let Some(refusal) = end {
        put("status", refusal.status().as_str());
        put("error_code", refusal.code.name());
        put("error_message", &refusal.message);
    }
    Value::Object(payload)
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
    /// Of what is kept with its row, where it has one.
    pub kept_digest: Option<&'a str>,
}
