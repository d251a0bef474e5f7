//! Jobs: what agents were asked to do, and how each piece of work stands.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::job::driver::Usage;
use countersign_gateway::job::keeping::JobFilter;
use countersign_gateway::job::lifecycle::{JobStatus, SubState};
use countersign_gateway::job::state::Job;
use serde::Deserialize;

use super::Console;
use super::access::Reader;
use super::page::{self, Failure, Frame, Place};
use super::text::{self, Html};
use super::time::{Moment, spoken_millis};

const JOBS_MAX: usize = 200;
const TITLE_CHARS: usize = 160;

const VIEWS: [(&str, &str, &[JobStatus]); 4] = [
    ("", "All", &[]),
    ("open", "At work", &[JobStatus::Pending, JobStatus::Running]),
    ("done", "Done", &[JobStatus::Completed]),
    (
        "ended",
        "Ended otherwise",
        &[JobStatus::Failed, JobStatus::Cancelled, JobStatus::Timeout],
    ),
];

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    show: String,
}

struct View {
    name: &'static str,
    label: &'static str,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct Jobs {
    frame: Frame,
    views: Vec<View>,
    rows: Rows,
}

#[derive(Template)]
#[template(path = "jobs_rows.html")]
struct Rows {
    lines: Vec<Line>,
}

struct Line {
    path: String,
    title: Html,
    agent: Html,
    by: Html,
    state: &'static str,
    tone: &'static str,
    created: Moment,
    took: String,
    tokens: String,
    cost: String,
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    let views = VIEWS.iter().map(|(name, label, _)| View {
        name,
        label,
        is_chosen: wanted.show == *name,
    });
    let jobs = Jobs {
        frame: Frame::of(&console, &reader, Some(Place::Jobs)).await?,
        views: views.collect(),
        rows: rows(&console, &reader, &wanted).await?,
    };
    Ok(page::html(StatusCode::OK, &jobs))
}

/// The rows alone, for a page that is open.
pub(super) async fn news(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    Ok(page::html(StatusCode::OK, &rows(&console, &reader, &wanted).await?))
}

async fn rows(console: &Console, reader: &Reader, wanted: &Wanted) -> Result<Rows, Failure> {
    let view = VIEWS.iter().find(|(name, ..)| *name == wanted.show);
    let filter = JobFilter {
        owner: None,
        statuses: view.map_or(&[][..], |(.., statuses)| statuses).to_vec(),
        limit: JOBS_MAX,
    };
    let desk = &console.office.jobs;
    let jobs = desk.list(&reader.0, filter).await?;
    let usages = desk.usages(&jobs).await?;
    let now = console.clock.now();
    let lines = jobs.iter().zip(&usages).rev();
    Ok(Rows {
        lines: lines.map(|(job, usage)| Line::of(job, usage, now)).collect(),
    })
}

impl Line {
    fn of(job: &Job, usage: &Usage, now: Timestamp) -> Self {
        let title = job.input.prompt.lines().find(|line| !line.trim().is_empty());
        Self {
            path: path(job),
            title: text::shown(title.unwrap_or_default(), TITLE_CHARS),
            agent: text::shown(&job.agent, TITLE_CHARS),
            by: text::shown(&job.started_by.id, TITLE_CHARS),
            state: standing(job),
            tone: tone(job),
            created: Moment::of(job.created_at, now),
            took: worked(job, now),
            tokens: match usage.total_tokens {
                0 => String::new(),
                tokens => grouped(tokens),
            },
            cost: cost(usage),
        }
    }
}

pub(super) fn path(job: &Job) -> String {
    format!("/jobs/{}", super::event::path_part(job.id.as_str()))
}

/// How a job stands, in words.
pub(super) fn standing(job: &Job) -> &'static str {
    match (job.sub_state, job.status()) {
        (Some(SubState::WaitingApproval), _) => "waits for a person",
        (Some(SubState::Interrupting), _) => "being interrupted",
        (Some(SubState::PausedLimit), _) => "rests at a limit",
        (Some(SubState::Recovering), _) => "being taken up again",
        (None, JobStatus::Pending) => "waits for its turn",
        (None, JobStatus::Running) => "at work",
        (None, JobStatus::Completed) => "done",
        (None, JobStatus::Failed) => "failed",
        (None, JobStatus::Cancelled) => "interrupted",
        (None, JobStatus::Timeout) => "out of time",
    }
}

pub(super) fn tone(job: &Job) -> &'static str {
    match job.status() {
        JobStatus::Pending => "quiet",
        JobStatus::Running => "wait",
        JobStatus::Completed => "good",
        JobStatus::Failed | JobStatus::Timeout => "bad",
        JobStatus::Cancelled => "quiet",
    }
}

/// How long it worked, or has worked so far.
pub(super) fn worked(job: &Job, now: Timestamp) -> String {
    let so_far = || {
        let began = job.metrics.start_time?;
        u64::try_from(now.since(began).as_millis()).ok()
    };
    let millis = job.duration_ms().or_else(so_far);
    millis.map(spoken_millis).unwrap_or_default()
}

/// 1,234,567.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Empty where the agent does not say.
pub(super) fn cost(usage: &Usage) -> String {
    match usage.cost_usd {
        Some(cost) if cost < 1.0 => format!("${cost:.4}"),
        Some(cost) => format!("${cost:.2}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_cost_is_exact_while_it_is_small() {
        let of = |cost_usd| {
            cost(&Usage {
                cost_usd,
                ..Usage::default()
            })
        };
        assert_eq!(of(Some(0.012_34)), "$0.0123");
        assert_eq!(of(Some(12.5)), "$12.50");
        assert_eq!(of(None), "");
    }
}
