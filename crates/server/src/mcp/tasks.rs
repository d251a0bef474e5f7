//! The tasks extension, over the commands the gateway keeps: a task's id is its command's.
//!
//! The table of tasks is the record. So a task outlives its connection and this process, and only the
//! caller whose command it is finds it. A command that failed is a task that completed, with an error
//! as its result; only a request that could not be carried out at all would be a failed task, and
//! those are answered before there is a task.

use std::time::Duration;

use countersign_gateway::clock::Timestamp;
use countersign_gateway::error::{ErrorCode, Refusal, brief};
use countersign_gateway::ids::RequestId;
use countersign_gateway::service::{Answer, Cancel, ToolCall};
use serde_json::{Map, Value, json};

use super::client::{Ability, Client};
use super::job::{Job, Outcome, Said, Talk};
use super::jsonrpc::Request;
use super::rounds::Inputs;
use super::wire::{self, millis};
use crate::limits::{TASK_POLL_EVERY, TASK_TTL};

const CANCEL_TOOL: &str = "command_cancel";

enum Act {
    Get,
    Update,
    Cancel,
}

/// Reads a request about a task.
pub(crate) fn job(client: &Client, request: &Request) -> Result<Job, Refusal> {
    let id = task_id(client, request)?;
    let act = match request.method.as_str() {
        "tasks/update" => {
            Inputs::read(&request.params)?;
            Act::Update
        }
        "tasks/cancel" => Act::Cancel,
        _ => Act::Get,
    };
    Ok(Box::new(move |talk| Box::pin(conduct(talk, act, id))))
}

/// The task a request is about. That the client knows tasks is judged first: to others there are none.
pub(crate) fn task_id(client: &Client, request: &Request) -> Result<String, Refusal> {
    client.capabilities.require(Ability::Tasks)?;
    match request.params.get("taskId") {
        Some(Value::String(id)) => Ok(id.clone()),
        Some(_) => Err(Refusal::new(ErrorCode::InvalidParams, "`params.taskId` must be text")),
        None => Err(Refusal::new(ErrorCode::InvalidParams, "`params.taskId` is missing")),
    }
}

pub(crate) fn unknown(id: &str) -> Refusal {
    Refusal::new(
        ErrorCode::InvalidParams,
        format!("there is no task `{}` of yours", brief(id)),
    )
}

/// The answer to a call that goes on as a task; none for a command that has ended.
pub(crate) fn created(answer: &Answer, now: Timestamp) -> Option<Value> {
    let command = answer.command.as_ref()?;
    if !goes_on(answer) {
        return None;
    }
    let mut task = state(command.as_str(), "working", answer, now);
    task["resultType"] = "task".into();
    Some(task)
}

async fn conduct(talk: Talk, act: Act, id: String) -> Outcome {
    let Ok(command) = RequestId::parse(&id) else {
        return Err(unknown(&id));
    };
    let answer = match act {
        // Looking is not an act: it may be done every other second, and the record need not hear of it.
        Act::Get | Act::Update => talk.host.service.recall(talk.caller, command, None, Duration::ZERO),
        Act::Cancel => {
            let call = ToolCall {
                tool: CANCEL_TOOL.to_owned(),
                arguments: Map::from_iter([("request_id".to_owned(), Value::from(id.as_str()))]),
                progress: None,
                cancel: Cancel::never(),
                origin: talk.origin,
                answer_within: None,
                user: None,
            };
            talk.host.service.call(talk.caller, call)
        }
    };
    let answer = answer.await?;
    match code(&answer) {
        Some(ErrorCode::NotFound) => return Err(unknown(&id)),
        Some(code @ ErrorCode::AuditUnavailable) => {
            let message = answer.structured["error_message"].as_str().unwrap_or_default();
            return Err(Refusal::new(code, message));
        }
        Some(_) | None => {}
    }
    Ok(Said::Result(match act {
        Act::Get => detailed(&id, &answer, talk.host.clock.now()),
        // A command asks its client nothing by this way, so there is nothing to update it with.
        Act::Update | Act::Cancel => json!({}),
    }))
}

/// A task with how it ended, if it has.
fn detailed(id: &str, answer: &Answer, now: Timestamp) -> Value {
    if goes_on(answer) {
        return state(id, "working", answer, now);
    }
    if code(answer) == Some(ErrorCode::Cancelled) {
        return state(id, "cancelled", answer, now);
    }
    let mut task = state(id, "completed", answer, now);
    task["result"] = wire::tool_result(answer);
    task
}

fn state(id: &str, status: &str, answer: &Answer, now: Timestamp) -> Value {
    let time = |name: &str| answer.structured[name].as_str().map(str::to_owned);
    let now = now.to_string();
    json!({
        "taskId": id,
        "status": status,
        "createdAt": time("started_at").unwrap_or_else(|| now.clone()),
        "lastUpdatedAt": time("finished_at").unwrap_or(now),
        "ttlMs": millis(TASK_TTL),
        "pollIntervalMs": millis(TASK_POLL_EVERY),
    })
}

/// Whether a command will end by itself. One whose question lies in the store, since the server that asked it
/// has stopped, goes on when its call is repeated: its client must hear so.
fn goes_on(answer: &Answer) -> bool {
    match answer.structured["status"].as_str() {
        Some("running") => true,
        Some("pending") => answer.command.is_some(),
        _ => false,
    }
}

fn code(answer: &Answer) -> Option<ErrorCode> {
    answer.structured["error_code"].as_str().and_then(ErrorCode::parse)
}
