//! What Claude's lines mean.
//!
//! A turn is judged by `is_error` and `terminal_reason`: `subtype` says `success` of API errors as well.

use std::collections::BTreeMap;
use std::path::PathBuf;

use countersign_gateway::clock::Timestamp;
use countersign_gateway::job::driver::{
    AgentAnswer, AgentEvent, AgentEventKind, DriverError, Input, Item, ItemKind, ItemPhase, TurnEnd, Usage,
};
use serde_json::{Value, json};

use super::questions;
use crate::process::Ending;
use crate::remembered::Remembered;
use crate::speech::{Fate, Interruption, Speech, Step, cut_off, is_busy, noticed, number_at, tell, text_at};

pub(super) struct Claude {
    conversation_id: String,
    cwd: PathBuf,
    prompt: Vec<Input>,
    is_busy: bool,
    fate: Fate,
    /// Open questions and what they are about.
    questions: BTreeMap<String, Value>,
    /// Tool calls that run, by their id.
    items: Remembered<(ItemKind, String)>,
    model: Option<String>,
    requests: u64,
}

impl Claude {
    pub(super) fn new(conversation_id: String, cwd: PathBuf, prompt: Vec<Input>) -> Claude {
        Claude {
            conversation_id,
            cwd,
            prompt,
            is_busy: false,
            fate: Fate::Open,
            questions: BTreeMap::new(),
            items: Remembered::new(),
            model: None,
            requests: 0,
        }
    }

    fn say(&mut self, message: &[Input]) -> Value {
        self.is_busy = true;
        self.fate = Fate::Open;
        json!({"type": "user", "message": {"role": "user", "content": message.iter().map(content).collect::<Vec<_>>()},
            "parent_tool_use_id": null, "session_id": self.conversation_id})
    }

    fn read(&mut self, line: &Value) -> Vec<Step> {
        let one = |kind| vec![tell(kind, line)];
        match (text_at(line, &["type"]), text_at(line, &["subtype"])) {
            (Some("system"), Some("init")) => self.turn_started(line),
            (Some("system"), Some("api_retry")) => one(AgentEventKind::Retrying {
                message: retry_message(line),
            }),
            (Some("assistant"), _) => self.assistant(line),
            (Some("user"), _) => self.results(line),
            (Some("stream_event"), _) => match delta(line) {
                Some(text) => one(AgentEventKind::TextDelta(text.to_owned())),
                None => one(AgentEventKind::Unknown),
            },
            (Some("control_request"), _) => self.asked(line),
            (Some("control_cancel_request"), _) => {
                let id = text_at(line, &["request_id"]).unwrap_or_default();
                match self.questions.remove(id) {
                    Some(_) => one(AgentEventKind::ApprovalWithdrawn(id.to_owned())),
                    None => one(AgentEventKind::Unknown),
                }
            }
            (Some("rate_limit_event"), _) => one(limit(line).unwrap_or(AgentEventKind::Unknown)),
            (Some("result"), _) => self.result(line),
            _ => one(AgentEventKind::Unknown),
        }
    }

    fn turn_started(&mut self, line: &Value) -> Vec<Step> {
        self.model = text_at(line, &["model"]).map(str::to_owned);
        let mut steps = vec![Step::Begin];
        let id = text_at(line, &["session_id"]).unwrap_or_default();
        if id != self.conversation_id && !id.is_empty() {
            // It went on under another id, which is the one to take it up by.
            self.conversation_id = id.to_owned();
            let started = AgentEventKind::Started {
                conversation_id: id.to_owned(),
                rollout: None,
                model: self.model.clone(),
            };
            steps.push(tell(started, line));
        }
        steps.push(tell(AgentEventKind::TurnStarted { turn_id: None }, line));
        steps
    }

    fn assistant(&mut self, line: &Value) -> Vec<Step> {
        // What a sub-agent says is part of a tool call, not of the conversation.
        let is_inner = line.get("parent_tool_use_id").is_some_and(|id| !id.is_null());
        let blocks = blocks(line)
            .iter()
            .filter_map(|block| match text_at(block, &["type"])? {
                "text" if !is_inner => Some(AgentEventKind::Message(text_at(block, &["text"])?.to_owned())),
                "tool_use" => {
                    let (id, name) = (text_at(block, &["id"])?, text_at(block, &["name"])?);
                    let input = block.get("input").unwrap_or(&Value::Null);
                    let (kind, title) = describe(name, input);
                    self.items.keep(id, (kind, title.clone()), title.len());
                    Some(AgentEventKind::Item(Item {
                        id: id.to_owned(),
                        kind,
                        phase: ItemPhase::Started,
                        title,
                        detail: input.clone(),
                    }))
                }
                _ => None,
            });
        or_unknown(blocks.map(|kind| tell(kind, line)).collect(), line)
    }

    fn results(&mut self, line: &Value) -> Vec<Step> {
        let ended = blocks(line).iter().filter_map(|block| {
            let id = text_at(block, &["tool_use_id"])?;
            let (kind, title) = self.items.take(id)?;
            let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            let phase = if is_error {
                ItemPhase::Failed
            } else {
                ItemPhase::Completed
            };
            Some(AgentEventKind::Item(Item {
                id: id.to_owned(),
                kind,
                phase,
                title,
                detail: block.get("content").cloned().unwrap_or(Value::Null),
            }))
        });
        or_unknown(ended.map(|kind| tell(kind, line)).collect(), line)
    }

    fn asked(&mut self, line: &Value) -> Vec<Step> {
        let id = text_at(line, &["request_id"]).unwrap_or_default().to_owned();
        let request = line.get("request").unwrap_or(&Value::Null);
        match text_at(request, &["subtype"]) {
            Some("can_use_tool") => {
                let question = questions::question(request, &id, &self.cwd);
                self.questions
                    .insert(id, request.get("input").cloned().unwrap_or_else(|| json!({})));
                vec![tell(AgentEventKind::ApprovalRequested(question), line)]
            }
            other => {
                let other = other.unwrap_or("unknown");
                let warning = AgentEventKind::Warning(format!("Claude Code asked for `{other}`, which was refused"));
                vec![Step::Write(questions::refusal(&id, other)), tell(warning, line)]
            }
        }
    }

    fn result(&mut self, line: &Value) -> Vec<Step> {
        self.is_busy = false;
        self.items.clear();
        let withdrawn = std::mem::take(&mut self.questions).into_keys();
        let mut steps: Vec<Step> = withdrawn
            .map(|id| tell(AgentEventKind::ApprovalWithdrawn(id), line))
            .collect();
        if let Some(usage) = usage(line, self.model.clone()) {
            steps.push(tell(AgentEventKind::Usage(usage), line));
        }
        let status = number_at(line, &["api_error_status"]);
        if status == Some(429) {
            let message = message(line);
            steps.push(tell(
                AgentEventKind::LimitReached {
                    resets_at: None,
                    message,
                },
                line,
            ));
        }
        steps.push(tell(
            AgentEventKind::TurnEnded(end(line, self.fate == Fate::Interrupted, status)),
            line,
        ));
        steps
    }
}

impl Speech for Claude {
    fn begin(&mut self) -> Vec<Value> {
        let prompt = std::mem::take(&mut self.prompt);
        vec![self.say(&prompt)]
    }

    fn hear(&mut self, line: &str) -> Vec<Step> {
        match serde_json::from_str(line) {
            Ok(value) => self.read(&value),
            Err(_) => vec![tell(AgentEventKind::Unknown, &Value::String(line.to_owned()))],
        }
    }

    fn send(&mut self, message: Vec<Input>) -> Result<Vec<Value>, DriverError> {
        if self.is_busy {
            return Err(is_busy());
        }
        Ok(vec![self.say(&message)])
    }

    fn answer(&mut self, question: &str, answer: AgentAnswer) -> Result<Vec<Value>, DriverError> {
        let Some(input) = self.questions.remove(question) else {
            return Ok(Vec::new());
        };
        Ok(vec![questions::answer(question, &input, answer)])
    }

    fn interrupt(&mut self) -> Interruption {
        if !self.is_busy {
            return Interruption::Words(Vec::new());
        }
        self.fate = Fate::Interrupted;
        self.requests += 1;
        let id = format!("interrupt-{}", self.requests);
        Interruption::Words(vec![
            json!({"type": "control_request", "request_id": id, "request": {"subtype": "interrupt"}}),
        ])
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

    fn gone(&mut self, ending: Ending, last_words: &str) -> Vec<AgentEvent> {
        let open = std::mem::take(&mut self.questions).into_keys();
        let mut events: Vec<AgentEvent> = open.map(|id| noticed(AgentEventKind::ApprovalWithdrawn(id))).collect();
        if std::mem::replace(&mut self.is_busy, false) {
            events.push(cut_off("Claude Code", &self.fate, ending, last_words));
        }
        events
    }
}

fn or_unknown(steps: Vec<Step>, line: &Value) -> Vec<Step> {
    if steps.is_empty() {
        vec![tell(AgentEventKind::Unknown, line)]
    } else {
        steps
    }
}

fn content(input: &Input) -> Value {
    match input {
        Input::Text(text) => json!({"type": "text", "text": text}),
        Input::Image { url } => {
            // A picture inside its own address is sent as what it is.
            let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            let source = match inline {
                Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
                None => json!({"type": "url", "url": url}),
            };
            json!({"type": "image", "source": source})
        }
    }
}

fn blocks(line: &Value) -> &[Value] {
    let content = line.get("message").and_then(|message| message.get("content"));
    content.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn delta(line: &Value) -> Option<&str> {
    let is_inner = line.get("parent_tool_use_id").is_some_and(|id| !id.is_null());
    let text = text_at(line, &["event", "delta", "text"])?;
    (!is_inner && text_at(line, &["event", "delta", "type"]) == Some("text_delta")).then_some(text)
}

/// What a tool call does, in a line.
fn describe(name: &str, input: &Value) -> (ItemKind, String) {
    match name {
        "Bash" => (
            ItemKind::Command,
            text_at(input, &["command"]).unwrap_or(name).to_owned(),
        ),
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => {
            let path = text_at(input, &["file_path"]).or_else(|| text_at(input, &["notebook_path"]));
            (ItemKind::Edit, path.unwrap_or(name).to_owned())
        }
        _ => (ItemKind::Tool, name.to_owned()),
    }
}

fn retry_message(line: &Value) -> String {
    let error = text_at(line, &["error"]).unwrap_or("the model did not answer");
    match (number_at(line, &["attempt"]), number_at(line, &["max_retries"])) {
        (Some(attempt), Some(most)) => format!("{error}; attempt {attempt} of {most}"),
        _ => error.to_owned(),
    }
}

/// A usage limit that stops the agent; warnings before it do not.
fn limit(line: &Value) -> Option<AgentEventKind> {
    let info = line.get("rate_limit_info")?;
    if text_at(info, &["status"]) != Some("rejected") {
        return None;
    }
    let resets_at = info.get("resetsAt").and_then(Value::as_i64);
    let kind = text_at(info, &["rateLimitType"]).unwrap_or("usage");
    Some(AgentEventKind::LimitReached {
        resets_at: resets_at.map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1000))),
        message: format!("the {kind} limit of Claude Code is reached"),
    })
}

/// Totals of the conversation: dollars are cumulative, and so are the tokens by model.
fn usage(line: &Value, model: Option<String>) -> Option<Usage> {
    let models = line.get("modelUsage")?.as_object()?;
    let sum = |names: &[&str]| {
        let counts = models
            .values()
            .flat_map(|used| names.iter().filter_map(|name| number_at(used, &[name])));
        counts.fold(0, u64::saturating_add)
    };
    let prompt_tokens = sum(&["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"]);
    let completion_tokens = sum(&["outputTokens"]);
    Some(Usage {
        model,
        prompt_tokens,
        completion_tokens,
        total_tokens: prompt_tokens.saturating_add(completion_tokens),
        cost_usd: line.get("total_cost_usd").and_then(Value::as_f64),
    })
}

fn end(line: &Value, is_interrupted: bool, status: Option<u64>) -> TurnEnd {
    let reason = text_at(line, &["terminal_reason"]).unwrap_or_default();
    if line.get("is_error").and_then(Value::as_bool) == Some(false) && !reason.starts_with("aborted") {
        return TurnEnd::Completed {
            result: text_at(line, &["result"]).map(str::to_owned),
        };
    }
    if is_interrupted || reason.starts_with("aborted") {
        return TurnEnd::Interrupted;
    }
    TurnEnd::Failed {
        message: message(line),
        // What the model's server refused once it refuses again, except for too much and for its own faults.
        retryable: match status {
            Some(status) => status == 408 || status == 429 || status >= 500,
            None => false,
        },
    }
}

fn message(line: &Value) -> String {
    let errors = line.get("errors").and_then(Value::as_array);
    let listed: Vec<&str> = errors.into_iter().flatten().filter_map(Value::as_str).collect();
    match text_at(line, &["result"]).filter(|text| !text.is_empty()) {
        Some(text) => text.to_owned(),
        None if !listed.is_empty() => listed.join("; "),
        None => format!(
            "the turn ended with {}",
            text_at(line, &["subtype"]).unwrap_or("an error")
        ),
    }
}

#[cfg(test)]
mod tests;
