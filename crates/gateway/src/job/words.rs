//! What an event of a job says to a person, in a line: for logs, progress and pages alike.

use serde_json::Value;

use super::event::{JobEvent, JobEventType};

/// Characters of what an agent, or a person, said.
const CHARS_MAX: usize = 2_000;

impl JobEvent {
    /// Empty where the kind of event says it all.
    pub fn words(&self) -> String {
        use JobEventType as Type;
        let data = &self.data;
        let text = |names: &[&str]| names.iter().find_map(|name| data[*name].as_str()).unwrap_or_default();
        let words = match self.kind {
            Type::JobCreated => data["input"]["prompt"].as_str().unwrap_or_default().to_owned(),
            Type::JobCompleted | Type::JobFailed | Type::JobCancelled | Type::JobTimeout => {
                data["error"]["message"].as_str().unwrap_or_default().to_owned()
            }
            Type::AgentItem => item(data),
            Type::AgentDiff => diff(text(&["diff"])),
            Type::AgentUsage => usage(data),
            Type::ApprovalRequested | Type::ApprovalApproved | Type::ApprovalDenied | Type::ApprovalAutoApproved => {
                about(data)
            }
            Type::UserMessage => message(data),
            Type::ProcessStarted | Type::ProcessRestarted => data["pid"]
                .as_u64()
                .map(|pid| format!("process {pid}"))
                .unwrap_or_default(),
            Type::SessionCreated => text(&["sessionName"]).to_owned(),
            Type::JobStarted
            | Type::SessionActive
            | Type::SessionIdle
            | Type::SessionRecovering
            | Type::SessionTerminated
            | Type::ProcessCrashed
            | Type::CodexTaskStarted
            | Type::CodexAgentMessage
            | Type::CodexTaskComplete
            | Type::CodexTaskError
            | Type::AgentWarning
            | Type::AgentRetrying
            | Type::AgentLimit
            | Type::AgentEvent => text(&["message", "result", "reason"]).to_owned(),
        };
        short(&words)
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// What the agent does, and how far it is.
fn item(data: &Value) -> String {
    let title = data["title"].as_str().unwrap_or_default();
    match data["phase"].as_str() {
        Some(phase) if !title.is_empty() => format!("{title} ({phase})"),
        Some(phase) => phase.to_owned(),
        None => title.to_owned(),
    }
}

fn diff(diff: &str) -> String {
    let count = |sign: char, header: &str| {
        let is_one = |line: &&str| line.starts_with(sign) && !line.starts_with(header);
        diff.lines().filter(is_one).count()
    };
    match (count('+', "+++ "), count('-', "--- ")) {
        (0, 0) => String::new(),
        (added, removed) => format!("+{added} −{removed} lines"),
    }
}

fn usage(data: &Value) -> String {
    let tokens = data["totalTokens"].as_u64().unwrap_or(0);
    match data["costUsd"].as_f64() {
        Some(cost) => format!("{tokens} tokens, ${cost:.4}"),
        None => format!("{tokens} tokens"),
    }
}

/// What a question was about, and why it was answered so.
fn about(data: &Value) -> String {
    let files = || {
        let paths = data["fileChanges"].as_array().into_iter().flatten();
        let paths: Vec<_> = paths.filter_map(|change| change["path"].as_str()).collect();
        paths.join(", ")
    };
    let named = ["command", "tool"].iter().find_map(|name| data[*name].as_str());
    let what = named.map_or_else(files, str::to_owned);
    match data["decisionReason"].as_str().filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    }
}

fn message(data: &Value) -> String {
    if let Some(text) = data["message"].as_str() {
        return text.to_owned();
    }
    let items = data["items"].as_array().into_iter().flatten();
    let texts = items.filter_map(|item| item["text"].as_str().or(item["imageUrl"].as_str()));
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Timestamp;
    use crate::ids::{EventId, JobId};

    #[test]
    fn every_kind_of_event_says_what_a_person_wants_to_know() {
        for (kind, data, words) in [
            (
                JobEventType::JobCreated,
                json!({"input": {"prompt": "fix it"}}),
                "fix it",
            ),
            (
                JobEventType::JobTimeout,
                json!({"duration": 3, "error": {"message": "the job's time was over"}}),
                "the job's time was over",
            ),
            (
                JobEventType::AgentItem,
                json!({"title": "cargo test", "phase": "failed"}),
                "cargo test (failed)",
            ),
            (
                JobEventType::AgentDiff,
                json!({"diff": "--- a\n+++ b\n@@\n-x\n+y\n+z"}),
                "+2 −1 lines",
            ),
            (
                JobEventType::AgentUsage,
                json!({"totalTokens": 1200, "costUsd": 0.0125}),
                "1200 tokens, $0.0125",
            ),
            (
                JobEventType::ApprovalDenied,
                json!({"command": "rm -rf x", "decisionReason": "not today"}),
                "rm -rf x: not today",
            ),
            (
                JobEventType::ApprovalRequested,
                json!({"fileChanges": [{"path": "a"}, {"path": "b"}]}),
                "a, b",
            ),
            (
                JobEventType::UserMessage,
                json!({"items": [{"type": "text", "text": "go on"}]}),
                "go on",
            ),
            (JobEventType::CodexTaskError, json!({"message": "no"}), "no"),
            (JobEventType::JobStarted, json!({}), ""),
        ] {
            let event = JobEvent {
                event_id: EventId::trusted("e"),
                timestamp: Timestamp::from_millis(0),
                job_id: JobId::trusted("j"),
                session_id: None,
                kind,
                data,
            };
            assert_eq!(event.words(), words, "{kind:?}");
        }
    }
}
