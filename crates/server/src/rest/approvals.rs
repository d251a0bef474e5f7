//! `/approvals`: what waits for a person, and the person's word.

use axum::Json;
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::request::{ApprovalRequest, Ballot, Choice, Decider};
use countersign_gateway::audit::event::ApprovalState;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::Asked;
use super::failure::Failure;
use crate::limits::LIST_DEFAULT;

/// Every state, for whoever wants to see what was decided.
pub(super) const ALL: &str = "all";

pub(super) fn states() -> Vec<&'static str> {
    let states = ApprovalState::ALL.iter().map(|state| state.as_str());
    states.chain([ALL]).collect()
}

pub(super) async fn list(asked: Asked) -> Result<Response, Failure> {
    let mut filter = ApprovalFilter::open();
    if let Some(words) = asked.values.words("state") {
        let every = words.iter().any(|word| word == ALL);
        let named = words.iter().filter_map(|word| ApprovalState::parse(word));
        filter.states = if every { Vec::new() } else { named.collect() };
    }
    filter.automatic = asked.values.flag("automatic");
    filter.limit = asked.values.whole("limit").map_or(LIST_DEFAULT, |limit| limit as usize);
    let found = asked.api.office.board.list(filter).await?;
    let items: Vec<Value> = found.iter().map(ApprovalRequest::to_json).collect();
    Ok(Json(json!({ "items": items })).into_response())
}

pub(super) async fn show(asked: Asked) -> Result<Response, Failure> {
    let id = asked.values.text("id").unwrap_or_default();
    let approval = asked.api.office.board.named(id).await?;
    Ok(Json(approval.to_json()).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    decision: Word,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Word {
    Approve,
    Deny,
}

/// Who is too late gets the decision that was first.
pub(super) async fn decide(asked: Asked) -> Result<Response, Failure> {
    let by = Decider::of(&asked.caller)?;
    let Decision { decision, reason } = asked.body()?;
    let choice = match decision {
        Word::Approve => Choice::Allow,
        Word::Deny => Choice::Deny,
    };
    let board = &asked.api.office.board;
    let approval = board.named(asked.values.text("id").unwrap_or_default()).await?;
    let decided = board.decide(&approval.id, Ballot { choice, by, reason }).await?;
    Ok(Json(decided.approval().to_json()).into_response())
}
