//! S1's Event: a line of `events.jsonl`, and the row it is made from.
//!
//! Rows of the database are the truth; they are numbered within a session without a gap, and the file is
//! caught up from them. What an agent says stands here and not in the hash chain, which holds the steps.

use serde_json::{Map, Value, json};

use super::driver::{AgentEvent, AgentEventKind, Item, ItemKind, ItemPhase, TurnEnd};
use super::lifecycle::{JobStep, SessionStep, words};
use crate::audit::redact::Redactor;
use crate::clock::Timestamp;
use crate::ids::{ConversationId, EventId, JobId};
use crate::limits;

words! {
    /// S1's EventType. The second half is what agents say that S1 has no name for.
    JobEventType {
        JobCreated "job-created",
        JobStarted "job-started",
        JobCompleted "job-completed",
        JobFailed "job-failed",
        JobCancelled "job-cancelled",
        JobTimeout "job-timeout",
        SessionCreated "session-created",
        SessionActive "session-active",
        SessionIdle "session-idle",
        SessionRecovering "session-recovering",
        SessionTerminated "session-terminated",
        ProcessStarted "process-started",
        ProcessCrashed "process-crashed",
        ProcessRestarted "process-restarted",
        ApprovalRequested "approval-requested",
        ApprovalApproved "approval-approved",
        ApprovalDenied "approval-denied",
        ApprovalAutoApproved "approval-auto-approved",
        CodexTaskStarted "codex-task-started",
        CodexAgentMessage "codex-agent-message",
        CodexTaskComplete "codex-task-complete",
        CodexTaskError "codex-task-error",

        UserMessage "user-message",
        AgentItem "agent-item",
        AgentDiff "agent-diff",
        AgentUsage "agent-usage",
        AgentWarning "agent-warning",
        AgentRetrying "agent-retrying",
        AgentLimit "agent-limit",
        AgentEvent "agent-event",
    }
}

impl JobEventType {
    pub fn of_step(step: JobStep) -> Self {
        match step {
            JobStep::Start => Self::JobStarted,
            JobStep::Complete => Self::JobCompleted,
            JobStep::Fail => Self::JobFailed,
            JobStep::Cancel => Self::JobCancelled,
            JobStep::TimeOut => Self::JobTimeout,
        }
    }

    pub fn of_session_step(step: SessionStep) -> Self {
        match step {
            SessionStep::Activate => Self::SessionActive,
            SessionStep::Rest => Self::SessionIdle,
            SessionStep::Recover => Self::SessionRecovering,
            SessionStep::Terminate => Self::SessionTerminated,
        }
    }

    /// S1's name of it in `codex-father/progress`; none for what S1 does not map.
    pub fn progress_name(self) -> Option<&'static str> {
        match self {
            Self::CodexTaskStarted => Some("task-started"),
            Self::CodexAgentMessage => Some("agent-message"),
            Self::CodexTaskComplete => Some("task-complete"),
            Self::CodexTaskError => Some("task-error"),
            Self::ApprovalRequested => Some("approval-required"),
            Self::JobCreated
            | Self::JobStarted
            | Self::JobCompleted
            | Self::JobFailed
            | Self::JobCancelled
            | Self::JobTimeout
            | Self::SessionCreated
            | Self::SessionActive
            | Self::SessionIdle
            | Self::SessionRecovering
            | Self::SessionTerminated
            | Self::ProcessStarted
            | Self::ProcessCrashed
            | Self::ProcessRestarted
            | Self::ApprovalApproved
            | Self::ApprovalDenied
            | Self::ApprovalAutoApproved
            | Self::UserMessage
            | Self::AgentItem
            | Self::AgentDiff
            | Self::AgentUsage
            | Self::AgentWarning
            | Self::AgentRetrying
            | Self::AgentLimit
            | Self::AgentEvent => None,
        }
    }
}

/// S1's Event.
#[derive(Clone, PartialEq, Debug)]
pub struct JobEvent {
    pub event_id: EventId,
    pub timestamp: Timestamp,
    pub job_id: JobId,
    /// The conversation, once it has its id.
    pub session_id: Option<ConversationId>,
    pub kind: JobEventType,
    /// Redacted, and no longer than is kept.
    pub data: Value,
}

impl JobEvent {
    pub fn to_json(&self) -> Value {
        let mut line = json!({
            "eventId": self.event_id.as_str(),
            "timestamp": self.timestamp.to_string(),
            "jobId": self.job_id.as_str(),
            "type": self.kind.as_str(),
            "data": self.data,
        });
        if let Some(session) = &self.session_id {
            line["sessionId"] = json!(session.as_str());
        }
        line
    }

    /// One line of the file, with its end.
    pub fn to_line(&self) -> String {
        let mut line = self.to_json().to_string();
        line.push('\n');
        line
    }
}

/// A row with its place among its session's.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredEvent {
    /// From 1, without a gap.
    pub seq: u64,
    pub event: JobEvent,
}

/// What is kept of something that an agent said; none for the pieces of a message, which comes whole
/// later, and for what is told by an event of our own.
pub fn of_agent(event: &AgentEvent, redactor: &Redactor) -> Option<(JobEventType, Value)> {
    use JobEventType as Type;
    let (kind, mut data) = match &event.kind {
        AgentEventKind::TextDelta(_)
        | AgentEventKind::Spawned(_)
        | AgentEventKind::Started { .. }
        | AgentEventKind::ApprovalRequested(_)
        | AgentEventKind::ApprovalWithdrawn(_)
        | AgentEventKind::Exited { .. } => return None,
        AgentEventKind::TurnStarted { turn_id } => (Type::CodexTaskStarted, json!({"turnId": turn_id})),
        AgentEventKind::Message(text) => (Type::CodexAgentMessage, json!({"message": text})),
        AgentEventKind::Item(item) => (Type::AgentItem, of_item(item)),
        AgentEventKind::Diff(diff) => (Type::AgentDiff, json!({"diff": diff})),
        AgentEventKind::Usage(usage) => (
            Type::AgentUsage,
            json!({
                "model": usage.model, "promptTokens": usage.prompt_tokens,
                "completionTokens": usage.completion_tokens, "totalTokens": usage.total_tokens,
                "costUsd": usage.cost_usd,
            }),
        ),
        AgentEventKind::Retrying { message } => (Type::AgentRetrying, json!({"message": message})),
        AgentEventKind::LimitReached { resets_at, message } => (
            Type::AgentLimit,
            json!({"message": message, "resetsAt": resets_at.map(|at| at.to_string())}),
        ),
        AgentEventKind::Warning(message) => (Type::AgentWarning, json!({"message": message})),
        AgentEventKind::TurnEnded(TurnEnd::Completed { result }) => {
            (Type::CodexTaskComplete, json!({"result": result}))
        }
        // What was broken off is not complete, and whoever follows should not take it for that.
        AgentEventKind::TurnEnded(TurnEnd::Interrupted) => (
            Type::CodexTaskError,
            json!({"message": "the turn was broken off before it was done", "interrupted": true, "retryable": false}),
        ),
        AgentEventKind::TurnEnded(TurnEnd::Failed { message, retryable }) => (
            Type::CodexTaskError,
            json!({"message": message, "retryable": retryable}),
        ),
        AgentEventKind::TurnEnded(TurnEnd::Crashed { message, .. }) => (
            Type::CodexTaskError,
            json!({"message": message, "crashed": true, "retryable": true}),
        ),
        AgentEventKind::Unknown => (Type::AgentEvent, json!({})),
    };
    if let Value::Object(fields) = &mut data {
        fields.retain(|_, value| !value.is_null());
    }
    if !event.raw.is_null() {
        data["raw"] = event.raw.clone();
    }
    Some((kind, presentable(redactor, data)))
}

/// Redacted, and cut where it is longer than is kept: what the agent wrote word for word goes first.
pub fn presentable(redactor: &Redactor, data: Value) -> Value {
    let mut data = redactor.redact_json(&data);
    let is_long = |data: &Value| data.to_string().len() > limits::AGENT_EVENT_BYTES_MAX;
    if !is_long(&data) {
        return data;
    }
    if let Value::Object(fields) = &mut data {
        fields.remove("raw");
        fields.insert("truncated".to_owned(), json!(true));
    }
    if is_long(&data)
        && let Value::Object(fields) = &mut data
    {
        let share = limits::AGENT_EVENT_BYTES_MAX / 4 / fields.len().max(1);
        let cut: Map<String, Value> = fields
            .iter()
            .map(|(name, value)| (name.clone(), short(value, share)))
            .collect();
        *fields = cut;
    }
    data
}

fn short(value: &Value, chars_max: usize) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) => return value.clone(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    match text.char_indices().nth(chars_max) {
        None => value.clone(),
        Some((end, _)) => json!(format!("{}…", &text[..end])),
    }
}

fn of_item(item: &Item) -> Value {
    let kind = match item.kind {
        ItemKind::Command => "command",
        ItemKind::Edit => "edit",
        ItemKind::Tool => "tool",
        ItemKind::Other => "other",
    };
    let phase = match item.phase {
        ItemPhase::Started => "started",
        ItemPhase::Updated => "updated",
        ItemPhase::Completed => "completed",
        ItemPhase::Failed => "failed",
        ItemPhase::Declined => "declined",
    };
    json!({"itemId": item.id, "kind": kind, "phase": phase, "title": item.title, "detail": item.detail})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::Config;

    #[test]
    fn a_line_is_one_json_object_with_the_fields_of_s1() {
        let event = JobEvent {
            event_id: EventId::trusted("e2"),
            timestamp: Timestamp::parse("2025-09-30T10:00:01Z").unwrap(),
            job_id: JobId::trusted("j1"),
            session_id: Some(ConversationId::trusted("s1")),
            kind: JobEventType::SessionCreated,
            data: json!({"sessionName": "a\nb"}),
        };
        let line = event.to_line();
        assert!(line.ends_with('\n') && !line[..line.len() - 1].contains('\n'));
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({"eventId": "e2", "timestamp": "2025-09-30T10:00:01.000Z", "jobId": "j1", "sessionId": "s1",
                   "type": "session-created", "data": {"sessionName": "a\nb"}})
        );
    }

    #[test]
    fn what_no_driver_knows_is_kept_as_it_came() {
        let event = AgentEvent {
            kind: AgentEventKind::Unknown,
            raw: json!({"type": "new.thing", "x": [1, 2]}),
        };
        let (kind, data) = of_agent(&event, &Redactor::new(Config::default())).unwrap();
        assert_eq!(kind, JobEventType::AgentEvent);
        assert_eq!(data, json!({"raw": {"type": "new.thing", "x": [1, 2]}}));
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let event = AgentEvent {
            kind: AgentEventKind::Message("é".repeat(limits::AGENT_EVENT_BYTES_MAX)),
            raw: json!({"text": "x".repeat(limits::AGENT_EVENT_BYTES_MAX)}),
        };
        let (_, data) = of_agent(&event, &Redactor::new(Config::default())).unwrap();
        assert!(data.to_string().len() <= limits::AGENT_EVENT_BYTES_MAX);
        assert_eq!((&data["truncated"], data.get("raw")), (&json!(true), None));
        assert!(data["message"].as_str().unwrap().starts_with("éé"));
    }

    #[test]
    fn the_progress_names_of_s1() {
        let named: Vec<_> = JobEventType::ALL
            .iter()
            .filter_map(|kind| kind.progress_name())
            .collect();
        assert_eq!(
            named,
            [
                "approval-required",
                "task-started",
                "agent-message",
                "task-complete",
                "task-error"
            ]
        );
    }
}
