//! "Allow from now on": a rule is shown before it is written, and written as it was shown.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use countersign_gateway::approval::request::{ApprovalRequest, Ballot, Choice, Decider};
use countersign_gateway::error::Refusal;
use countersign_gateway::policy::standing::ProposedRule;
use serde::Deserialize;

use super::Console;
use super::access::Reader;
use super::card::Card;
use super::page::{self, Failure, Frame};
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
        /// The rule as it was shown, to be held against what would be written.
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
    Form(form): Form<Shown>,
) -> Result<Response, Failure> {
    let question = allowed(&console, &reader, &id).await?;
    let rule = console.office.rules.propose(&question).map_err(refused)?;
    if written(&rule) != form.shown {
        let changed = "The rule has changed since it was shown. Look at it again.";
        let standing = Standing::of(&console, &reader, &question, Some(changed)).await?;
        return Ok(page::html(StatusCode::CONFLICT, &standing));
    }
    let reason = format!("allowed from now on: {}", rule.pattern);
    console.office.rules.adopt(rule, &reader.0).await.map_err(refused)?;
    if !form.approve.is_empty() && question.is_pending() {
        let by = Decider::of(&reader.0).map_err(refused)?;
        let ballot = Ballot {
            choice: Choice::Allow,
            by,
            reason,
            answer: None,
        };
        console.office.board.decide(&question.id, ballot).await?;
    }
    Ok(Redirect::to(&format!("/approvals/{}", question.id)).into_response())
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

fn written(rule: &ProposedRule) -> String {
    format!("{}\n{}\n{}", rule.file, rule.pattern, rule.yaml)
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
                shown: written(&rule),
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
