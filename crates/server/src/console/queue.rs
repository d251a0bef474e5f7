//! The queue: every question that waits, oldest first, and what was decided lately.
//!
//! A page that is open never moves under a person's hand: what is new comes last, and what somebody else
//! settled stays where it was and says so.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::approval::board::NamingError;
use countersign_gateway::audit::event::ApprovalState;

use super::Console;
use super::access::Reader;
use super::card::{Card, Line};
use super::origin::Origins;
use super::page::{self, Failure, Frame, Place};

const SETTLED_SHOWN: usize = 12;

#[derive(Template)]
#[template(path = "queue.html")]
struct Queue {
    frame: Frame,
    cards: Vec<Card>,
    settled: Vec<Line>,
}

pub(super) async fn page(State(console): State<Arc<Console>>, reader: Reader) -> Result<Response, Failure> {
    let queue = Queue {
        frame: Frame::of(&console, &reader, Some(Place::Queue)).await?,
        cards: waiting(&console, &reader).await?,
        settled: lately(&console).await?,
    };
    Ok(page::html(StatusCode::OK, &queue))
}

#[derive(Template)]
#[template(path = "cards.html")]
struct Cards {
    cards: Vec<Card>,
    settled: Vec<Line>,
}

/// The same without the frame, for a page that is open.
pub(super) async fn cards(State(console): State<Arc<Console>>, reader: Reader) -> Result<Response, Failure> {
    let cards = Cards {
        cards: waiting(&console, &reader).await?,
        settled: lately(&console).await?,
    };
    Ok(page::html(StatusCode::OK, &cards))
}

#[derive(Template)]
#[template(path = "one.html")]
struct One {
    frame: Frame,
    card: Card,
}

/// One question, whatever became of it.
pub(super) async fn one(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let one = One {
        frame: Frame::of(&console, &reader, None).await?,
        card: named(&console, &reader, &id).await?,
    };
    Ok(page::html(StatusCode::OK, &one))
}

pub(super) async fn card(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let card = named(&console, &reader, &id).await?;
    Ok(page::html(StatusCode::OK, &card))
}

async fn named(console: &Console, reader: &Reader, id: &str) -> Result<Card, Failure> {
    let approval = console.office.board.named(id).await?;
    let origins = Origins::of(console, std::slice::from_ref(&approval)).await?;
    Ok(Card::of(&approval, origins.get(&approval), reader, console.clock.now()))
}

async fn waiting(console: &Console, reader: &Reader) -> Result<Vec<Card>, Failure> {
    let found = console.office.board.list(ApprovalFilter::open()).await?;
    let origins = Origins::of(console, &found).await?;
    let now = console.clock.now();
    let cards = found
        .iter()
        .map(|approval| Card::of(approval, origins.get(approval), reader, now));
    Ok(cards.collect())
}

/// What people decided, the newest first; what rules answered would only push that away.
async fn lately(console: &Console) -> Result<Vec<Line>, Failure> {
    let filter = ApprovalFilter {
        states: vec![
            ApprovalState::Approved,
            ApprovalState::Applied,
            ApprovalState::Failed,
            ApprovalState::Denied,
            ApprovalState::Expired,
            ApprovalState::Withdrawn,
        ],
        automatic: Some(false),
        limit: SETTLED_SHOWN,
    };
    let found = console.office.board.list(filter).await?;
    let now = console.clock.now();
    Ok(found
        .iter()
        .rev()
        .filter_map(|approval| Line::of(approval, now))
        .collect())
}

impl From<NamingError> for Failure {
    fn from(error: NamingError) -> Self {
        match error {
            NamingError::Record(error) => error.into(),
            NamingError::Unknown(_) => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            NamingError::Ambiguous { .. } => Self::new(StatusCode::BAD_REQUEST, error.to_string()),
        }
    }
}
