//! `/runs`: set off, looked at and called back over REST.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::RunId;
use countersign_gateway::limits::REASON_CHARS_MAX;
use countersign_gateway::run::desk::end;
use countersign_gateway::run::keeping::RunFilter;
use countersign_gateway::run::lifecycle::{RunStatus, Runtime};
use countersign_gateway::run::manual::ManualOrder;
use countersign_gateway::run::view;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value, json};

use super::asked::Asked;
use super::endpoint::BASE;
use super::failure::Failure;
use crate::limits::LIST_DEFAULT;

/// Below it every whole number is exact in floating point.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

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
#[serde(deny_unknown_fields)]
struct Order {
    #[serde(default, deserialize_with = "given")]
    repository: Option<String>,
    #[serde(default, deserialize_with = "given")]
    project: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    issue_number: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    pull_request_number: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    label: Option<String>,
    #[serde(default, deserialize_with = "given")]
    agent_key: Option<String>,
    #[serde(default, deserialize_with = "runtime")]
    runtime: Option<Runtime>,
    #[serde(default, deserialize_with = "given")]
    namespace: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default, deserialize_with = "given")]
    title: Option<String>,
    #[serde(default, deserialize_with = "given")]
    instructions: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    timeout_ms: Option<u64>,
}

/// What is there is of its type: null is not the same as nothing.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

/// A whole number in any way that JSON writes one.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let exact = || {
        number
            .as_f64()
            .filter(|it| it.fract() == 0.0 && (0.0..EXACT_BELOW).contains(it))
    };
    let whole = number.as_u64().or_else(|| exact().map(|it| it as u64));
    whole
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("`{number}` is no whole number from 0 on")))
}

fn runtime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Runtime>, D::Error> {
    let word = String::deserialize(deserializer)?;
    let known = || {
        Runtime::ALL
            .iter()
            .map(|it| it.as_str())
            .collect::<Vec<_>>()
            .join("` or `")
    };
    Runtime::parse(&word)
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("`runtime` is `{}`", known())))
}

pub(super) async fn start(asked: Asked) -> Result<Response, Failure> {
    let order: Order = asked.body()?;
    let order = ManualOrder {
        repository: order.repository,
        project: order.project,
        issue_number: order.issue_number,
        pull_request_number: order.pull_request_number,
        label: order.label,
        agent_key: order.agent_key,
        runtime: order.runtime,
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
#[serde(deny_unknown_fields)]
struct Cancellation {
    reason: String,
}

pub(super) async fn cancel(asked: Asked) -> Result<Response, Failure> {
    let Cancellation { reason } = asked.body()?;
    if !(1..=REASON_CHARS_MAX).contains(&reason.chars().count()) {
        let message = format!("`reason` has 1 to {REASON_CHARS_MAX} characters");
        return Err(Refusal::new(ErrorCode::InvalidArguments, message).into());
    }
    let desk = &asked.api.office.runs.desk;
    let run = desk.cancel(&asked.caller.actor, &named(&asked), &reason).await?;
    Ok(Json(view::whole(&run, asked.api.clock.now())).into_response())
}

fn named(asked: &Asked) -> RunId {
    RunId::trusted(asked.values.text("id").unwrap_or_default())
}
