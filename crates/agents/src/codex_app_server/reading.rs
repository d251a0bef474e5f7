//! What the app-server's notifications and requests mean for one conversation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use countersign_gateway::clock::Timestamp;
use countersign_gateway::job::driver::{
    AgentAnswer, AgentEvent, AgentEventKind, AgentQuestion, FileChange, FileChangeKind, Item, ItemKind, ItemPhase,
    QuestionAbout, TurnEnd, Usage,
};
use serde_json::{Value, json};

use super::line::Said;
use crate::remembered::Remembered;
use crate::speech::{noticed, number_at, text_at};

/// What is known of a conversation from what was said.
#[derive(Debug)]
pub(super) struct Reading {
    thread_id: String,
    model: Option<String>,
    /// It asks before every act, and not only when its sandbox is in the way.
    asks_always: bool,
    /// The turn that runs.
    turn_id: Option<String>,
    /// The one that ended last.
    ended: Option<String>,
    /// Edits by their item, for the questions about them, which do not say what they change.
    edits: Remembered<Vec<FileChange>>,
    /// Open questions: our id of them, and the request to answer.
    questions: BTreeMap<String, Value>,
    last_message: Option<String>,
    resets_at: Option<Timestamp>,
}

/// What follows from something that was said.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Tell(AgentEvent),
    /// Told only after commands that it left running have ended too.
    TurnEnded(AgentEvent),
    Refuse {
        id: Value,
        method: String,
    },
}

impl Reading {
    pub(super) fn new(thread_id: String, model: Option<String>, asks_always: bool) -> Reading {
        Reading {
            thread_id,
            model,
            asks_always,
            turn_id: None,
            ended: None,
            edits: Remembered::new(),
            questions: BTreeMap::new(),
            last_message: None,
            resets_at: None,
        }
    }

    pub(super) fn thread_id(&self) -> &str {
        &self.thread_id
    }

    pub(super) fn turn_id(&self) -> Option<String> {
        self.turn_id.clone()
    }

    /// A turn that was begun by us. That it has begun may be heard behind its end.
    pub(super) fn turn_runs(&mut self, turn_id: &str) {
        if self.ended.as_deref() != Some(turn_id) {
            self.turn_id = Some(turn_id.to_owned());
        }
    }

    /// A turn that ended while nobody listened.
    pub(super) fn turn_over(&mut self) {
        self.turn_id = None;
    }

    /// Takes up what a conversation's last turn came to, for whoever was away meanwhile. Says nothing of a
    /// turn that was cut off: there is nothing that it came to.
    pub(super) fn take_up(&mut self, turns: &Value) -> Vec<AgentEvent> {
        let Some(turn) = turns.as_array().and_then(|turns| turns.last()) else {
            return Vec::new();
        };
        let items = turn.get("items").and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            self.remember(item);
        }
        let turn_id = text_at(turn, &["id"]).map(str::to_owned);
        if text_at(turn, &["status"]) == Some("inProgress") {
            self.turn_id = turn_id.clone();
            return vec![event(AgentEventKind::TurnStarted { turn_id }, turn)];
        }
        if text_at(turn, &["status"]) == Some("interrupted") {
            return Vec::new();
        }
        let message = self
            .last_message
            .clone()
            .map(|text| event(AgentEventKind::Message(text), turn));
        message.into_iter().chain([self.turn_ended(turn, turn)]).collect()
    }

    /// The request behind a question; it is open no longer.
    pub(super) fn answered(&mut self, question: &str) -> Option<Value> {
        self.questions.remove(question)
    }

    /// The app-server is gone, or let go of: what was open is not any more, and a turn that ran ended so.
    pub(super) fn cut_off(&mut self, end: TurnEnd) -> Vec<AgentEvent> {
        let open = std::mem::take(&mut self.questions).into_keys();
        let mut events: Vec<AgentEvent> = open.map(|id| noticed(AgentEventKind::ApprovalWithdrawn(id))).collect();
        if self.turn_id.take().is_some() {
            events.push(noticed(AgentEventKind::TurnEnded(end)));
        }
        events
    }

    pub(super) fn hear(&mut self, said: Said) -> Vec<Step> {
        match said {
            Said::Notification { method, params, raw } => {
                // What concerns the account concerns every conversation; what concerns another does not.
                let is_others = text_at(&params, &["threadId"]).is_some_and(|id| id != self.thread_id);
                if is_others {
                    Vec::new()
                } else {
                    self.notified(&method, &params, &raw)
                }
            }
            Said::Request {
                id,
                method,
                params,
                raw,
            } => self.asked(id, method, &params, &raw),
        }
    }

    fn notified(&mut self, method: &str, params: &Value, raw: &Value) -> Vec<Step> {
        let text = |path: &[&str]| text_at(params, path).unwrap_or_default().to_owned();
        let kind = match method {
            "turn/started" => {
                let turn_id = text_at(params, &["turn", "id"]).map(str::to_owned);
                self.turn_id.clone_from(&turn_id);
                self.last_message = None;
                AgentEventKind::TurnStarted { turn_id }
            }
            "item/agentMessage/delta" => AgentEventKind::TextDelta(text(&["delta"])),
            "item/started" | "item/completed" => {
                let item = params.get("item").unwrap_or(&Value::Null);
                self.remember(item);
                item_event(item, method == "item/started").unwrap_or(AgentEventKind::Unknown)
            }
            "turn/diff/updated" => AgentEventKind::Diff(text(&["diff"])),
            "thread/tokenUsage/updated" => AgentEventKind::Usage(self.usage(params)),
            "account/rateLimits/updated" => {
                self.resets_at = resets_at(params.get("rateLimits").unwrap_or(&Value::Null)).or(self.resets_at);
                AgentEventKind::Unknown
            }
            "warning" | "configWarning" | "deprecationNotice" => AgentEventKind::Warning(
                text_at(params, &["message"])
                    .or_else(|| text_at(params, &["summary"]))
                    .unwrap_or(method)
                    .to_owned(),
            ),
            "error" => AgentEventKind::Retrying {
                message: text(&["error", "message"]),
            },
            "serverRequest/resolved" => {
                let request = params.get("requestId").unwrap_or(&Value::Null);
                let question = self
                    .questions
                    .iter()
                    .find(|(_, open)| *open == request)
                    .map(|(id, _)| id.clone());
                match question {
                    Some(id) => {
                        self.questions.remove(&id);
                        AgentEventKind::ApprovalWithdrawn(id)
                    }
                    None => AgentEventKind::Unknown,
                }
            }
            "turn/completed" => {
                let turn = params.get("turn").unwrap_or(&Value::Null);
                return self.completed(turn, raw);
            }
            _ => AgentEventKind::Unknown,
        };
        if method == "error" && params.get("willRetry").and_then(Value::as_bool) != Some(true) {
            // The end of the turn says it again, with its reason.
            return vec![Step::Tell(event(
                AgentEventKind::Warning(text(&["error", "message"])),
                raw,
            ))];
        }
        vec![Step::Tell(event(kind, raw))]
    }

    fn completed(&mut self, turn: &Value, raw: &Value) -> Vec<Step> {
        self.turn_id = None;
        self.ended = text_at(turn, &["id"]).map(str::to_owned);
        self.edits.clear();
        let open = std::mem::take(&mut self.questions).into_keys();
        let mut steps: Vec<Step> = open
            .map(|id| Step::Tell(event(AgentEventKind::ApprovalWithdrawn(id), raw)))
            .collect();
        if let Some(limit) = self.limit(turn) {
            steps.push(Step::Tell(event(limit, raw)));
        }
        steps.push(Step::TurnEnded(self.turn_ended(turn, raw)));
        steps
    }

    fn turn_ended(&mut self, turn: &Value, raw: &Value) -> AgentEvent {
        let end = match text_at(turn, &["status"]) {
            Some("completed") => TurnEnd::Completed {
                result: self.last_message.clone(),
            },
            Some("interrupted") => TurnEnd::Interrupted,
            _ => TurnEnd::Failed {
                message: text_at(turn, &["error", "message"])
                    .unwrap_or("the turn failed")
                    .to_owned(),
                retryable: is_passing(turn.get("error").and_then(|error| error.get("codexErrorInfo"))),
            },
        };
        event(AgentEventKind::TurnEnded(end), raw)
    }

    fn limit(&self, turn: &Value) -> Option<AgentEventKind> {
        let info = turn.get("error")?.get("codexErrorInfo")?;
        let is_limit = matches!(
            info.as_str(),
            Some("usageLimitExceeded" | "rateLimitExceeded" | "sessionBudgetExceeded")
        ) || status_of(info) == Some(429);
        is_limit.then(|| AgentEventKind::LimitReached {
            resets_at: self.resets_at,
            message: text_at(turn, &["error", "message"])
                .unwrap_or("a limit of Codex is reached")
                .to_owned(),
        })
    }

    fn usage(&self, params: &Value) -> Usage {
        let total = |name: &str| number_at(params, &["tokenUsage", "total", name]).unwrap_or(0);
        Usage {
            model: self.model.clone(),
            prompt_tokens: total("inputTokens"),
            completion_tokens: total("outputTokens"),
            total_tokens: total("totalTokens"),
            cost_usd: None,
        }
    }

    fn remember(&mut self, item: &Value) {
        let id = text_at(item, &["id"]).unwrap_or_default();
        match text_at(item, &["type"]) {
            Some("agentMessage") => self.last_message = text_at(item, &["text"]).map(str::to_owned),
            Some("fileChange") => {
                self.edits.keep(id, changes(item), item.to_string().len());
            }
            _ => {}
        }
    }

    /// A question for more comes with a reason, or from an agent that asks for nothing else.
    fn wants_more(&self, params: &Value) -> bool {
        let has = |name: &str| params.get(name).is_some_and(|value| !value.is_null());
        !self.asks_always
            || ["reason", "grantRoot", "networkApprovalContext", "additionalPermissions"]
                .into_iter()
                .any(has)
    }

    fn asked(&mut self, id: Value, method: String, params: &Value, raw: &Value) -> Vec<Step> {
        let item = text_at(params, &["itemId"]).unwrap_or_default();
        let about = match method.as_str() {
            "item/commandExecution/requestApproval" => about_command(params),
            "item/fileChange/requestApproval" => match self.edits.get(item).filter(|changes| !changes.is_empty()) {
                Some(changes) => QuestionAbout::Patch {
                    changes: changes.clone(),
                    grant_root: params.get("grantRoot").is_some_and(|root| !root.is_null()),
                },
                // A patch of nothing would seem to change nothing.
                None => QuestionAbout::Tool {
                    name: "fileChange".to_owned(),
                    input: params.clone(),
                },
            },
            _ => {
                let warning = AgentEventKind::Warning(format!("Codex asked for `{method}`, which was refused"));
                return vec![Step::Refuse { id, method }, Step::Tell(event(warning, raw))];
            }
        };
        // An item may ask more than once, and the app-server asks again under the same number after we were away.
        let question = format!("{item}#{id}");
        self.questions.insert(question.clone(), id);
        let requested = AgentEventKind::ApprovalRequested(AgentQuestion {
            id: question,
            about,
            reason: text_at(params, &["reason"]).map(str::to_owned),
            wants_more: self.wants_more(params),
        });
        vec![Step::Tell(event(requested, raw))]
    }
}

/// The answer as the app-server takes it: this once, and never for the rest of the conversation.
pub(super) fn decision(answer: &AgentAnswer) -> Value {
    match answer {
        AgentAnswer::Allow => json!({"decision": "accept"}),
        AgentAnswer::Deny { .. } => json!({"decision": "decline"}),
    }
}

fn event(kind: AgentEventKind, raw: &Value) -> AgentEvent {
    AgentEvent { kind, raw: raw.clone() }
}

fn about_command(params: &Value) -> QuestionAbout {
    let network = params
        .get("networkApprovalContext")
        .filter(|context| !context.is_null());
    match (network, text_at(params, &["command"])) {
        (Some(context), _) => QuestionAbout::Tool {
            name: "network".to_owned(),
            input: context.clone(),
        },
        (None, Some(command)) => QuestionAbout::Command {
            command: command.to_owned(),
            cwd: text_at(params, &["cwd"]).map(PathBuf::from),
        },
        // A question about something that is not said is shown as it came.
        (None, None) => QuestionAbout::Tool {
            name: text_at(params, &["kind"]).unwrap_or("command").to_owned(),
            input: params.clone(),
        },
    }
}

fn changes(item: &Value) -> Vec<FileChange> {
    let listed = item.get("changes").and_then(Value::as_array);
    let change = |change: &Value| FileChange {
        path: text_at(change, &["path"]).unwrap_or_default().to_owned(),
        kind: match text_at(change, &["kind", "type"]) {
            Some("add") => FileChangeKind::Create,
            Some("delete") => FileChangeKind::Delete,
            _ => FileChangeKind::Modify,
        },
        diff: text_at(change, &["diff"]).map(str::to_owned),
    };
    listed.into_iter().flatten().map(change).collect()
}

fn item_event(item: &Value, is_start: bool) -> Option<AgentEventKind> {
    let (kind, title) = match text_at(item, &["type"])? {
        "agentMessage" if !is_start => return Some(AgentEventKind::Message(text_at(item, &["text"])?.to_owned())),
        "agentMessage" | "userMessage" | "reasoning" => return None,
        "commandExecution" => (ItemKind::Command, text_at(item, &["command"])?.to_owned()),
        "fileChange" => {
            let paths: Vec<String> = changes(item).into_iter().map(|change| change.path).collect();
            (ItemKind::Edit, paths.join(", "))
        }
        "mcpToolCall" => {
            let (server, tool) = (text_at(item, &["server"])?, text_at(item, &["tool"])?);
            (ItemKind::Tool, format!("{server}.{tool}"))
        }
        "dynamicToolCall" => (ItemKind::Tool, text_at(item, &["tool"])?.to_owned()),
        other => (ItemKind::Other, other.to_owned()),
    };
    let phase = match (is_start, text_at(item, &["status"])) {
        (true, _) => ItemPhase::Started,
        (false, Some("failed")) => ItemPhase::Failed,
        (false, Some("declined")) => ItemPhase::Declined,
        (false, _) => ItemPhase::Completed,
    };
    Some(AgentEventKind::Item(Item {
        id: text_at(item, &["id"])?.to_owned(),
        kind,
        phase,
        title,
        detail: item.clone(),
    }))
}

/// When the limit that is used up is given anew: the later one, if it is both.
fn resets_at(limits: &Value) -> Option<Timestamp> {
    let used_up = ["primary", "secondary"].into_iter().filter_map(|name| {
        let window = limits.get(name)?;
        let is_used_up = number_at(window, &["usedPercent"]).is_some_and(|used| used >= 100);
        is_used_up.then(|| window.get("resetsAt")?.as_i64()).flatten()
    });
    used_up
        .max()
        .map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1000)))
}

/// Whether trying again may help.
fn is_passing(info: Option<&Value>) -> bool {
    let Some(info) = info.filter(|info| !info.is_null()) else {
        return false;
    };
    match info.as_str() {
        Some(name) => matches!(
            name,
            "serverOverloaded" | "internalServerError" | "rateLimitExceeded" | "usageLimitExceeded" | "flexUnavailable"
        ),
        // The rest are about the connection, with what the server said if it said anything.
        None => status_of(info).is_none_or(|status| status == 408 || status == 429 || status >= 500),
    }
}

fn status_of(info: &Value) -> Option<u64> {
    info.as_object()?
        .values()
        .find_map(|detail| number_at(detail, &["httpStatusCode"]))
}

#[cfg(test)]
mod tests;
