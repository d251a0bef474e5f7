//! Metrics: S1's MetricsSummary of a period, and charts of the same record.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::audit::reading::{Entity, Filter, Pick};
use countersign_gateway::audit::summary::{MetricsSummary, Period};
use countersign_gateway::clock::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Console;
use super::access::Reader;
use super::chart::{Bucket, Chart, Series};
use super::found::Found;
use super::page::{self, Failure, Frame, Place};
use super::time::{Moment, spoken_millis};

/// Commands that charts are drawn of, and what their records may hold together; of more than that, the newest.
const COMMANDS_MAX: usize = 10_000;
const COMMANDS_BYTES: usize = 64 << 20;

/// The periods that can be chosen: name, label, length, buckets of the chart.
const PERIODS: [(&str, &str, u64, usize); 4] = [
    ("hour", "Last hour", 3_600, 30),
    ("day", "Last 24 hours", 86_400, 24),
    ("week", "Last 7 days", 7 * 86_400, 28),
    ("month", "Last 30 days", 30 * 86_400, 30),
];

#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    period: String,
}

struct Choice {
    name: &'static str,
    label: &'static str,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "numbers.html")]
struct Numbers {
    frame: Frame,
    choices: Vec<Choice>,
    summary: MetricsSummary,
    calls: usize,
    is_cut: bool,
    oldest: Option<Moment>,
    charts: Vec<Chart>,
    errors: Vec<(String, u64)>,
    avg_approval: String,
    jobs: [(&'static str, String); 4],
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    let chosen = PERIODS
        .iter()
        .position(|(name, ..)| *name == wanted.period)
        .unwrap_or(1);
    let (_, _, seconds, buckets) = PERIODS[chosen];
    let now = console.clock.now();
    let from = Timestamp::from_millis(now.as_millis() - i64::try_from(seconds * 1_000).unwrap_or(i64::MAX));
    let summary = console.office.records.summary(Period::since(from)).await?;
    let filter = Filter {
        from: Some(from),
        limit: COMMANDS_MAX,
        bytes_max: Some(COMMANDS_BYTES),
        pick: Pick::Newest,
        ..Filter::everything()
    };
    let look = |filter| console.office.records.entities(Entity::Command, filter);
    let found = Found::among(filter, COMMANDS_MAX, look, |placed| placed.place, |_| true).await?;
    let is_cut = found.older.is_some();
    let commands: Vec<Value> = found.rows.into_iter().map(|placed| placed.content).collect();
    let open = console.office.board.list(ApprovalFilter::open()).await?;
    let charts = vec![
        calls(&commands, from, Duration::from_secs(seconds), buckets),
        outcomes(&summary, open.len()),
        latency(&commands),
    ];
    let choices = PERIODS.iter().enumerate().map(|(index, (name, label, ..))| Choice {
        name,
        label,
        is_chosen: index == chosen,
    });
    let mut errors: Vec<_> = summary.error_distribution.clone().into_iter().collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.1));
    let numbers = Numbers {
        frame: Frame::of(&console, &reader, Some(Place::Metrics)).await?,
        choices: choices.collect(),
        calls: commands.len(),
        is_cut,
        oldest: open.first().map(|approval| Moment::of(approval.created_at, now)),
        charts,
        errors,
        avg_approval: match summary.manual_approved + summary.denied {
            0 => "–".to_owned(),
            _ => spoken_millis(summary.avg_approval_duration as u64),
        },
        jobs: [
            ("average", spoken_millis(summary.avg_job_duration as u64)),
            ("half within", spoken_millis(summary.p50_job_duration)),
            ("95 % within", spoken_millis(summary.p95_job_duration)),
            ("99 % within", spoken_millis(summary.p99_job_duration)),
        ],
        summary,
    };
    Ok(page::html(StatusCode::OK, &numbers))
}

/// Calls over time, by how they ended.
fn calls(commands: &[Value], from: Timestamp, period: Duration, count: usize) -> Chart {
    const ENDS: [(&str, &str, &[&str]); 4] = [
        ("ok", "good", &["ok"]),
        ("failed", "bad", &["failed", "error"]),
        ("refused", "wait", &["rejected"]),
        ("timed out", "quiet", &["timeout"]),
    ];
    let length = i64::try_from(period.as_millis()).unwrap_or(i64::MAX) / i64::try_from(count).unwrap_or(1);
    let mut buckets: Vec<Bucket> = (0..count)
        .map(|index| {
            let at = from.as_millis() + length * i64::try_from(index).unwrap_or(0);
            Bucket {
                label: label(Timestamp::from_millis(at), period),
                values: vec![0; ENDS.len()],
            }
        })
        .collect();
    for command in commands {
        let at = command["timestamp"].as_str().and_then(|at| Timestamp::parse(at).ok());
        let status = command["status"].as_str().unwrap_or_default();
        let end = ENDS.iter().position(|(_, _, names)| names.contains(&status));
        if let (Some(at), Some(end)) = (at, end) {
            let index = (at.as_millis() - from.as_millis()) / length.max(1);
            let index = usize::try_from(index).unwrap_or(0).min(count - 1);
            buckets[index].values[end] += 1;
        }
    }
    let series = ENDS.iter().map(|(name, tone, _)| Series { name, tone });
    let said = match commands.len() {
        0 => "No command ended in this time.".to_owned(),
        1 => "One command ended in this time.".to_owned(),
        count => format!("{count} commands ended in this time."),
    };
    Chart::new("calls", "Commands over time", said, series.collect(), buckets)
}

/// A moment on the axis: the time of day within a day, else the day.
fn label(at: Timestamp, period: Duration) -> String {
    let text = at.to_string();
    match period.as_secs() {
        0..=86_400 => text.get(11..16).unwrap_or_default().to_owned(),
        _ => text.get(5..10).unwrap_or_default().to_owned(),
    }
}

/// What became of questions.
fn outcomes(summary: &MetricsSummary, waiting: usize) -> Chart {
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let rows = [
        ("by a rule", count(summary.auto_approved)),
        ("approved", count(summary.manual_approved)),
        ("denied", count(summary.denied)),
        ("waiting now", waiting),
    ];
    let buckets = rows.iter().map(|(label, value)| Bucket {
        label: (*label).to_owned(),
        values: vec![*value],
    });
    let said = format!(
        "{} questions: {} answered by a rule, {} approved and {} denied by people. {waiting} wait now.",
        summary.total_approvals, summary.auto_approved, summary.manual_approved, summary.denied
    );
    let series = vec![Series {
        name: "questions",
        tone: "accent",
    }];
    Chart::new("outcomes", "Approvals", said, series, buckets.collect())
}

/// How long commands took.
fn latency(commands: &[Value]) -> Chart {
    const STEPS: [(u64, &str); 9] = [
        (5, "< 5 ms"),
        (10, "< 10 ms"),
        (50, "< 50 ms"),
        (100, "< 100 ms"),
        (500, "< 500 ms"),
        (1_000, "< 1 s"),
        (10_000, "< 10 s"),
        (60_000, "< 1 min"),
        (u64::MAX, "longer"),
    ];
    let mut buckets: Vec<Bucket> = STEPS
        .iter()
        .map(|(_, label)| Bucket {
            label: (*label).to_owned(),
            values: vec![0],
        })
        .collect();
    let ran = commands.iter().filter(|command| !command["exit_code"].is_null());
    let mut times: Vec<u64> = ran.filter_map(|command| command["duration_ms"].as_u64()).collect();
    times.sort_unstable();
    for time in &times {
        let index = STEPS
            .iter()
            .position(|(below, _)| time < below)
            .unwrap_or(STEPS.len() - 1);
        buckets[index].values[0] += 1;
    }
    let at = |percent: usize| {
        times
            .get((times.len() * percent).div_ceil(100).saturating_sub(1))
            .copied()
    };
    let said = match (at(50), at(95)) {
        (Some(only), _) if times.len() == 1 => format!("One command ran, for {}.", spoken_millis(only)),
        (Some(half), Some(most)) => format!(
            "Of {} commands that ran, half ended within {}, 95 % within {}.",
            times.len(),
            spoken_millis(half),
            spoken_millis(most)
        ),
        _ => "No command ran in this time.".to_owned(),
    };
    let series = vec![Series {
        name: "commands",
        tone: "accent",
    }];
    Chart::new("latency", "How long they took", said, series, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_fall_into_the_bucket_of_their_end() {
        let from = Timestamp::parse("2026-11-15T10:00:00Z").unwrap();
        let ended =
            |at: &str, status: &str| json!({"timestamp": at, "status": status, "duration_ms": 7, "exit_code": 0});
        let commands = [
            ended("2026-11-15T10:00:01Z", "ok"),
            ended("2026-11-15T10:59:59Z", "rejected"),
            ended("2026-11-15T11:00:05Z", "ok"),
        ];
        let html = calls(&commands, from, Duration::from_secs(3_600), 2).render().unwrap();
        assert!(html.contains("<title>10:00: 1 ok</title>"), "{html}");
        assert!(html.contains("<title>10:30: 1 refused</title>") && html.contains("<title>10:30: 1 ok</title>"));
        assert!(
            latency(&commands)
                .render()
                .unwrap()
                .contains("<title>&#60; 10 ms: 3 commands</title>")
        );
    }
}
