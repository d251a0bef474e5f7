//! `/approvals`: what waits for a person, and the person's word.

use axum::Json;
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::ballot::{Ballot, Choice, Decider};
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::ApprovalRequest;
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
    decision: Option<Word>,
    #[serde(default)]
    reason: String,
    /// One of the options of a question.
    selected_option: Option<String>,
    /// An answer to a question in words of one's own.
    custom: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Word {
    Approve,
    Deny,
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
        let choice = match (self.decision, &answer) {
            (Some(Word::Approve), _) | (None, Some(_)) => Choice::Allow,
            (Some(Word::Deny), _) => Choice::Deny,
            (None, None) => return Err(Failure::malformed("`decision` is missing; it is `approve` or `deny`")),
        };
        Ok((choice, answer))
    }
}

/// Who is too late gets the decision that was first.
pub(super) async fn decide(asked: Asked) -> Result<Response, Failure> {
    let by = Decider::of(&asked.caller)?;
    let decision: Decision = asked.body()?;
    let (choice, answer) = decision.read()?;
    let board = &asked.api.office.board;
    let approval = board.named(asked.values.text("id").unwrap_or_default()).await?;
    let ballot = Ballot {
        choice,
        by,
        reason: decision.reason,
        answer,
    };
    let decided = board.decide(&approval.id, ballot).await?;
    Ok(Json(decided.approval().to_json()).into_response())
}
