//! `metrics`: S1's MetricsSummary of a period.

use countersign_gateway::clock::Clock;
use serde_json::Value;

use crate::cli::Metrics;
use crate::commands::audit::Reading;
use crate::config::Flags;
use crate::terminal::{Cell, Page, Tone};

pub(crate) fn run(flags: &Flags, asked: &Metrics) -> anyhow::Result<()> {
    let period = asked.between.period(Clock::system().now())?;
    let summary = Reading::open(flags)?.summarize(period)?.to_json();
    let mut page = Page::stdout();
    if asked.json {
        page.json(&summary)?;
    } else {
        page.table(&rows(&summary))?;
    }
    page.flush()
}

/// A line for each number, and one for each kind of error.
fn rows(summary: &Value) -> Vec<Vec<Cell>> {
    let row = |name: String, value: &Value| {
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), std::borrow::ToOwned::to_owned);
        vec![Cell::new(Tone::Strong, name), Cell::plain(shown)]
    };
    let mut rows = Vec::new();
    for (name, value) in summary.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(errors) => rows.extend(errors.iter().map(|(code, count)| row(format!("{name}.{code}"), count))),
            None => rows.push(row(name.clone(), value)),
        }
    }
    rows
}
