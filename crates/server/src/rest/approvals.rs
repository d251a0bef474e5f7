//! `/api/v1/approvals`: what waits for a person, and the person's word.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::{ApprovalRequest, Ballot, Choice, Decider};
use countersign_gateway::error::brief;
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
    decision: Option<String>,
    #[serde(default)]
    reason: String,
    /// One of the options of a question.
    selected_option: Option<String>,
    /// An answer to a question in words of one's own.
    custom: Option<String>,
}

impl Decision {
    /// What is said; who only names an answer approves.
    fn read(&self) -> Result<(Choice, Option<Given>), Failure> {
        let answer = match (&self.selected_option, &self.custom) {
            (Some(_), Some(_)) => return Err(Failure::malformed("give `selected_option` or `custom`, not both")),
            (Some(option), None) => Some(Given::Option(option.clone())),
            (None, Some(custom)) => Some(Given::Custom(custom.clone())),
            (None, None) => None,
        };
        let choice = match (self.decision.as_deref(), &answer) {
            (Some("approve"), _) | (None, Some(_)) => Choice::Allow,
            (Some("deny"), _) => Choice::Deny,
            (Some(other), _) => {
                let message = format!("`decision` is `approve` or `deny`, not `{}`", brief(other));
                return Err(Failure::malformed(message));
            }
            (None, None) => return Err(Failure::malformed("`decision` is missing; it is `approve` or `deny`")),
        };
        Ok((choice, answer))
    }
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
        let (choice, answer) = decision.read()?;
        let approval = api.office.board.named(&id).await?;
        let ballot = Ballot {
            choice,
            by,
            reason: decision.reason,
            answer,
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
