//! A word to a job's agent, and calling it back, from a page. Both go through the tools that agents call.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use countersign_gateway::ids::JobId;
use countersign_gateway::service::{Cancel, Origin, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::Console;
use super::super::access::Reader;
use super::super::event::path_part;
use super::super::page::Failure;
use super::super::sent::Sent;

/// A page does not wait for another person's decision.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub(in super::super) struct Words {
    message: String,
}

pub(in super::super) async fn send(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
    Sent(words): Sent<Words>,
) -> Result<Response, Failure> {
    may(&reader)?;
    let message = words.message.trim();
    if message.is_empty() {
        return Err(Failure::new(
            StatusCode::BAD_REQUEST,
            "there is nothing to say in an empty message",
        ));
    }
    let job = console.office.jobs.find(&reader.0, &JobId::trusted(id)).await?;
    let Some(conversation) = &job.conversation_id else {
        let message = "the agent has not begun to talk yet; try again in a moment";
        return Err(Failure::new(StatusCode::CONFLICT, message));
    };
    let arguments = json!({"conversationId": conversation.as_str(), "message": message});
    let accepted = act(&console, &reader, "send-message", arguments).await?;
    // A message to an agent at rest is its next job.
    let next = accepted["jobId"].as_str().unwrap_or(job.id.as_str());
    Ok(to(next))
}

pub(in super::super) async fn interrupt(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    may(&reader)?;
    let arguments = json!({"jobId": id});
    act(&console, &reader, "interrupt-task", arguments).await?;
    Ok(to(&id))
}

fn may(reader: &Reader) -> Result<(), Failure> {
    if reader.may_rule() {
        return Ok(());
    }
    let message = "only an operator speaks to agents and calls them back";
    Err(Failure::new(StatusCode::FORBIDDEN, message))
}

fn to(job: &str) -> Response {
    Redirect::to(&format!("/jobs/{}", path_part(job))).into_response()
}

async fn act(console: &Console, reader: &Reader, tool: &str, arguments: Value) -> Result<Value, Failure> {
    let call = ToolCall {
        tool: tool.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_else(Map::new),
        progress: None,
        user: None,
        cancel: Cancel::never(),
        origin: Origin::default(),
        answer_within: Some(PATIENCE),
    };
    let answer = console.service.call(reader.0.clone(), call).await?;
    if answer.is_error {
        let said = answer.structured["error_message"].as_str().unwrap_or_default();
        return Err(Failure::new(StatusCode::CONFLICT, said));
    }
    Ok(answer.structured)
}
