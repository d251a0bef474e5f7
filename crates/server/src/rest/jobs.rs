//! `/jobs`: agents' work, given and looked after over REST; and `/processes`, where it runs.
//!
//! Starting, speaking and calling back go through the same tools that agents call: policy decides, people
//! are asked, the record tells. An agent sees the jobs that its own credential started, people see all.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{CredentialId, JobId};
use countersign_gateway::job::event::StoredEvent;
use countersign_gateway::job::keeping::JobFilter;
use countersign_gateway::job::lifecycle::JobStatus;
use serde_json::{Map, Value, json};

use super::asked::Asked;
use super::endpoint::BASE;
use super::failure::{self, Failure};
use super::following;
use crate::limits::LIST_DEFAULT;

pub(super) fn statuses() -> Vec<&'static str> {
    JobStatus::ALL.iter().map(|status| status.as_str()).collect()
}

pub(super) async fn list(asked: Asked) -> Result<Response, Failure> {
    let words = asked.values.words("status").unwrap_or_default();
    let filter = JobFilter {
        owner: asked.values.text("owner").map(CredentialId::trusted),
        statuses: words.iter().filter_map(|word| JobStatus::parse(word)).collect(),
        limit: asked.values.whole("limit").map_or(LIST_DEFAULT, |limit| limit as usize),
    };
    let jobs = asked.api.office.jobs.list(&asked.caller, filter).await?;
    let items: Vec<Value> = jobs.iter().map(|job| job.to_json()).collect();
    Ok(Json(json!({ "items": items })).into_response())
}

pub(super) async fn show(asked: Asked) -> Result<Response, Failure> {
    let whole = asked.api.office.jobs.whole(&asked.caller, &named(&asked)).await?;
    Ok(Json(whole.to_json()).into_response())
}

/// Hands a task in. It is durable, and in the queue, when this answers.
pub(super) async fn start(asked: Asked) -> Result<Response, Failure> {
    let arguments: Map<String, Value> = asked.body()?;
    let wait = asked.values.whole("wait_ms").map(Duration::from_millis);
    let accepted = act(&asked, "start-task", arguments, wait).await?;
    let job = accepted["jobId"].as_str().unwrap_or_default();
    let location = HeaderValue::from_str(&format!("{BASE}/jobs/{job}")).ok();
    let mut response = (StatusCode::ACCEPTED, Json(&accepted)).into_response();
    if let Some(location) = location.filter(|_| !job.is_empty()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Says something to its agent: into the turn that runs, or as the next job.
pub(super) async fn send(asked: Asked) -> Result<Response, Failure> {
    let mut arguments: Map<String, Value> = asked.body()?;
    let job = asked.api.office.jobs.find(&asked.caller, &named(&asked)).await?;
    let Some(conversation) = job.conversation_id else {
        let message = "this job has not begun to talk yet; try again in a moment";
        return Err(Refusal::new(ErrorCode::Conflict, message).into());
    };
    arguments.insert("conversationId".to_owned(), json!(conversation.as_str()));
    let accepted = act(&asked, "send-message", arguments, None).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

pub(super) async fn interrupt(asked: Asked) -> Result<Response, Failure> {
    let id = named(&asked);
    // Whoever may not see it is told so before anybody is asked.
    asked.api.office.jobs.find(&asked.caller, &id).await?;
    let arguments = Map::from_iter([("jobId".to_owned(), json!(id.as_str()))]);
    let accepted = act(&asked, "interrupt-task", arguments, None).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

/// A page of a job's events, or all of them as they come.
pub(super) async fn events(asked: Asked) -> Result<Response, Failure> {
    let accepts = asked.headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
    if accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) {
        return following::follow(asked).await;
    }
    let after = asked.values.whole("after").unwrap_or(0);
    let limit = asked.values.whole("limit").map_or(LIST_DEFAULT, |limit| limit as usize);
    let desk = &asked.api.office.jobs;
    let (events, next) = desk.logs(&asked.caller, &named(&asked), after, limit).await?;
    let items: Vec<Value> = events.iter().map(event).collect();
    let mut page = json!({ "items": items });
    if next > after {
        page["next"] = json!(next);
    }
    Ok(Json(page).into_response())
}

/// S1's Event, with its place in its session.
pub(super) fn event(stored: &StoredEvent) -> Value {
    let mut shown = stored.event.to_json();
    shown["seq"] = json!(stored.seq);
    shown
}

pub(super) async fn processes(asked: Asked) -> Result<Response, Failure> {
    let seen = asked.api.office.jobs.processes().await?;
    let items: Vec<Value> = seen.iter().map(|process| process.to_json()).collect();
    Ok(Json(json!({ "items": items })).into_response())
}

pub(super) fn named(asked: &Asked) -> JobId {
    JobId::trusted(asked.values.text("id").unwrap_or_default())
}

async fn act(
    asked: &Asked,
    tool: &str,
    arguments: Map<String, Value>,
    wait: Option<Duration>,
) -> Result<Value, Failure> {
    let answer = asked
        .api
        .call(&asked.caller, tool, arguments, wait)
        .await
        .map_err(|refusal| match refusal.code {
            ErrorCode::UnknownTool => Refusal::new(
                ErrorCode::NotFound,
                "no agent can be started here; list one under `agents` in the configuration",
            ),
            _ => refusal,
        })?;
    let result = answer.structured;
    match result["status"].as_str() {
        Some("rejected") => Err(refused(&result)),
        // A person was asked; the same body again learns the answer.
        _ => Ok(result),
    }
}

fn refused(result: &Value) -> Failure {
    let code = result["error_code"].as_str().and_then(ErrorCode::parse);
    let code = code.unwrap_or(ErrorCode::InternalError);
    let mut refusal = Refusal::new(code, result["error_message"].as_str().unwrap_or_default());
    refusal.details = result["error_details"].as_object().cloned().unwrap_or_default();
    // What ended a command is an answer there; a task that was not taken is refused.
    let status = match failure::status(code) {
        StatusCode::OK => StatusCode::CONFLICT,
        status => status,
    };
    Failure::of(status, refusal)
}
