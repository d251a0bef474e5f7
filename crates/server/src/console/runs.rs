//! Runs: the work of agents for issues.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::run::keeping::RunFilter;
use countersign_gateway::run::lifecycle::RunStatus;
use countersign_gateway::run::state::Run;

use super::Console;
use super::access::Reader;
use super::page::{self, Failure, Frame, Place};
use super::text::{self, Html};
use super::time::Moment;

const RUNS_MAX: usize = 200;
const CELL_CHARS: usize = 120;

#[derive(Template)]
#[template(path = "runs.html")]
struct Runs {
    frame: Frame,
    rows: Rows,
}

/// What changes while a page is open.
#[derive(Template)]
#[template(path = "runs_rows.html")]
struct Rows {
    open: Vec<Line>,
    ended: Vec<Line>,
}

struct Line {
    id: String,
    short: String,
    state: String,
    tone: &'static str,
    about: Html,
    title: Html,
    label: Html,
    agent: Html,
    said: Html,
    created: Moment,
}

pub(super) async fn page(State(console): State<Arc<Console>>, reader: Reader) -> Result<Response, Failure> {
    let runs = Runs {
        frame: Frame::of(&console, &reader, Some(Place::Runs)).await?,
        rows: rows(&console).await?,
    };
    Ok(page::html(StatusCode::OK, &runs))
}

/// The rows alone, for a page that is open.
pub(super) async fn news(State(console): State<Arc<Console>>, _: Reader) -> Result<Response, Failure> {
    Ok(page::html(StatusCode::OK, &rows(&console).await?))
}

async fn rows(console: &Console) -> Result<Rows, Failure> {
    let filter = RunFilter {
        limit: RUNS_MAX,
        ..RunFilter::default()
    };
    let found = console.office.runs.desk.list(filter).await?;
    let now = console.clock.now();
    let lines = |has_ended| {
        let chosen = found.iter().filter(move |run| run.has_ended() == has_ended);
        chosen.map(|run| Line::of(run, now)).collect()
    };
    Ok(Rows {
        open: lines(false),
        ended: lines(true),
    })
}

impl Line {
    fn of(run: &Run, now: Timestamp) -> Self {
        let cell = |text: &str| text::shown(text, CELL_CHARS);
        let about = run.issue().or_else(|| run.repository.clone());
        Self {
            id: run.id.as_str().to_owned(),
            short: run.id.as_str().chars().take(8).collect(),
            state: standing(run),
            tone: tone(run),
            about: cell(about.as_deref().unwrap_or("no issue")),
            title: cell(run.title.as_deref().unwrap_or_default()),
            label: cell(run.trigger_label.as_deref().unwrap_or("by hand")),
            agent: cell(&run.agent_key),
            said: cell(
                run.reported_status
                    .as_deref()
                    .or(run.reason.as_deref())
                    .unwrap_or_default(),
            ),
            created: Moment::of(run.created_at, now),
        }
    }
}

pub(super) fn standing(run: &Run) -> String {
    match run.wait_state {
        Some(state) => format!("waits: {}", state.as_str()),
        None => run.status.as_str().to_owned(),
    }
}

pub(super) fn tone(run: &Run) -> &'static str {
    match run.status {
        RunStatus::Pending | RunStatus::Running => "wait",
        RunStatus::Succeeded => "good",
        RunStatus::Failed => "bad",
        RunStatus::Cancelled => "quiet",
    }
}
