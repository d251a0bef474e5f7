//! Activity: what happens, as it happens, one line each.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::row::Row;
use serde::Deserialize;

use super::Console;
use super::access::Reader;
use super::event::{self, Told};
use super::page::{self, Failure, Frame, Place};
use crate::limits::ANSWER_BYTES_MAX;

/// Lines that are shown, and rows that are looked through for them.
const LINES: usize = 100;
const ROWS: usize = 1_000;

/// What a person wants to see of it.
const VIEWS: [(&str, &str); 5] = [
    ("", "Everything"),
    ("calls", "Calls"),
    ("decisions", "Decisions"),
    ("sessions", "Sessions and logins"),
    ("trouble", "What went wrong"),
];

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    show: String,
    /// Every step of every call.
    #[serde(default)]
    steps: String,
    /// What is newer than this.
    #[serde(default)]
    after: u64,
}

struct View {
    name: &'static str,
    label: &'static str,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "activity.html")]
struct Activity {
    frame: Frame,
    views: Vec<View>,
    steps: bool,
    rows: Rows,
}

#[derive(Template)]
#[template(path = "activity_rows.html")]
struct Rows {
    events: Vec<Told>,
    /// The newest row that was looked at, shown or not.
    head: u64,
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    let views = VIEWS.iter().map(|(name, label)| View {
        name,
        label,
        is_chosen: wanted.show == *name,
    });
    let activity = Activity {
        frame: Frame::of(&console, &reader, Some(Place::Activity)).await?,
        views: views.collect(),
        steps: !wanted.steps.is_empty(),
        rows: rows(&console, &wanted).await?,
    };
    Ok(page::html(StatusCode::OK, &activity))
}

/// Only what is newer, for a page that is open.
pub(super) async fn news(
    State(console): State<Arc<Console>>,
    _: Reader,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    Ok(page::html(StatusCode::OK, &rows(&console, &wanted).await?))
}

async fn rows(console: &Console, wanted: &Wanted) -> Result<Rows, Failure> {
    let filter = Filter {
        after: Some(wanted.after),
        limit: ROWS,
        // Rows may hold commands as long as agents like.
        bytes_max: Some(ANSWER_BYTES_MAX),
        pick: Pick::Newest,
        ..Filter::everything()
    };
    let found = console.office.records.events(filter).await?;
    let now = console.clock.now();
    let chosen = found.iter().rev().filter(|row| is_wanted(row, wanted));
    Ok(Rows {
        events: chosen.take(LINES).map(|row| Told::of(row, now)).collect(),
        head: found.last().map_or(wanted.after, |row| row.place),
    })
}

fn is_wanted(row: &Row, wanted: &Wanted) -> bool {
    let kind = row.event_type.as_str();
    if wanted.steps.is_empty() && !event::is_news(kind) {
        return false;
    }
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| kind.starts_with(prefix));
    match wanted.show.as_str() {
        "calls" => begins(&["command.", "tool.", "mcp.", "job.", "run."]),
        "decisions" => begins(&["approval.", "policy."]),
        "sessions" => begins(&["session.", "auth.", "token."]),
        "trouble" => {
            let payload = row.payload().unwrap_or_default();
            let status = payload["status"].as_str().or(row.approval_state.as_deref());
            kind.ends_with(".refused") || status.is_some_and(|status| event::tone_of(status) == "bad")
        }
        _ => true,
    }
}
