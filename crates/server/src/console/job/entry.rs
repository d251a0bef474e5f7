//! The transcript of a job: its events as a person reads them. What an agent does takes several events; they
//! are one entry, which stands where it began and says how it came out.

use std::collections::HashMap;

use countersign_gateway::clock::Timestamp;
use countersign_gateway::job::event::{JobEvent, JobEventType, StoredEvent};
use serde_json::{Value, json};

use super::super::event::path_part;
use super::super::patch::{self, Change};
use super::super::text::{self, Html};
use super::super::time::Moment;
use crate::limits::TEXT_CHARS_SHOWN;

const OUTPUT_CHARS: usize = 4_000;

/// One thing that was said, done or decided.
pub(super) struct Entry {
    /// Where it began: names it among the others.
    pub(super) key: u64,
    /// The last event that it tells of.
    pub(super) seq: u64,
    pub(super) look: &'static str,
    pub(super) tone: &'static str,
    pub(super) label: String,
    pub(super) at: Moment,
    pub(super) code: Option<Html>,
    pub(super) text: Option<Html>,
    pub(super) output: Option<Html>,
    pub(super) changes: Vec<Change>,
    pub(super) link: Option<Link>,
}

/// Where more is said.
pub(super) struct Link {
    pub(super) path: String,
    pub(super) name: &'static str,
}

/// The entries of a job, oldest first.
pub(super) fn transcript(events: &[StoredEvent], has_steps: bool, now: Timestamp) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut items: HashMap<&str, usize> = HashMap::new();
    for StoredEvent { seq, event } in events {
        let item = match event.kind {
            JobEventType::AgentItem => event.data["itemId"].as_str(),
            _ => None,
        };
        if let Some(place) = item.and_then(|id| items.get(id)) {
            entries[*place].goes_on(*seq, event);
            continue;
        }
        let Some(entry) = Entry::of(*seq, event, has_steps, now) else {
            continue;
        };
        if let Some(id) = item {
            items.insert(id, entries.len());
        }
        entries.push(entry);
    }
    entries
}

/// What the edits that came about did to files, in their order.
pub(super) fn edited(events: &[StoredEvent]) -> Vec<Change> {
    let mut made: Vec<(&str, Vec<Value>)> = Vec::new();
    for StoredEvent { event, .. } in events {
        let data = &event.data;
        let is_edit = event.kind == JobEventType::AgentItem && data["kind"] == "edit";
        let Some(id) = data["itemId"].as_str().filter(|_| is_edit) else {
            continue;
        };
        let place = made.iter().position(|(known, _)| *known == id).unwrap_or_else(|| {
            made.push((id, Vec::new()));
            made.len() - 1
        });
        let changes = edits(&data["detail"]);
        if matches!(data["phase"].as_str(), Some("failed" | "declined")) {
            made[place].1.clear();
        } else if !changes.is_empty() {
            made[place].1 = changes;
        }
    }
    let all = made.into_iter().flat_map(|(_, changes)| changes).collect();
    patch::changes(Some(Value::Array(all)))
}

impl Entry {
    fn of(seq: u64, event: &JobEvent, has_steps: bool, now: Timestamp) -> Option<Self> {
        use JobEventType as Type;
        let (look, tone, label) = match event.kind {
            // What was asked stands above, what changed and was used beside.
            Type::JobCreated | Type::AgentDiff | Type::AgentUsage => return None,
            Type::CodexAgentMessage => ("from-agent", "quiet", "Agent"),
            Type::UserMessage => ("from-person", "quiet", "Message"),
            Type::AgentItem => return Some(Self::of_item(seq, event, now)),
            Type::ApprovalRequested => ("ask", "wait", "Asks"),
            Type::ApprovalApproved => ("ask", "good", "Approved"),
            Type::ApprovalAutoApproved => ("ask", "good", "Let go by a rule"),
            Type::ApprovalDenied => ("ask", "bad", "Denied"),
            Type::AgentWarning => ("note", "wait", "Warning"),
            Type::AgentRetrying => ("note", "wait", "Tries again"),
            Type::AgentLimit => ("note", "wait", "Limit reached"),
            Type::ProcessCrashed => ("note", "bad", "Process gone"),
            Type::ProcessRestarted => ("note", "wait", "Started again"),
            Type::SessionRecovering => ("note", "wait", "Being taken up again"),
            Type::JobStarted => ("note", "quiet", "Begun"),
            Type::JobCompleted => ("note", "good", "Done"),
            Type::JobFailed => ("note", "bad", "Failed"),
            Type::JobCancelled => ("note", "quiet", "Interrupted"),
            Type::JobTimeout => ("note", "bad", "Out of time"),
            Type::CodexTaskError => ("note", "bad", "Turn ended"),
            Type::SessionCreated
            | Type::SessionActive
            | Type::SessionIdle
            | Type::SessionTerminated
            | Type::ProcessStarted
            | Type::CodexTaskStarted
            | Type::CodexTaskComplete
            | Type::AgentEvent => {
                if !has_steps {
                    return None;
                }
                ("note", "quiet", event.kind.as_str())
            }
        };
        let words = event.words();
        let shown = text::lines(&words, TEXT_CHARS_SHOWN);
        let mut entry = Self::new(seq, event, look, now);
        entry.tone = tone;
        label.clone_into(&mut entry.label);
        match (look, event.data["command"].as_str()) {
            ("ask", Some(command)) => {
                entry.code = Some(text::shown(command, TEXT_CHARS_SHOWN));
                let reason = event.data["decisionReason"].as_str();
                let reason = reason.or(event.data["reason"].as_str()).filter(|it| !it.is_empty());
                entry.text = reason.map(|reason| text::shown(reason, TEXT_CHARS_SHOWN));
            }
            _ if words.is_empty() => {}
            _ => entry.text = Some(shown),
        }
        if event.kind == Type::ApprovalRequested {
            entry.changes = patch::changes(event.data.get("fileChanges").cloned());
        }
        let approval = event.data["requestId"].as_str().filter(|id| path_part(id) == *id);
        entry.link = approval.filter(|_| look == "ask").map(|id| Link {
            path: format!("/approvals/{id}"),
            name: "the question",
        });
        Some(entry)
    }

    fn of_item(seq: u64, event: &JobEvent, now: Timestamp) -> Self {
        let mut entry = Self::new(seq, event, "act", now);
        let kind = match event.data["kind"].as_str() {
            Some("command") => "Command",
            Some("edit") => "Edit",
            _ => "Tool",
        };
        kind.clone_into(&mut entry.label);
        entry.goes_on(seq, event);
        entry
    }

    fn new(seq: u64, event: &JobEvent, look: &'static str, now: Timestamp) -> Self {
        Self {
            key: seq,
            seq,
            look,
            tone: "quiet",
            label: String::new(),
            at: Moment::of(event.timestamp, now),
            code: None,
            text: None,
            output: None,
            changes: Vec::new(),
            link: None,
        }
    }

    /// A further event of the same item: what it adds is shown with what is known.
    fn goes_on(&mut self, seq: u64, event: &JobEvent) {
        let data = &event.data;
        self.seq = seq;
        if let Some(title) = data["title"].as_str().filter(|title| !title.is_empty()) {
            self.code = Some(text::shown(title, TEXT_CHARS_SHOWN));
        }
        let (tone, word) = match data["phase"].as_str() {
            Some("completed") => ("good", "done"),
            Some("failed") => ("bad", "failed"),
            Some("declined") => ("bad", "declined"),
            _ => ("wait", "at it"),
        };
        self.tone = tone;
        let kind = self.label.split(' ').next().unwrap_or_default().to_owned();
        self.label = format!("{kind} {word}");
        let changes = edits(&data["detail"]);
        if !changes.is_empty() {
            self.changes = patch::changes(Some(Value::Array(changes)));
            // The files say it all.
            self.code = None;
        }
        if let Some(said) = output(&data["detail"]).filter(|said| !said.trim().is_empty()) {
            self.output = Some(text::lines(&said, OUTPUT_CHARS));
        }
    }
}

/// What an edit does to files, in the words of whichever agent makes it.
fn edits(detail: &Value) -> Vec<Value> {
    if let Some(changes) = detail["changes"].as_array() {
        return changes.iter().map(one_edit).collect();
    }
    let parts = detail["content"].as_array().into_iter().flatten();
    let diffs: Vec<Value> = parts
        .filter(|part| part["type"] == "diff")
        .map(|part| replaced(&part["path"], &part["oldText"], &part["newText"]))
        .collect();
    if !diffs.is_empty() {
        return diffs;
    }
    match (&detail["file_path"], &detail["new_string"], &detail["content"]) {
        (path @ Value::String(_), new @ Value::String(_), _) => vec![replaced(path, &detail["old_string"], new)],
        (path @ Value::String(_), _, new @ Value::String(_)) => vec![replaced(path, &Value::Null, new)],
        _ => Vec::new(),
    }
}

/// Codex says `kind` as a word or as an object with one.
fn one_edit(change: &Value) -> Value {
    let mut shown = change.clone();
    if let Some(kind) = change["kind"]["type"].as_str() {
        shown["kind"] = json!(kind);
    }
    shown
}

/// Lines that go, then lines that come.
fn replaced(path: &Value, old: &Value, new: &Value) -> Value {
    let signed = |sign: char, text: &Value| {
        let lines = text.as_str().unwrap_or_default().lines();
        lines.map(|line| format!("{sign}{line}\n")).collect::<String>()
    };
    let kind = if old.is_null() { "create" } else { "modify" };
    json!({"path": path, "type": kind, "diff": format!("{}{}", signed('-', old), signed('+', new))})
}

/// What a command or a tool said.
fn output(detail: &Value) -> Option<String> {
    for name in ["aggregatedOutput", "aggregated_output", "output", "stdout"] {
        if let Some(text) = detail[name].as_str() {
            return Some(text.to_owned());
        }
    }
    let parts = match detail {
        Value::String(text) => return Some(text.clone()),
        Value::Array(parts) => parts,
        _ => detail["content"].as_array()?,
    };
    let text = |part: &Value| {
        let inner = part["text"].as_str().or(part["content"]["text"].as_str());
        inner.map(str::to_owned)
    };
    let texts: Vec<_> = parts.iter().filter_map(text).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use countersign_gateway::ids::{EventId, JobId};

    use super::*;

    fn stored(seq: u64, kind: JobEventType, data: Value) -> StoredEvent {
        StoredEvent {
            seq,
            event: JobEvent {
                event_id: EventId::trusted(seq.to_string()),
                timestamp: Timestamp::from_millis(0),
                job_id: JobId::trusted("j"),
                session_id: None,
                kind,
                data,
            },
        }
    }

    #[test]
    fn what_an_agent_does_is_one_entry_from_its_beginning_to_its_end() {
        let item = |phase: &str, detail: Value| json!({"itemId": "i1", "kind": "command", "phase": phase, "title": "cargo test", "detail": detail});
        let events = [
            stored(
                1,
                JobEventType::AgentItem,
                item("started", json!({"command": "cargo test"})),
            ),
            stored(2, JobEventType::CodexAgentMessage, json!({"message": "a <b> word"})),
            stored(
                3,
                JobEventType::AgentItem,
                item("failed", json!({"aggregatedOutput": "1 failed"})),
            ),
        ];
        let entries = transcript(&events, false, Timestamp::from_millis(0));
        assert_eq!(entries.len(), 2);
        let did = &entries[0];
        assert_eq!(
            (did.key, did.seq, did.tone, did.label.as_str()),
            (1, 3, "bad", "Command failed")
        );
        assert_eq!(did.output.as_ref().unwrap().to_string(), "1 failed\n");
        assert_eq!(entries[1].text.as_ref().unwrap().to_string(), "a &lt;b&gt; word\n");
    }

    #[test]
    fn edits_of_every_agent_are_shown_line_by_line() {
        for (detail, added, removed) in [
            (
                json!({"changes": [{"path": "a", "kind": {"type": "update"}, "diff": "@@\n-x\n+y\n+z"}]}),
                2,
                1,
            ),
            (json!({"file_path": "a", "old_string": "x", "new_string": "y\nz"}), 2, 1),
            (json!({"file_path": "a", "content": "x\ny"}), 2, 0),
            (
                json!({"content": [{"type": "diff", "path": "a", "oldText": "x", "newText": "y"}]}),
                1,
                1,
            ),
        ] {
            let data = json!({"itemId": "i", "kind": "edit", "phase": "completed", "title": "a", "detail": detail});
            let entries = transcript(
                &[stored(1, JobEventType::AgentItem, data)],
                false,
                Timestamp::from_millis(0),
            );
            let change = &entries[0].changes[0];
            assert_eq!((change.added, change.removed), (added, removed), "{detail}");
        }
    }

    #[test]
    fn a_question_leads_to_its_page_and_steps_are_for_those_who_want_them() {
        let events = [
            stored(1, JobEventType::SessionActive, json!({})),
            stored(
                2,
                JobEventType::ApprovalRequested,
                json!({"requestId": "a-1", "command": "rm x", "reason": "old"}),
            ),
            stored(
                3,
                JobEventType::ApprovalDenied,
                json!({"requestId": "../x", "command": "rm x"}),
            ),
        ];
        let now = Timestamp::from_millis(0);
        let entries = transcript(&events, false, now);
        assert_eq!(entries[0].link.as_ref().unwrap().path, "/approvals/a-1");
        assert!(entries[1].link.is_none(), "what is no id of ours leads nowhere");
        assert_eq!(transcript(&events, true, now).len(), 3);
    }
}
