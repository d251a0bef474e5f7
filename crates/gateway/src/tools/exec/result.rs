//! S0's CommandExecutionResult with what the contract adds, and the two forms a client gets it in.

use serde_json::{Map, Value, json};

use super::request::{PageRequest, StatusRequest, Stream};
use super::yaml;
use crate::audit::StoredCommand;
use crate::audit::payload::{Object, Payload};
use crate::audit::redact::Redactor;
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal, Status};
use crate::execution::output::{Output, Rendered, text};
use crate::ids::{ApprovalId, EventId, RequestId};
use crate::policy::effective::Layer;
use crate::service::{Answer, Room};

/// What to do about a command that goes on behind its answer.
const NEXT: &str =
    "the command goes on; call `command_status` with this `request_id`, and with `wait_ms` to wait for its end";

/// The result of a command, or of how far it has come.
#[derive(Clone, PartialEq, Debug)]
pub struct CommandResult {
    pub request_id: RequestId,
    pub status: Status,
    pub exit_code: Option<i32>,
    pub stdout: StreamResult,
    pub stderr: StreamResult,
    pub error: Option<ResultError>,
    pub duration_ms: u64,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub audit_id: Option<EventId>,
    /// Layers of confinement in force.
    pub sandbox: Vec<&'static str>,
    /// The question it waits for.
    pub approval_id: Option<ApprovalId>,
    /// Where a page of output starts and goes on, when one was asked for.
    pub page: Option<PageBounds>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ResultError {
    pub code: ErrorCode,
    pub message: String,
    pub details: Map<String, Value>,
    pub retryable: bool,
}

impl From<Refusal> for ResultError {
    fn from(refusal: Refusal) -> Self {
        Self {
            retryable: refusal.retryable(),
            code: refusal.code,
            message: refusal.message,
            details: refusal.details,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageBounds {
    pub offset: u64,
    pub next: Option<u64>,
}

/// One stream in a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamResult {
    /// Empty in the end that a live command holds: what it wrote is there already, as bytes.
    pub text: String,
    pub bytes: u64,
    pub truncated: bool,
    pub lossy: bool,
}

impl StreamResult {
    pub fn empty() -> Self {
        Self {
            text: String::new(),
            bytes: 0,
            truncated: false,
            lossy: false,
        }
    }

    pub fn of(output: &Output) -> Self {
        let Rendered { text, truncated, lossy } = output.render();
        Self {
            text,
            bytes: output.total(),
            truncated,
            lossy,
        }
    }

    /// Everything but the text.
    pub fn facts_of(output: &Output) -> Self {
        Self {
            text: String::new(),
            bytes: output.total(),
            truncated: output.left_out() > 0,
            lossy: output.is_lossy(),
        }
    }
}

impl CommandResult {
    /// The answer to a call that was refused before anything ran.
    pub fn refused(request_id: RequestId, at: Timestamp, refusal: Refusal) -> Self {
        Self {
            request_id,
            status: refusal.status(),
            exit_code: None,
            stdout: StreamResult::empty(),
            stderr: StreamResult::empty(),
            error: Some(refusal.into()),
            duration_ms: 0,
            started_at: at,
            finished_at: Some(at),
            audit_id: None,
            sandbox: Vec::new(),
            approval_id: None,
            page: None,
        }
    }

    /// The answer to a call that waits for a person. It has not ended.
    pub fn pending(request_id: RequestId, started_at: Timestamp, approval: ApprovalId, message: String) -> Self {
        let refusal = Refusal::new(ErrorCode::ApprovalPending, message).with("approval_id", approval.as_str());
        Self {
            finished_at: None,
            approval_id: Some(approval),
            ..Self::refused(request_id, started_at, refusal)
        }
    }

    /// A result put together from what the store kept; none while the command is open.
    pub fn restored(stored: &StoredCommand, status: Option<&StatusRequest>) -> Option<Self> {
        let end = stored.end.as_ref()?;
        let facts: Value = serde_json::from_str(&end.result).unwrap_or(Value::Null);
        let text = |name: &str| facts[name].as_str();
        let stream = |name: &str, kept: &[u8]| {
            let head = usize::try_from(facts["kept"][format!("{name}_head")].as_u64().unwrap_or(0))
                .unwrap_or(0)
                .min(kept.len());
            // What is shorter because secrets went was not cut.
            let is_cut = facts[format!("{name}_truncated")].as_bool().unwrap_or(false);
            let written = facts[format!("{name}_bytes")].as_u64().filter(|_| is_cut);
            let total = written.unwrap_or(0).max(kept.len() as u64);
            Output::restored(kept[..head].to_vec(), kept[head..].to_vec(), total)
        };
        let outputs = (stream("stdout", &end.stdout), stream("stderr", &end.stderr));
        let time = |name: &str| text(name).and_then(|text| Timestamp::parse(text).ok());
        let mut result = Self {
            request_id: stored.request_id.clone(),
            status: text("status").and_then(Status::parse).unwrap_or(Status::Failed),
            exit_code: facts["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok()),
            stdout: StreamResult::of(&outputs.0),
            stderr: StreamResult::of(&outputs.1),
            error: text("error_code").and_then(ErrorCode::parse).map(|code| ResultError {
                code,
                message: text("error_message").unwrap_or_default().to_owned(),
                details: facts["error_details"].as_object().cloned().unwrap_or_default(),
                retryable: facts["retryable"].as_bool().unwrap_or(code.retryable()),
            }),
            duration_ms: facts["duration_ms"].as_u64().unwrap_or(0),
            started_at: time("started_at").unwrap_or(stored.opened_at),
            // What the sweeper closed has no end of its own but the moment it was closed.
            finished_at: time("finished_at").or_else(|| time("timestamp")),
            audit_id: text("audit_id").map(EventId::trusted),
            sandbox: facts["sandbox"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| Layer::parse(name.as_str()?))
                .map(Layer::as_str)
                .collect(),
            approval_id: None,
            page: None,
        };
        if let Some((status, page)) = status.and_then(|status| Some((status, status.page?))) {
            let output = match status.stream {
                Stream::Stdout => &outputs.0,
                Stream::Stderr => &outputs.1,
            };
            result.show_page(output, status.stream, page);
        }
        Some(result)
    }

    /// Puts a page of one stream in the place of all of it. Whoever reads the pages of standard error does not want the
    /// whole of standard output with each.
    pub fn show_page(&mut self, output: &Output, stream: Stream, page: PageRequest) {
        let part = output.page(page.offset, page.limit);
        let target = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => {
                self.stdout.text.clear();
                &mut self.stderr
            }
        };
        (target.text, target.lossy) = text(part.bytes);
        self.page = Some(PageBounds {
            offset: part.offset,
            next: part.next,
        });
    }

    /// Bytes of both texts.
    pub fn text_bytes(&self) -> usize {
        self.stdout.text.len() + self.stderr.text.len()
    }

    /// `structuredContent`; every field of the output schema is there.
    pub fn structured(mut self) -> Value {
        let (stdout, stderr) = self.take_texts();
        self.structured_telling(stdout, stderr)
    }

    /// The same with texts that are not its own.
    fn structured_telling(&self, stdout: String, stderr: String) -> Value {
        let mut fields = self.facts();
        fields.insert("stdout".into(), Value::String(stdout));
        fields.insert("stderr".into(), Value::String(stderr));
        Value::Object(fields)
    }

    /// Everything but the output.
    pub fn facts(&self) -> Map<String, Value> {
        let mut fields = Map::with_capacity(24);
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("request_id", json!(self.request_id.as_str()));
        put("status", json!(self.status.as_str()));
        put("exit_code", json!(self.exit_code));
        put("error_code", json!(self.error.as_ref().map(|error| error.code.name())));
        put(
            "error_message",
            json!(self.error.as_ref().map(|error| error.message.as_str())),
        );
        put(
            "retryable",
            json!(self.error.as_ref().is_some_and(|error| error.retryable)),
        );
        put("duration_ms", json!(self.duration_ms));
        put("started_at", json!(self.started_at.to_string()));
        put("finished_at", json!(self.finished_at.map(|at| at.to_string())));
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            put(&format!("{name}_bytes"), json!(stream.bytes));
            put(&format!("{name}_truncated"), json!(stream.truncated));
            put(&format!("{name}_lossy"), json!(stream.lossy));
        }
        put("audit_id", json!(self.audit_id.as_ref().map(EventId::as_str)));
        put("sandbox", json!(self.sandbox));
        if let Some(approval) = &self.approval_id {
            put("approval_id", json!(approval.as_str()));
        }
        if self.status == Status::Running {
            put("next", json!(NEXT));
        }
        if let Some(page) = self.page {
            put("offset", json!(page.offset));
            put("next_offset", json!(page.next));
        }
        if let Some(error) = &self.error
            && !error.details.is_empty()
        {
            put("error_details", Value::Object(error.details.clone()));
        }
        fields
    }

    /// The facts as they are kept, without secrets; `heads` says how much of each stream is its head. Every
    /// call ends with these, so they are written at once rather than by way of a tree of values.
    pub fn kept_facts(&self, heads: (usize, usize), salt: &str, redactor: &Redactor) -> Payload {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let length = |number: usize| whole(number as u64);
        let kept = Object::new()
            .whole("stdout_head", length(heads.0))
            .whole("stderr_head", length(heads.1))
            .text("salt", salt)
            .finish();
        let error = self.error.as_ref();
        let message = error.map(|error| redactor.redact_text(&error.message));
        let details = error.map(|error| &error.details).filter(|details| !details.is_empty());
        let mut object = Object::new()
            .text("request_id", self.request_id.as_str())
            .text("status", self.status.as_str())
            .text_or_null("error_code", error.map(|error| error.code.name()))
            .text_or_null("error_message", message.as_deref())
            .flag("retryable", error.is_some_and(|error| error.retryable))
            .whole("duration_ms", whole(self.duration_ms))
            .text("started_at", &self.started_at.to_string())
            .text_or_null("finished_at", self.finished_at.map(|at| at.to_string()).as_deref())
            .whole("stdout_bytes", whole(self.stdout.bytes))
            .flag("stdout_truncated", self.stdout.truncated)
            .flag("stdout_lossy", self.stdout.lossy)
            .whole("stderr_bytes", whole(self.stderr.bytes))
            .flag("stderr_truncated", self.stderr.truncated)
            .flag("stderr_lossy", self.stderr.lossy)
            .text_or_null("audit_id", self.audit_id.as_ref().map(EventId::as_str))
            .texts("sandbox", self.sandbox.iter().copied())
            .optional_text("approval_id", self.approval_id.as_ref().map(ApprovalId::as_str))
            .part("kept", &kept);
        if let Some(details) = details {
            let details = redactor.redact_json(&Value::Object(details.clone()));
            object = object.part("error_details", &Payload::from(&details));
        }
        match self.exit_code {
            Some(code) => object.whole("exit_code", code.into()),
            None => object.null("exit_code"),
        }
        .finish()
    }

    /// Both forms of the result, for a client that reads either.
    pub fn answer(mut self) -> Answer {
        let (stdout, stderr) = self.take_texts();
        self.answer_telling(stdout, stderr)
    }

    fn take_texts(&mut self) -> (String, String) {
        let take = |stream: &mut StreamResult| std::mem::take(&mut stream.text);
        (take(&mut self.stdout), take(&mut self.stderr))
    }

    /// The same with texts that are not its own.
    pub(crate) fn answer_telling(&self, stdout: String, stderr: String) -> Answer {
        let structured = self.structured_telling(stdout, stderr);
        Answer {
            text: yaml::write(&structured),
            structured,
            is_error: self.status.is_error(),
            command: None,
            is_repeat: false,
            room: Room::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::Config;

    fn of(refusal: Refusal) -> CommandResult {
        CommandResult::refused(RequestId::trusted("r"), Timestamp::from_millis(1_000), refusal)
    }

    #[test]
    fn facts_are_kept_as_they_are_told() {
        let failed = of(Refusal::new(ErrorCode::Conflict, "twice").with("owner", "ann"));
        let ended = CommandResult {
            status: Status::Ok,
            exit_code: Some(0),
            error: None,
            audit_id: Some(EventId::trusted("e")),
            sandbox: vec!["session", "landlock"],
            ..failed.clone()
        };
        for result in [failed, ended] {
            let mut told = result.facts();
            told.insert(
                "kept".to_owned(),
                json!({"stdout_head": 3, "stderr_head": 0, "salt": "s"}),
            );
            let kept = result.kept_facts((3, 0), "s", &Redactor::new(Config::default()));
            assert_eq!(
                serde_json::from_str::<Value>(kept.as_str()).unwrap(),
                Value::Object(told)
            );
        }
    }

    #[test]
    fn a_page_of_standard_error_comes_without_standard_output() {
        let output = |text: &str| {
            let mut output = Output::with_limit(64);
            output.push(text.as_bytes());
            output
        };
        let (stdout, stderr) = (output("said"), output("wrong"));
        let mut result = of(Refusal::new(ErrorCode::Cancelled, "over"));
        (result.stdout, result.stderr) = (StreamResult::of(&stdout), StreamResult::of(&stderr));
        let page = PageRequest { offset: 1, limit: 2 };
        let mut paged = result.clone();
        paged.show_page(&stderr, Stream::Stderr, page);
        let told = paged.structured();
        assert_eq!((&told["stdout"], &told["stdout_bytes"]), (&json!(""), &json!(4)));
        assert_eq!((&told["stderr"], &told["next_offset"]), (&json!("ro"), &json!(3)));
        result.show_page(&stdout, Stream::Stdout, page);
        let told = result.structured();
        assert_eq!((&told["stdout"], &told["stderr"]), (&json!("ai"), &json!("wrong")));
    }

    #[test]
    fn no_secret_is_kept_in_what_went_wrong() {
        let result = of(Refusal::new(ErrorCode::Conflict, "--token abc was refused").with("token", "abc"));
        let kept = result.kept_facts((0, 0), "s", &Redactor::new(Config::default()));
        assert!(!kept.as_str().contains("abc"), "{}", kept.as_str());
    }
}
