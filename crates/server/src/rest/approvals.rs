//! `/api/v1/approvals`: what waits for a person, and the person's word.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::request::{ApprovalRequest, Ballot, Choice, Decider};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::failure::Failure;
use crate::office::Visitor;

pub(super) async fn list(State(api): State<Arc<Api>>, Extension(visitor): Extension<Visitor>) -> Response {
    let listed = async {
        visitor.reader()?;
        let found = api.office.board.list(ApprovalFilter::open()).await?;
        let items: Vec<Value> = found.iter().map(ApprovalRequest::to_json).collect();
        Ok(json!({ "items": items }))
    };
    answer(&api, listed.await)
}

pub(super) async fn show(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Response {
    let shown = async {
        visitor.reader()?;
        Ok(api.office.board.named(&id).await?.to_json())
    };
    answer(&api, shown.await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    decision: String,
    #[serde(default)]
    reason: String,
}

pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let decided = async {
        let by = Decider::of(visitor.caller()?)?;
        let decision: Decision =
            serde_json::from_slice(&body).map_err(|error| Failure::malformed(format!("the body: {error}")))?;
        let choice = match decision.decision.as_str() {
            "approve" => Choice::Allow,
            "deny" => Choice::Deny,
            other => {
                let message = format!("`decision` is `approve` or `deny`, not `{other}`");
                return Err(Failure::malformed(message));
            }
        };
        let approval = api.office.board.named(&id).await?;
        let ballot = Ballot {
            choice,
            by,
            reason: decision.reason,
        };
        let decided = api.office.board.decide(&approval.id, ballot).await?;
        Ok(decided.approval().to_json())
    };
    answer(&api, decided.await)
}

fn answer(api: &Api, outcome: Result<Value, Failure>) -> Response {
    match outcome {
        Ok(value) => Json(value).into_response(),
        Err(failure) => failure.answer(api),
    }
}
