//! A person's word, from a page: a form with or without a script behind it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use countersign_gateway::approval::ballot::{Ballot, Choice, Decider};
use countersign_gateway::approval::board::{DecideError, Decided};
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::event::ApprovalState;
use serde::Deserialize;
use serde_json::json;

use super::Console;
use super::access::Reader;
use super::page::Failure;
use super::sent::Sent;

#[derive(Deserialize)]
pub(super) struct Word {
    decision: String,
    #[serde(default)]
    reason: String,
    /// What was chosen, where it is a question.
    #[serde(default)]
    selected_option: String,
    #[serde(default)]
    custom: String,
}

pub(super) async fn decide(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
    headers: HeaderMap,
    Sent(word): Sent<Word>,
) -> Response {
    let decided = take(&console, &reader, &id, word).await;
    match (decided, is_script(&headers)) {
        (Ok(decided), true) => Json(json!({
            "said": said(&decided),
            "stands": !matches!(decided, Decided::Before(_)),
        }))
        .into_response(),
        (Ok(decided), false) => Redirect::to(&format!("/approvals/{}", decided.approval().id)).into_response(),
        (Err(failure), true) => (failure.status(), Json(json!({"said": failure.message()}))).into_response(),
        (Err(failure), false) => failure.into_response(),
    }
}

async fn take(console: &Console, reader: &Reader, id: &str, word: Word) -> Result<Decided, Failure> {
    let by = Decider::of(&reader.0).map_err(|refusal| Failure::new(StatusCode::FORBIDDEN, refusal.message))?;
    let choice = match word.decision.as_str() {
        "approve" => Choice::Allow,
        "deny" => Choice::Deny,
        _ => return Err(Failure::new(StatusCode::BAD_REQUEST, "a decision is approve or deny")),
    };
    // Whole ids only: a beginning might mean another question by now.
    let approval = console.office.board.named(id).await?;
    if approval.id.as_str() != id {
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            format!("there is no approval `{id}`"),
        ));
    }
    let ballot = Ballot {
        choice,
        by,
        answer: answer(&word, choice),
        reason: word.reason.trim().to_owned(),
    };
    Ok(console.office.board.decide(&approval.id, ballot).await?)
}

/// Words of one's own go before an option; whoever denies chooses nothing.
fn answer(word: &Word, choice: Choice) -> Option<Given> {
    let given = match (word.custom.trim(), word.selected_option.as_str()) {
        ("", "") => None,
        ("", option) => Some(Given::Option(option.to_owned())),
        (custom, _) => Some(Given::Custom(custom.to_owned())),
    };
    given.filter(|_| choice == Choice::Allow)
}

/// What became of it, in a sentence.
fn said(decided: &Decided) -> String {
    match decided {
        Decided::Now(approval) => outcome(approval),
        Decided::Counted(approval) => format!("counted: {} of {} people agree", approval.votes.len(), approval.quorum),
        Decided::Before(approval) => format!("already decided: {}", outcome(approval)),
    }
}

fn outcome(approval: &ApprovalRequest) -> String {
    let word = match approval.state() {
        ApprovalState::Pending => "still open",
        ApprovalState::Approved | ApprovalState::Applied | ApprovalState::AutoApproved | ApprovalState::Failed => {
            "approved"
        }
        ApprovalState::Denied => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Withdrawn => "withdrawn",
    };
    let by = approval.decided_by.as_deref().map(|by| format!(" by {by}"));
    let reason = approval.decision_reason.as_deref().filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {reason}"));
    format!("{word}{}{}", by.unwrap_or_default(), reason.unwrap_or_default())
}

fn is_script(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept == "application/json")
}

impl From<DecideError> for Failure {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Record(error) => error.into(),
            DecideError::Unknown(_) => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            DecideError::OwnRequest | DecideError::AnothersRequest | DecideError::OwnersOnly => {
                Self::new(StatusCode::FORBIDDEN, error.to_string())
            }
            DecideError::Answer(error) => Self::new(StatusCode::BAD_REQUEST, error.to_string()),
        }
    }
}
