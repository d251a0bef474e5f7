//! `/runs`: set off, looked at and called back over REST.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::RunId;
use countersign_gateway::run::desk::end;
use countersign_gateway::run::keeping::RunFilter;
use countersign_gateway::run::lifecycle::{RunStatus, Runtime};
use countersign_gateway::run::manual::ManualOrder;
use countersign_gateway::run::view;
use countersign_gateway::session::Role;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::Asked;
use super::endpoint::BASE;
use super::failure::Failure;
use crate::limits::LIST_DEFAULT;

pub(super) fn statuses() -> Vec<&'static str> {
    RunStatus::ALL.iter().map(|status| status.as_str()).collect()
}

pub(super) async fn list(asked: Asked) -> Result<Response, Failure> {
    let words = asked.values.words("status").unwrap_or_default();
    let filter = RunFilter {
        repository: asked.values.text("repository").map(str::to_owned),
        issue_number: asked.values.whole("issue_number"),
        pull_request_number: asked.values.whole("pull_request_number"),
        statuses: words.iter().filter_map(|word| RunStatus::parse(word)).collect(),
        limit: asked.values.whole("limit").map_or(LIST_DEFAULT, |limit| limit as usize),
        offset: 0,
    };
    let runs = asked.api.office.runs.desk.list(filter).await?;
    let now = asked.api.clock.now();
    let items: Vec<Value> = runs.iter().map(|run| view::whole(run, now)).collect();
    Ok(Json(json!({ "items": items })).into_response())
}

pub(super) async fn show(asked: Asked) -> Result<Response, Failure> {
    let desk = &asked.api.office.runs.desk;
    let run = desk.find(&named(&asked)).await?;
    let runs = &desk.parts().runs;
    let links = runs.links_of(end(&run)).await?;
    let session = runs.agent_session(&run.id).await?;
    let approvals = asked.api.office.board.of_correlation(&run.correlation_id).await?;
    let mut shown = view::trace(&run, &links, session.as_ref(), asked.api.clock.now());
    shown["approvals"] = approvals
        .iter()
        .map(ApprovalRequest::to_json)
        .collect::<Vec<Value>>()
        .into();
    Ok(Json(shown).into_response())
}

#[derive(Deserialize)]
struct Order {
    repository: Option<String>,
    project: Option<String>,
    issue_number: Option<u64>,
    pull_request_number: Option<u64>,
    label: Option<String>,
    agent_key: Option<String>,
    runtime: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
    title: Option<String>,
    instructions: Option<String>,
    timeout_ms: Option<u64>,
}

pub(super) async fn start(asked: Asked) -> Result<Response, Failure> {
    operator(&asked)?;
    let order: Order = asked.body()?;
    let order = ManualOrder {
        repository: order.repository,
        project: order.project,
        issue_number: order.issue_number,
        pull_request_number: order.pull_request_number,
        label: order.label,
        agent_key: order.agent_key,
        runtime: order.runtime.as_deref().and_then(Runtime::parse),
        namespace: order.namespace,
        labels: order.labels.into_iter().collect(),
        title: order.title,
        instructions: order.instructions,
        timeout_ms: order.timeout_ms,
    };
    let enqueued = asked.api.office.runs.start(&asked.caller.actor, order).await?;
    let run = enqueued.run();
    let mut response = (StatusCode::ACCEPTED, Json(view::whole(run, asked.api.clock.now()))).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("{BASE}/runs/{}", run.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

#[derive(Deserialize)]
struct Cancellation {
    reason: String,
}

pub(super) async fn cancel(asked: Asked) -> Result<Response, Failure> {
    operator(&asked)?;
    let Cancellation { reason } = asked.body()?;
    let desk = &asked.api.office.runs.desk;
    let run = desk.cancel(&asked.caller.actor, &named(&asked), &reason).await?;
    Ok(Json(view::whole(&run, asked.api.clock.now())).into_response())
}

/// What sets agents to work is an operator's.
fn operator(asked: &Asked) -> Result<(), Refusal> {
    match asked.caller.role {
        Role::Operator => Ok(()),
        Role::Approver | Role::Viewer | Role::Agent => Err(Refusal::new(
            ErrorCode::Forbidden,
            "only operators set runs off and call them back",
        )),
    }
}

fn named(asked: &Asked) -> RunId {
    RunId::trusted(asked.values.text("id").unwrap_or_default())
}
