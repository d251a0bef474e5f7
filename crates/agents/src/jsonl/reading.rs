//! What the five events mean, and that all others are kept as they are.

use std::collections::BTreeSet;
use std::path::PathBuf;

use countersign_gateway::job::driver::{
    AgentAnswer, AgentEvent, AgentEventKind, AgentQuestion, DriverError, FileChange, FileChangeKind, Input,
    QuestionAbout, TurnEnd,
};
use serde_json::{Value, json};

use super::definition::{Definition, EventFormat, InputMode};
use super::parsing::{Found, Values};
use crate::process::Ending;
use crate::speech::{Fate, Interruption, Speech, Step, cut_off, how_it_ended, noticed, tell, text_at};

pub(super) struct Lines {
    name: String,
    type_field: String,
    is_json_rpc: bool,
    is_open: bool,
    values: Values,
    is_busy: bool,
    fate: Fate,
    last_message: Option<String>,
    questions: BTreeSet<String>,
}

impl Lines {
    pub(super) fn new(definition: &Definition) -> Lines {
        let is_custom = matches!(definition.parsing.format, EventFormat::Custom { .. });
        Lines {
            name: definition.name.clone(),
            type_field: definition.parsing.event_type_field.clone(),
            is_json_rpc: definition.parsing.format == EventFormat::JsonRpc,
            is_open: definition.input == InputMode::Open,
            values: Values::new(definition.parsing.line_delimited || is_custom),
            is_busy: true,
            fate: Fate::Open,
            last_message: None,
            questions: BTreeSet::new(),
        }
    }

    fn read(&mut self, event: &Value) -> Vec<Step> {
        let kind = text_at(event, &[&self.type_field]).unwrap_or_default();
        let content = if self.is_json_rpc {
            event.get("params").unwrap_or(&Value::Null)
        } else {
            // Some put what an event says beside its name, some into a field of its own.
            event.get("data").filter(|data| data.is_object()).unwrap_or(event)
        };
        let one = |kind| vec![tell(kind, event)];
        match kind {
            "TaskStarted" => one(AgentEventKind::TurnStarted { turn_id: None }),
            "AgentMessage" => match words(content) {
                Some(text) => {
                    self.last_message = Some(text.to_owned());
                    one(AgentEventKind::Message(text.to_owned()))
                }
                None => one(AgentEventKind::Unknown),
            },
            "TaskComplete" => {
                let result = words(content).map(str::to_owned).or_else(|| self.last_message.clone());
                self.end(TurnEnd::Completed { result }, event)
            }
            "TaskError" => {
                let message = text_at(content, &["error"])
                    .or_else(|| text_at(content, &["error", "message"]))
                    .or_else(|| words(content));
                let end = TurnEnd::Failed {
                    message: message.unwrap_or("it failed and did not say why").to_owned(),
                    retryable: content.get("retryable").and_then(Value::as_bool).unwrap_or(false),
                };
                self.end(end, event)
            }
            "ApprovalRequired" => self.asked(content, event),
            _ => one(AgentEventKind::Unknown),
        }
    }

    fn end(&mut self, end: TurnEnd, event: &Value) -> Vec<Step> {
        if !std::mem::replace(&mut self.is_busy, false) {
            // A turn ends once; what is said after it is kept, and means nothing.
            return vec![tell(AgentEventKind::Unknown, event)];
        }
        let open = std::mem::take(&mut self.questions).into_iter();
        let mut steps: Vec<Step> = open
            .map(|id| tell(AgentEventKind::ApprovalWithdrawn(id), event))
            .collect();
        steps.push(tell(AgentEventKind::TurnEnded(end), event));
        steps
    }

    fn asked(&mut self, content: &Value, event: &Value) -> Vec<Step> {
        let id = text_at(content, &["requestId"]).unwrap_or_default();
        if id.is_empty() || !self.is_open {
            let reason = if id.is_empty() {
                "its question has no `requestId`"
            } else {
                "it asked, but its definition does not say `input: open`, so it gets no answer"
            };
            return vec![tell(AgentEventKind::Warning(reason.to_owned()), event)];
        }
        self.questions.insert(id.to_owned());
        let question = AgentQuestion {
            id: id.to_owned(),
            about: about(content),
            reason: text_at(content, &["reason"]).map(str::to_owned),
            wants_more: false,
        };
        vec![tell(AgentEventKind::ApprovalRequested(question), event)]
    }
}

impl Speech for Lines {
    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn hear(&mut self, line: &str) -> Vec<Step> {
        let found = self.values.read(line);
        let read = |found: Found| match found {
            Found::Event(event) => self.read(&event),
            Found::Words(text) => vec![tell(AgentEventKind::Unknown, &Value::String(text))],
        };
        found.into_iter().flat_map(read).collect()
    }

    fn send(&mut self, _message: Vec<Input>) -> Result<Vec<Value>, DriverError> {
        Err(DriverError::Unsupported(
            "a turn of this agent takes one message".to_owned(),
        ))
    }

    fn answer(&mut self, question: &str, answer: AgentAnswer) -> Result<Vec<Value>, DriverError> {
        if !self.questions.remove(question) {
            return Ok(Vec::new());
        }
        let (decision, reason) = match answer {
            AgentAnswer::Allow => ("allow", Value::Null),
            AgentAnswer::Deny { reason } => ("deny", json!(reason)),
        };
        Ok(vec![
            json!({"type": "ApprovalDecision", "requestId": question, "decision": decision, "reason": reason}),
        ])
    }

    fn interrupt(&mut self) -> Interruption {
        if self.is_busy {
            self.fate = Fate::Interrupted;
        }
        Interruption::Signals
    }

    fn is_busy(&self) -> bool {
        self.is_busy
    }

    fn is_waiting(&self) -> bool {
        !self.questions.is_empty()
    }

    fn condemn(&mut self, reason: &str) {
        self.fate = Fate::Condemned(reason.to_owned());
    }

    /// Exit 0 without a word is a completed turn, anything else a failed one that names the status.
    fn gone(&mut self, ending: Ending, last_words: &str) -> Vec<AgentEvent> {
        let open = std::mem::take(&mut self.questions).into_iter();
        let mut events: Vec<AgentEvent> = open.map(|id| noticed(AgentEventKind::ApprovalWithdrawn(id))).collect();
        if std::mem::replace(&mut self.is_busy, false) {
            events.push(match (ending.status, &self.fate) {
                (Some(0), Fate::Open) => {
                    let result = self.last_message.take();
                    noticed(AgentEventKind::TurnEnded(TurnEnd::Completed { result }))
                }
                // A status is an answer; only one that was ended by a signal did not come to give it.
                (Some(_), Fate::Open) => noticed(AgentEventKind::TurnEnded(TurnEnd::Failed {
                    message: how_it_ended(&self.name, ending, last_words),
                    retryable: false,
                })),
                (_, fate) => cut_off(&self.name, fate, ending, last_words),
            });
        }
        events
    }
}

fn words(content: &Value) -> Option<&str> {
    ["message", "text", "content", "result", "output"]
        .iter()
        .find_map(|name| text_at(content, &[name]))
}

fn about(content: &Value) -> QuestionAbout {
    let changes = content.get("fileChanges").and_then(Value::as_array);
    let changes = changes.filter(|changes| !changes.is_empty());
    match (text_at(content, &["command"]), changes) {
        (Some(command), _) => QuestionAbout::Command {
            command: command.to_owned(),
            cwd: text_at(content, &["cwd"]).map(PathBuf::from),
        },
        (None, Some(changes)) => QuestionAbout::Patch {
            changes: changes.iter().map(change).collect(),
            grant_root: content
                .get("grantRoot")
                .is_some_and(|root| !root.is_null() && *root != json!(false)),
        },
        (None, None) => QuestionAbout::Tool {
            name: text_at(content, &["type"]).unwrap_or("unknown").to_owned(),
            input: content.clone(),
        },
    }
}

fn change(change: &Value) -> FileChange {
    let text = |names: &[&str]| names.iter().find_map(|name| text_at(change, &[name]));
    FileChange {
        path: text(&["path"]).unwrap_or_default().to_owned(),
        kind: match text(&["type", "kind"]) {
            Some("create" | "add") => FileChangeKind::Create,
            Some("delete" | "remove") => FileChangeKind::Delete,
            _ => FileChangeKind::Modify,
        },
        diff: text(&["diff", "contentPreview", "content"]).map(str::to_owned),
    }
}
