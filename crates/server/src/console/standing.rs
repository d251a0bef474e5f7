//! "Allow from now on": a rule is shown before it is written, and written as it was shown.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use countersign_gateway::approval::ballot::{Ballot, Choice, Decider};
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::error::Refusal;
use countersign_gateway::policy::standing::ProposedRule;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::Console;
use super::access::Reader;
use super::card::Card;
use super::page::{self, Failure, Frame};
use super::sent::Sent;
use super::text::{self, Html};
use crate::limits::TEXT_CHARS_SHOWN;

#[derive(Template)]
#[template(path = "standing.html")]
struct Standing {
    frame: Frame,
    id: String,
    command: Html,
    proposal: Proposal,
    problem: Option<&'static str>,
}

enum Proposal {
    Rule {
        pattern: Html,
        reason: Html,
        yaml: Html,
        file: Html,
        /// Digest of the rule as it was shown, to be held against what would be written.
        shown: String,
        is_open: bool,
    },
    None {
        why: Html,
    },
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let question = allowed(&console, &reader, &id).await?;
    let standing = Standing::of(&console, &reader, &question, None).await?;
    Ok(page::html(StatusCode::OK, &standing))
}

#[derive(Deserialize)]
pub(super) struct Shown {
    shown: String,
    #[serde(default)]
    approve: String,
}

pub(super) async fn adopt(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
    Sent(form): Sent<Shown>,
) -> Result<Response, Failure> {
    let question = allowed(&console, &reader, &id).await?;
    let rule = console.office.rules.propose(&question).map_err(refused)?;
    if digest(&rule) != form.shown {
        let changed = "The rule has changed since it was shown. Look at it again.";
        let standing = Standing::of(&console, &reader, &question, Some(changed)).await?;
        return Ok(page::html(StatusCode::CONFLICT, &standing));
    }
    let here = Redirect::to(&format!("/approvals/{}", question.id)).into_response();
    if !form.approve.is_empty() && question.is_pending() {
        let ballot = Ballot {
            choice: Choice::Allow,
            by: Decider::of(&reader.0).map_err(refused)?,
            reason: "approved, from now on".to_owned(),
            answer: None,
        };
        let decided = console.office.board.decide(&question.id, ballot).await?;
        // Somebody said no meanwhile, and that stands for a rule as well.
        if decided.approval().decision() == Some(Choice::Deny) {
            return Ok(here);
        }
    }
    console.office.rules.adopt(rule, &reader.0).await.map_err(refused)?;
    Ok(here)
}

/// The question, for somebody who may write rules about it.
async fn allowed(console: &Console, reader: &Reader, id: &str) -> Result<ApprovalRequest, Failure> {
    let refuse = |message: &str| Err(Failure::new(StatusCode::FORBIDDEN, message));
    if !reader.may_rule() {
        return refuse("only an operator changes policy; ask one, or approve this one question");
    }
    let question = console.office.board.named(id).await?;
    if question.owner == reader.0.credential {
        return refuse("nobody writes a rule for what they asked for themselves; another operator has to");
    }
    Ok(question)
}

fn refused(refusal: Refusal) -> Failure {
    Failure::new(StatusCode::CONFLICT, refusal.message)
}

/// What tells this rule from any other.
fn digest(rule: &ProposedRule) -> String {
    let written = [&rule.file, &rule.pattern, &rule.yaml].map(String::as_str).join("\n");
    let digest = Sha256::digest(written.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Standing {
    async fn of(
        console: &Console,
        reader: &Reader,
        question: &ApprovalRequest,
        problem: Option<&'static str>,
    ) -> Result<Self, Failure> {
        let show = |text: &str| text::shown(text, TEXT_CHARS_SHOWN);
        let proposal = match console.office.rules.propose(question) {
            Ok(rule) => Proposal::Rule {
                pattern: show(&rule.pattern),
                reason: show(&rule.reason),
                yaml: text::lines(&rule.yaml, TEXT_CHARS_SHOWN),
                file: show(&rule.file),
                shown: digest(&rule),
                is_open: question.is_pending(),
            },
            Err(refusal) => Proposal::None {
                why: show(&refusal.message),
            },
        };
        Ok(Self {
            frame: Frame::of(console, reader, None).await?,
            id: question.id.to_string(),
            command: Card::line(question),
            proposal,
            problem,
        })
    }
}
