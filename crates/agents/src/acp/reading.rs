//! The client's side of the protocol: about twelve messages, JSON-RPC a line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use countersign_gateway::job::driver::{
    AgentAnswer, AgentEvent, AgentEventKind, DriverError, Endpoint, Input, Item, ItemPhase, Terms, TurnEnd, Usage,
};
use countersign_gateway::policy::effective::SandboxMode;
use serde_json::{Value, json};

use super::questions;
use crate::limits;
use crate::process::Ending;
use crate::remembered::Remembered;
use crate::speech::{Fate, Interruption, Speech, Step, cut_off, is_busy, noticed, number_at, tell, text_at};

/// The revision of the protocol that is spoken.
pub(super) const VERSION: u64 = 1;

/// What each of our requests was for, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Initialize,
    Session,
    Mode,
    Prompt,
}

pub(super) struct Client {
    name: String,
    cwd: PathBuf,
    sandbox: SandboxMode,
    endpoint: Option<Endpoint>,
    /// The conversation to take up, then the one that is spoken with.
    session_id: Option<String>,
    /// A conversation that is taken up is repeated first; nothing of that is new.
    is_open: bool,
    asked: BTreeMap<u64, Asked>,
    next: u64,
    /// What is said next, once it can be.
    waiting: Option<Vec<Input>>,
    is_busy: bool,
    fate: Fate,
    questions: BTreeMap<String, Question>,
    calls: Remembered<Value>,
    /// The message that is being written.
    message: String,
    last_message: Option<String>,
    used: Usage,
}

/// A conversation that is taken up.
pub(super) struct Known {
    pub(super) session_id: String,
    /// What it used before.
    pub(super) used: Usage,
}

struct Question {
    request: Value,
    options: Value,
}

impl Question {
    fn reply(&self, outcome: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.request, "result": outcome})
    }
}

impl Client {
    pub(super) fn new(name: String, known: Option<Known>, terms: &Terms, prompt: Vec<Input>) -> Client {
        let (session_id, used) = known.map(|known| (known.session_id, known.used)).unzip();
        Client {
            name,
            cwd: terms.cwd.clone(),
            sandbox: terms.sandbox,
            endpoint: terms.endpoint.clone(),
            session_id,
            is_open: false,
            asked: BTreeMap::new(),
            next: 0,
            waiting: Some(prompt),
            is_busy: true,
            fate: Fate::Open,
            questions: BTreeMap::new(),
            calls: Remembered::new(),
            message: String::new(),
            last_message: None,
            used: Usage {
                model: terms.model.clone(),
                ..used.unwrap_or_default()
            },
        }
    }

    fn ask(&mut self, what: Asked, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.asked.insert(id, what);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    fn read(&mut self, line: &Value) -> Vec<Step> {
        let params = line.get("params").unwrap_or(&Value::Null);
        match (text_at(line, &["method"]), line.get("id")) {
            (Some("session/update"), None) if self.is_open => {
                self.updated(params.get("update").unwrap_or(&Value::Null), line)
            }
            (Some("session/request_permission"), Some(id)) => self.permission(id.clone(), params, line),
            (Some(method), Some(id)) => {
                let refusal = json!({"jsonrpc": "2.0", "id": id,
                    "error": {"code": -32601, "message": format!("`{method}` is not offered here")}});
                let warning = AgentEventKind::Warning(format!("{} asked for `{method}`, which was refused", self.name));
                vec![Step::Write(refusal), tell(warning, line)]
            }
            (None, Some(id)) => {
                let asked = id.as_u64().and_then(|id| self.asked.remove(&id));
                // Some say of every answer that there was no error.
                match (asked, line.get("error").filter(|error| !error.is_null())) {
                    (Some(asked), Some(error)) => self.refused(asked, error, line),
                    (Some(asked), None) => self.answered(asked, line.get("result").unwrap_or(&Value::Null), line),
                    (None, _) => vec![tell(AgentEventKind::Unknown, line)],
                }
            }
            _ => vec![tell(AgentEventKind::Unknown, line)],
        }
    }

    fn answered(&mut self, asked: Asked, result: &Value, line: &Value) -> Vec<Step> {
        match asked {
            Asked::Initialize => self.introduced(result, line),
            Asked::Session => self.opened(result, line),
            Asked::Mode => {
                let mut steps = vec![tell(AgentEventKind::Unknown, line)];
                steps.extend(self.say_next());
                steps
            }
            Asked::Prompt => self.prompted(result, line),
        }
    }

    fn introduced(&mut self, result: &Value, line: &Value) -> Vec<Step> {
        let offers = |path: &str| result.pointer(path) == Some(&Value::Bool(true));
        let mut steps = vec![tell(AgentEventKind::Unknown, line)];
        let mut params = json!({"cwd": self.cwd, "mcpServers": []});
        match &self.endpoint {
            Some(endpoint) if offers("/agentCapabilities/mcpCapabilities/http") => {
                let header = json!({"name": "Authorization", "value": format!("Bearer {}", endpoint.token)});
                params["mcpServers"] =
                    json!([{"type": "http", "name": "countersign", "url": endpoint.url, "headers": [header]}]);
            }
            Some(_) => {
                let warning = format!(
                    "{} takes no server over HTTP, so that its own tools do not come back to us",
                    self.name
                );
                steps.push(tell(AgentEventKind::Warning(warning), line));
            }
            None => {}
        }
        let request = match &self.session_id {
            Some(_) if !offers("/agentCapabilities/loadSession") => {
                let message = format!("{} cannot take up a conversation", self.name);
                return self.failed(message, line);
            }
            Some(id) => {
                params["sessionId"] = json!(id);
                self.ask(Asked::Session, "session/load", params)
            }
            None => self.ask(Asked::Session, "session/new", params),
        };
        steps.push(Step::Write(request));
        steps
    }

    fn opened(&mut self, result: &Value, line: &Value) -> Vec<Step> {
        if let Some(id) = text_at(result, &["sessionId"]) {
            self.session_id = Some(id.to_owned());
        }
        let Some(session_id) = self.session_id.clone() else {
            return self.failed("it opened a conversation without an id".to_owned(), line);
        };
        self.is_open = true;
        let started = AgentEventKind::Started {
            conversation_id: session_id.clone(),
            rollout: None,
            model: text_at(result, &["models", "currentModelId"]).map(str::to_owned),
        };
        let mut steps = vec![tell(started, line)];
        match self.mode(result) {
            // Nothing is said to it before it is in that mode.
            Some(mode) => {
                let params = json!({"sessionId": session_id, "modeId": mode});
                steps.push(Step::Write(self.ask(Asked::Mode, "session/set_mode", params)));
            }
            None => steps.extend(self.say_next()),
        }
        steps
    }

    /// A mode in which questions come to us, where the agent is in another: some begin in one in which they
    /// answer themselves.
    fn mode(&self, result: &Value) -> Option<String> {
        let modes = result.get("modes")?;
        let offered = modes.get("availableModes").and_then(Value::as_array)?;
        let wanted = match self.sandbox {
            SandboxMode::ReadOnly => ["read-only", "default"],
            SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => ["workspace-write", "default"],
        };
        let is_offered = |id: &&str| offered.iter().any(|mode| text_at(mode, &["id"]) == Some(id));
        let best = wanted.into_iter().find(is_offered)?;
        (text_at(modes, &["currentModeId"]) != Some(best)).then(|| best.to_owned())
    }

    fn say_next(&mut self) -> Vec<Step> {
        let Some(message) = self.waiting.take() else {
            return Vec::new();
        };
        self.is_busy = true;
        self.fate = Fate::Open;
        self.last_message = None;
        let content: Vec<Value> = message.iter().map(content).collect();
        let params = json!({"sessionId": self.session_id, "prompt": content});
        let request = self.ask(Asked::Prompt, "session/prompt", params);
        let started = noticed(AgentEventKind::TurnStarted { turn_id: None });
        vec![Step::Begin, Step::Write(request), Step::Tell(started)]
    }

    fn prompted(&mut self, result: &Value, line: &Value) -> Vec<Step> {
        let mut steps = self.whole_message(line);
        steps.extend(self.count(result.get("usage"), line));
        let reason = text_at(result, &["stopReason"]).unwrap_or("unknown").to_owned();
        let end = match reason.as_str() {
            "end_turn" => TurnEnd::Completed {
                result: self.last_message.take(),
            },
            "cancelled" => TurnEnd::Interrupted,
            other => TurnEnd::Failed {
                message: format!("the turn stopped with `{other}`"),
                retryable: false,
            },
        };
        steps.extend(self.end(end, line));
        steps
    }

    fn refused(&mut self, asked: Asked, error: &Value, line: &Value) -> Vec<Step> {
        let message = text_at(error, &["data", "details"]).or_else(|| text_at(error, &["message"]));
        let message = message.unwrap_or("it was refused").to_owned();
        match asked {
            // It might act without a question.
            Asked::Mode => {
                self.is_open = false;
                self.failed(format!("it does not take the mode in which it asks: {message}"), line)
            }
            Asked::Initialize | Asked::Session | Asked::Prompt => self.failed(message, line),
        }
    }

    fn failed(&mut self, message: String, line: &Value) -> Vec<Step> {
        let end = match self.fate {
            Fate::Interrupted => TurnEnd::Interrupted,
            Fate::Open | Fate::Condemned(_) => TurnEnd::Failed {
                message,
                retryable: false,
            },
        };
        self.end(end, line)
    }

    fn end(&mut self, end: TurnEnd, line: &Value) -> Vec<Step> {
        self.is_busy = false;
        self.calls.clear();
        let open = std::mem::take(&mut self.questions).into_keys();
        let mut steps: Vec<Step> = open
            .map(|id| tell(AgentEventKind::ApprovalWithdrawn(id), line))
            .collect();
        steps.push(tell(AgentEventKind::TurnEnded(end), line));
        steps
    }

    fn updated(&mut self, update: &Value, line: &Value) -> Vec<Step> {
        match text_at(update, &["sessionUpdate"]) {
            Some("agent_message_chunk") => {
                let text = text_at(update, &["content", "text"]).unwrap_or_default();
                if self.message.len() < limits::MESSAGE_BYTES_MAX {
                    self.message.push_str(text);
                }
                vec![tell(AgentEventKind::TextDelta(text.to_owned()), line)]
            }
            Some("tool_call" | "tool_call_update") => {
                let mut steps = self.whole_message(line);
                steps.push(tell(self.call(update), line));
                steps
            }
            _ => vec![tell(AgentEventKind::Unknown, line)],
        }
    }

    fn whole_message(&mut self, line: &Value) -> Vec<Step> {
        let message = std::mem::take(&mut self.message);
        if message.is_empty() {
            return Vec::new();
        }
        self.last_message = Some(message.clone());
        vec![tell(AgentEventKind::Message(message), line)]
    }

    /// What is known of a tool call grows with each word about it.
    fn call(&mut self, update: &Value) -> AgentEventKind {
        let id = text_at(update, &["toolCallId"]).unwrap_or_default().to_owned();
        let before = self.calls.take(&id);
        let is_new = before.is_none();
        let mut known = before.unwrap_or_else(|| json!({}));
        for (name, value) in update
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
        {
            known[name] = value.clone();
        }
        let phase = match text_at(&known, &["status"]) {
            Some("completed") => ItemPhase::Completed,
            Some("failed") => ItemPhase::Failed,
            _ if is_new => ItemPhase::Started,
            _ => ItemPhase::Updated,
        };
        // What is over is not asked about any more.
        if matches!(phase, ItemPhase::Started | ItemPhase::Updated) {
            self.calls.keep(&id, known.clone(), known.to_string().len());
        }
        AgentEventKind::Item(Item {
            id,
            kind: questions::kind(known.get("kind")),
            phase,
            title: text_at(&known, &["title"]).unwrap_or("a tool").to_owned(),
            detail: known,
        })
    }

    fn permission(&mut self, request: Value, params: &Value, line: &Value) -> Vec<Step> {
        let call = text_at(params, &["toolCall", "toolCallId"]).unwrap_or_default();
        let id = format!("{call}#{request}");
        let question = questions::question(params, self.calls.get(call), &id, &self.cwd);
        let options = params.get("options").cloned().unwrap_or(Value::Null);
        self.questions.insert(id, Question { request, options });
        vec![tell(AgentEventKind::ApprovalRequested(question), line)]
    }

    /// Tokens of a turn, added to those before it.
    fn count(&mut self, usage: Option<&Value>, line: &Value) -> Option<Step> {
        let usage = usage.filter(|usage| usage.is_object())?;
        let used = |name: &str| number_at(usage, &[name]).unwrap_or(0);
        let sum = |so_far: u64, names: &[&str]| names.iter().map(|name| used(name)).fold(so_far, u64::saturating_add);
        self.used.prompt_tokens = sum(
            self.used.prompt_tokens,
            &["inputTokens", "cachedReadTokens", "cachedWriteTokens"],
        );
        self.used.completion_tokens = sum(self.used.completion_tokens, &["outputTokens"]);
        self.used.total_tokens = sum(self.used.total_tokens, &["totalTokens"]);
        Some(tell(AgentEventKind::Usage(self.used.clone()), line))
    }
}

/// How we introduce ourselves: files and terminals are the agent's own business, under its own sandbox.
pub(super) fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": introduction()})
}

fn introduction() -> Value {
    let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
    let info = json!({"name": "countersign", "version": env!("CARGO_PKG_VERSION")});
    json!({"protocolVersion": VERSION, "clientCapabilities": capabilities, "clientInfo": info})
}

impl Speech for Client {
    fn begin(&mut self) -> Vec<Value> {
        vec![self.ask(Asked::Initialize, "initialize", introduction())]
    }

    fn hear(&mut self, line: &str) -> Vec<Step> {
        match serde_json::from_str(line) {
            Ok(value) => self.read(&value),
            Err(_) => vec![tell(AgentEventKind::Unknown, &Value::String(line.to_owned()))],
        }
    }

    fn send(&mut self, message: Vec<Input>) -> Result<Vec<Value>, DriverError> {
        if self.is_busy || !self.is_open {
            return Err(is_busy());
        }
        self.waiting = Some(message);
        let steps = self.say_next();
        Ok(steps
            .into_iter()
            .filter_map(|step| match step {
                Step::Write(value) => Some(value),
                Step::Tell(_) | Step::Begin | Step::End => None,
            })
            .collect())
    }

    fn answer(&mut self, question: &str, answer: AgentAnswer) -> Result<Vec<Value>, DriverError> {
        let Some(question) = self.questions.remove(question) else {
            return Ok(Vec::new());
        };
        let outcome = questions::outcome(&question.options, &answer);
        Ok(vec![question.reply(&outcome)])
    }

    fn interrupt(&mut self) -> Interruption {
        self.waiting = None;
        if !self.is_busy {
            return Interruption::Words(Vec::new());
        }
        self.fate = Fate::Interrupted;
        if !self.asked.values().any(|asked| *asked == Asked::Prompt) {
            // There is no turn yet that could be cancelled.
            return Interruption::Signals;
        }
        let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session_id}});
        // The protocol wants every open question answered so; they are withdrawn with the end of the turn.
        let open = self.questions.values();
        let open = open.map(|question| question.reply(&questions::cancelled()));
        Interruption::Words([cancel].into_iter().chain(open).collect())
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
            events.push(cut_off(&self.name, &self.fate, ending, last_words));
        }
        events
    }
}

fn content(input: &Input) -> Value {
    match input {
        Input::Text(text) => json!({"type": "text", "text": text}),
        Input::Image { url } => match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((mime, data)) => json!({"type": "image", "mimeType": mime, "data": data}),
            None => json!({"type": "resource_link", "name": "image", "uri": url}),
        },
    }
}

#[cfg(test)]
mod tests;
