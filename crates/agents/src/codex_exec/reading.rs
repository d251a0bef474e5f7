//! What the lines of `codex exec --json` mean.
//!
//! Only `turn.completed`, `turn.failed` and the end of the process are final. A top-level `error` may be a
//! word about trying again, and an item of type `error` is a warning.

use std::sync::PoisonError;

use countersign_gateway::job::driver::{
    AgentAnswer, AgentEvent, AgentEventKind, DriverError, Input, Item, ItemKind, ItemPhase, TurnEnd, Usage,
};
use serde_json::Value;

use super::ThreadId;
use crate::process::Ending;
use crate::speech::{Fate, Interruption, Speech, Step, cut_off, number_at, tell, text_at};

pub(super) struct Exec {
    thread_id: ThreadId,
    model: Option<String>,
    is_busy: bool,
    fate: Fate,
    last_message: Option<String>,
}

impl Exec {
    pub(super) fn new(thread_id: ThreadId, model: Option<String>) -> Exec {
        Exec {
            thread_id,
            model,
            is_busy: true,
            fate: Fate::Open,
            last_message: None,
        }
    }

    fn read(&mut self, line: &Value) -> Vec<Step> {
        let one = |kind| vec![tell(kind, line)];
        match text_at(line, &["type"]) {
            Some("thread.started") => self.started(line),
            Some("turn.started") => one(AgentEventKind::TurnStarted { turn_id: None }),
            Some("item.started") => one(self.item(line, ItemPhase::Started)),
            Some("item.updated") => one(self.item(line, ItemPhase::Updated)),
            Some("item.completed") => one(self.item(line, ItemPhase::Completed)),
            Some("error") => one(AgentEventKind::Retrying {
                message: text_at(line, &["message"]).unwrap_or_default().to_owned(),
            }),
            Some("turn.completed") => {
                self.is_busy = false;
                let end = TurnEnd::Completed {
                    result: self.last_message.take(),
                };
                vec![
                    tell(AgentEventKind::Usage(self.usage(line)), line),
                    tell(AgentEventKind::TurnEnded(end), line),
                ]
            }
            Some("turn.failed") => self.failed(line),
            _ => one(AgentEventKind::Unknown),
        }
    }

    fn started(&mut self, line: &Value) -> Vec<Step> {
        let found = text_at(line, &["thread_id"]).unwrap_or_default();
        let mut known = self.thread_id.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref().is_some_and(|known| known != found) {
            self.fate = Fate::Condemned(format!("Codex began the conversation `{found}` instead of going on"));
            return vec![Step::End];
        }
        *known = Some(found.to_owned());
        let started = AgentEventKind::Started {
            conversation_id: found.to_owned(),
            rollout: None,
            model: self.model.clone(),
        };
        vec![tell(started, line)]
    }

    fn item(&mut self, line: &Value, phase: ItemPhase) -> AgentEventKind {
        let item = line.get("item").unwrap_or(&Value::Null);
        let text = |name: &str| text_at(item, &[name]).unwrap_or_default().to_owned();
        let (kind, title) = match text_at(item, &["type"]) {
            Some("agent_message") if phase == ItemPhase::Completed => {
                self.last_message = Some(text("text"));
                return AgentEventKind::Message(text("text"));
            }
            Some("error") => return AgentEventKind::Warning(text("message")),
            Some("command_execution") => (ItemKind::Command, text("command")),
            Some("file_change") => {
                let changes = item.get("changes").and_then(Value::as_array);
                let paths: Vec<&str> = changes
                    .into_iter()
                    .flatten()
                    .filter_map(|it| text_at(it, &["path"]))
                    .collect();
                (ItemKind::Edit, paths.join(", "))
            }
            Some("mcp_tool_call") => (ItemKind::Tool, format!("{}.{}", text("server"), text("tool"))),
            Some("agent_message" | "reasoning") | None => return AgentEventKind::Unknown,
            Some(other) => (ItemKind::Other, other.to_owned()),
        };
        let phase = match (phase, text_at(item, &["status"])) {
            (ItemPhase::Completed, Some("failed")) => ItemPhase::Failed,
            (ItemPhase::Completed, Some("declined")) => ItemPhase::Declined,
            (phase, _) => phase,
        };
        AgentEventKind::Item(Item {
            id: text("id"),
            kind,
            phase,
            title,
            detail: item.clone(),
        })
    }

    /// Counted over the whole conversation, by Codex itself.
    fn usage(&self, line: &Value) -> Usage {
        let used = |name: &str| number_at(line, &["usage", name]).unwrap_or(0);
        let (prompt_tokens, completion_tokens) = (used("input_tokens"), used("output_tokens"));
        Usage {
            model: self.model.clone(),
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            cost_usd: None,
        }
    }

    /// A failure is told in prose only.
    fn failed(&mut self, line: &Value) -> Vec<Step> {
        self.is_busy = false;
        let message = text_at(line, &["error", "message"])
            .unwrap_or("the turn failed")
            .to_owned();
        let says = |words: &[&str]| words.iter().any(|word| message.to_ascii_lowercase().contains(word));
        let is_limit = says(&["usage limit", "rate limit", "429"]);
        let retryable = is_limit
            || says(&[
                "500",
                "502",
                "503",
                "504",
                "overloaded",
                "high demand",
                "disconnected",
                "timed out",
            ]);
        let mut steps = Vec::new();
        if is_limit {
            let limit = AgentEventKind::LimitReached {
                resets_at: None,
                message: message.clone(),
            };
            steps.push(tell(limit, line));
        }
        steps.push(tell(
            AgentEventKind::TurnEnded(TurnEnd::Failed { message, retryable }),
            line,
        ));
        steps
    }
}

impl Speech for Exec {
    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn hear(&mut self, line: &str) -> Vec<Step> {
        match serde_json::from_str(line) {
            Ok(value) => self.read(&value),
            Err(_) => vec![tell(AgentEventKind::Unknown, &Value::String(line.to_owned()))],
        }
    }

    fn send(&mut self, _message: Vec<Input>) -> Result<Vec<Value>, DriverError> {
        Err(DriverError::Unsupported(
            "a turn of `codex exec` takes one message".to_owned(),
        ))
    }

    fn answer(&mut self, _question: &str, _answer: AgentAnswer) -> Result<Vec<Value>, DriverError> {
        Ok(Vec::new())
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
        false
    }

    fn condemn(&mut self, reason: &str) {
        self.fate = Fate::Condemned(reason.to_owned());
    }

    fn gone(&mut self, ending: Ending, last_words: &str) -> Vec<AgentEvent> {
        if std::mem::replace(&mut self.is_busy, false) {
            return vec![cut_off("Codex", &self.fate, ending, last_words)];
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hear(exec: &mut Exec, line: Value) -> Vec<AgentEventKind> {
        let told = exec.hear(&line.to_string()).into_iter().filter_map(|step| match step {
            Step::Tell(event) => Some(event.kind),
            Step::Write(_) | Step::Begin | Step::End => None,
        });
        told.collect()
    }

    #[test]
    fn an_error_item_is_a_warning_and_an_error_line_is_not_the_end() {
        let mut exec = Exec::new(ThreadId::default(), None);
        let item = json!({"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "careful"}});
        assert_eq!(hear(&mut exec, item), [AgentEventKind::Warning("careful".to_owned())]);
        hear(&mut exec, json!({"type": "error", "message": "Reconnecting... 1/2"}));
        assert!(exec.is_busy());
        let failed = hear(
            &mut exec,
            json!({"type": "turn.failed", "error": {"message": "unexpected status 500"}}),
        );
        assert!(matches!(
            &failed[..],
            [AgentEventKind::TurnEnded(TurnEnd::Failed { retryable: true, .. })]
        ));
        assert!(!exec.is_busy());
    }

    #[test]
    fn a_conversation_that_is_not_the_one_that_was_asked_for_is_ended() {
        let known: ThreadId = ThreadId::default();
        *known.lock().unwrap() = Some("one".to_owned());
        let mut exec = Exec::new(known, None);
        assert_eq!(
            exec.hear(&json!({"type": "thread.started", "thread_id": "two"}).to_string()),
            [Step::End]
        );
        let ending = Ending {
            status: Some(0),
            signal: None,
        };
        assert!(matches!(&exec.gone(ending, "")[0].kind,
            AgentEventKind::TurnEnded(TurnEnd::Failed { message, .. }) if message.contains("instead of going on")));
    }
}
