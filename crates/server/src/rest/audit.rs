//! `/audit`: the record by page, proved, and as a whole.

use axum::Json;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::audit::event::{ApprovalState, EventType};
use countersign_gateway::audit::reading::{Entity, Filter, Pick, Placed, Records};
use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::error::{ErrorCode, Refusal, Status};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::asked::Asked;
use super::failure::Failure;
use super::stream;
use crate::limits::{ANSWER_BYTES_MAX, LIST_DEFAULT};

/// The order of a list, and so what `next` leads to.
pub(super) fn orders() -> Vec<&'static str> {
    vec!["oldest", "newest"]
}

pub(super) fn types() -> Vec<&'static str> {
    EventType::ALL.iter().map(|kind| kind.as_str()).collect()
}

pub(super) fn event_statuses() -> Vec<&'static str> {
    let mut words: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
    words.extend(ApprovalState::ALL.iter().map(|state| state.as_str()));
    words.sort_unstable();
    words.dedup();
    words
}

pub(super) fn command_statuses() -> Vec<&'static str> {
    let ended = Status::ALL.iter().map(|status| status.as_str());
    ended.filter(|word| !matches!(*word, "running" | "pending")).collect()
}

pub(super) async fn events(asked: Asked) -> Result<Response, Failure> {
    let mut filter = filter(&asked)?;
    filter.event_type = asked.values.text("type").and_then(EventType::parse);
    let records = &asked.api.office.records;
    let mut rows = records.events(filter.clone()).await?;
    let edge = match filter.pick {
        Pick::Oldest => rows.last(),
        Pick::Newest => rows.first(),
    };
    let next = match edge.map(|row| row.place) {
        Some(seq) => further(filter.clone(), seq, |filter| more_events(&**records, filter)).await?,
        None => None,
    };
    if filter.pick == Pick::Newest {
        rows.reverse();
    }
    // A row that is damaged is left out; proving names it.
    let items = rows
        .iter()
        .filter_map(|row| RawValue::from_string(row.to_json().ok()?).ok());
    Ok(Json(Page {
        items: items.collect::<Vec<_>>(),
        next,
    })
    .into_response())
}

pub(super) async fn commands(asked: Asked) -> Result<Response, Failure> {
    let filter = filter(&asked)?;
    entities(asked, Entity::Command, filter).await
}

/// The latest first, for whoever looks at what is going on.
pub(super) async fn recent(asked: Asked) -> Result<Response, Failure> {
    let mut filter = filter(&asked)?;
    filter.before = asked.values.whole("after");
    filter.after = None;
    filter.pick = Pick::Newest;
    entities(asked, Entity::Command, filter).await
}

pub(super) async fn invocations(asked: Asked) -> Result<Response, Failure> {
    let filter = filter(&asked)?;
    entities(asked, Entity::Invocation, filter).await
}

pub(super) async fn envelopes(asked: Asked) -> Result<Response, Failure> {
    let filter = filter(&asked)?;
    entities(asked, Entity::Envelope, filter).await
}

async fn entities(asked: Asked, entity: Entity, filter: Filter) -> Result<Response, Failure> {
    let records = &asked.api.office.records;
    let mut found = records.entities(entity, filter.clone()).await?;
    let edge = match filter.pick {
        Pick::Oldest => found.last(),
        Pick::Newest => found.first(),
    };
    let next = match edge.map(|placed| placed.place) {
        Some(seq) => further(filter.clone(), seq, |filter| more_entities(&**records, entity, filter)).await?,
        None => None,
    };
    if filter.pick == Pick::Newest {
        found.reverse();
    }
    let items: Vec<Value> = found.into_iter().map(|Placed { content, .. }| content).collect();
    Ok(Json(Page { items, next }).into_response())
}

#[derive(serde::Serialize)]
struct Page<T> {
    items: Vec<T>,
    /// Given as `after`, it leads on.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Whether a page has another one behind it. An answer may have been cut for its size, so its length does
/// not tell.
async fn further(
    filter: Filter,
    seq: u64,
    look: impl FnOnce(Filter) -> Pending<Result<bool, RecordError>>,
) -> Result<Option<u64>, RecordError> {
    let beyond = match filter.pick {
        Pick::Oldest => Filter {
            after: Some(seq),
            limit: 1,
            ..filter
        },
        Pick::Newest => Filter {
            before: Some(seq),
            limit: 1,
            ..filter
        },
    };
    Ok(look(beyond).await?.then_some(seq))
}

fn more_events(records: &dyn Records, filter: Filter) -> Pending<Result<bool, RecordError>> {
    let found = records.events(filter);
    Box::pin(async move { Ok(!found.await?.is_empty()) })
}

fn more_entities(records: &dyn Records, entity: Entity, filter: Filter) -> Pending<Result<bool, RecordError>> {
    let found = records.entities(entity, filter);
    Box::pin(async move { Ok(!found.await?.is_empty()) })
}

fn filter(asked: &Asked) -> Result<Filter, Failure> {
    let period = asked.values.period()?;
    let text = |name: &str| asked.values.text(name).map(str::to_owned);
    let after = asked.values.whole("after");
    let (pick, after, before) = match asked.values.text("order") {
        Some("newest") => (Pick::Newest, None, after),
        Some(_) | None => (Pick::Oldest, after, None),
    };
    Ok(Filter {
        status: text("status"),
        request_id: text("request_id"),
        correlation_id: text("correlation_id"),
        from: period.from(),
        to: period.to(),
        after,
        before,
        limit: asked.values.whole("limit").map_or(LIST_DEFAULT, |limit| limit as usize),
        bytes_max: Some(ANSWER_BYTES_MAX),
        pick,
        ..Filter::everything()
    })
}

pub(super) async fn verify(asked: Asked) -> Result<Response, Failure> {
    let api = &asked.api;
    let found = api.shared.proofs.find(&api.office.records, &api.clock).await?;
    let mut answer = found.proved.to_json();
    answer["proved_at"] = json!(found.at.to_string());
    Ok(Json(answer).into_response())
}

pub(super) async fn export(asked: Asked) -> Result<Response, Failure> {
    let Ok(permit) = asked.api.shared.exports.clone().try_acquire_owned() else {
        let message = "as many exports as may run at once are running; try again when one has ended";
        return Err(Refusal::new(ErrorCode::QueueFull, message).into());
    };
    let (sender, body) = stream::body(&asked.extensions, permit);
    let (failed, pipe) = (sender.clone(), stream::Pipe::new(sender));
    let written = asked.api.office.records.export(Box::new(pipe));
    tokio::spawn(async move {
        if let Err(error) = written.await {
            // Cut short, so that nobody takes a part for the whole; it would not verify either.
            tracing::warn!(%error, "an export ended early");
            failed.fail(error.to_string()).await;
        }
    });
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    let name = HeaderValue::from_static("attachment; filename=\"countersign-record.jsonl\"");
    headers.insert(header::CONTENT_DISPOSITION, name);
    Ok(response)
}
