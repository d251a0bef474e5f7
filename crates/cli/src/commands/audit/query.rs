//! `audit query`: events or command records by what a person remembers of them.

use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::clock::Clock;
use countersign_gateway::error::Status;
use countersign_store::sqlite::exchanges;
use countersign_store::sqlite::query::QueryError;
use serde_json::Value;

use super::{Reading, summary};
use crate::cli::{AuditKind, AuditQuery};
use crate::config::Flags;
use crate::start::{BadUsage, say};
use crate::terminal::{Cell, Page, Tone, shortened};

const ARGUMENTS_CHARS_MAX: usize = 100;

pub(super) fn run(flags: &Flags, asked: &AuditQuery) -> anyhow::Result<()> {
    let filter = filter(asked)?;
    let record = Reading::open(flags)?;
    let mut page = Page::stdout();
    match (asked.kind, asked.json) {
        (AuditKind::Event, true) => {
            let rows = record.query_events(&filter)?;
            let lines = rows.iter().map(|row| {
                let line = row.to_json();
                line.map_err(|source| QueryError::Payload { seq: row.seq, source })
            });
            page.array(&readable(lines).collect::<Result<Vec<_>, _>>()?)?;
        }
        (AuditKind::Event, false) => {
            let rows = record.query_events(&filter)?;
            page.found(&rows.iter().map(summary::cells).collect::<Vec<_>>())?;
        }
        (AuditKind::Command, true) => {
            let commands = readable(record.query_commands(&filter)?.into_iter());
            page.array_of(commands.map(|command| Ok(command?.to_string())))?;
        }
        (AuditKind::Command, false) => {
            let commands = readable(record.query_commands(&filter)?.into_iter());
            let rows = commands.map(|record| Ok(command(&record?)));
            page.found(&rows.collect::<anyhow::Result<Vec<_>>>()?)?;
        }
        (AuditKind::Invocation, form) => {
            let found = record.find_invocations(&filter)?;
            let read = found.iter().map(|found| record.read_invocation(found));
            print_all(&mut page, read, form, invocation)?;
        }
        (AuditKind::Envelope, form) => {
            let found = record.find_envelopes(&filter)?;
            let read = found.iter().map(|found| record.read_envelope(found));
            print_all(&mut page, read, form, envelope)?;
        }
    }
    page.flush()
}

/// Prints what is read one at a time: results may be large.
fn print_all(
    page: &mut Page,
    read: impl Iterator<Item = Result<Option<Value>, QueryError>>,
    json: bool,
    cells: impl Fn(&Value) -> Vec<Cell>,
) -> anyhow::Result<()> {
    let read = readable(read.filter_map(Result::transpose));
    if json {
        return page.array_of(read.map(|value| Ok(value?.to_string())));
    }
    let rows = read.map(|value| Ok(cells(&value?)));
    page.found(&rows.collect::<anyhow::Result<Vec<_>>>()?)
}

/// Leaves out what is damaged, with a word on standard error: one bad row must not hide all the others.
fn readable<T>(read: impl Iterator<Item = Result<T, QueryError>>) -> impl Iterator<Item = Result<T, QueryError>> {
    read.filter(|row| match row {
        Err(error @ QueryError::Payload { .. }) => {
            say(&format!("warning: {error}; it is left out"));
            false
        }
        Ok(_) | Err(QueryError::Read { .. }) => true,
    })
}

fn filter(asked: &AuditQuery) -> anyhow::Result<Filter> {
    if let Some(status) = &asked.status {
        check_status(asked.kind, status)?;
    }
    let period = asked.between.period(Clock::system().now())?;
    Ok(Filter {
        status: asked.status.clone(),
        request_id: asked.request_id.clone(),
        correlation_id: asked.correlation_id.clone(),
        from: period.from(),
        to: period.to(),
        limit: asked.limit as usize,
        // Of too many, the latest are what a person looks for.
        pick: Pick::Newest,
        ..Filter::everything()
    })
}

/// A mistyped status would answer "nothing found", which is not true.
fn check_status(kind: AuditKind, status: &str) -> Result<(), BadUsage> {
    let mut known: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
    match kind {
        AuditKind::Command => known.retain(|word| !matches!(*word, "running" | "pending")),
        AuditKind::Event => known.extend(ApprovalState::ALL.iter().map(|state| state.as_str())),
        AuditKind::Invocation => known = vec!["ok", "error"],
        AuditKind::Envelope => known = vec![exchanges::ACCEPTED, exchanges::REFUSED],
    }
    if known.contains(&status) {
        return Ok(());
    }
    known.sort_unstable();
    known.dedup();
    let list: Vec<_> = known.iter().map(|word| format!("`{word}`")).collect();
    Err(BadUsage(format!(
        "`--status {status}` is not a status; use one of {}",
        list.join(", ")
    )))
}

/// Time, status, how it ended, duration, request, command.
fn command(record: &Value) -> Vec<Cell> {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let ended = match (&record["exit_code"], &record["error_code"]) {
        (Value::Number(code), _) => format!("exit {code}"),
        (_, Value::String(code)) => code.clone(),
        _ => String::new(),
    };
    vec![
        Cell::new(Tone::Quiet, text("timestamp")),
        Cell::new(summary::status_tone(text("status")), text("status")),
        Cell::plain(ended),
        Cell::plain(format!("{} ms", record["duration_ms"])),
        Cell::new(Tone::Quiet, text("request_id")),
        Cell::plain(summary::command(record)),
    ]
}

/// Time, status, code, duration, session, tool.
fn invocation(call: &Value) -> Vec<Cell> {
    let text = |name: &str| call[name].as_str().unwrap_or_default();
    let code = call["error"]["data"]["errorCode"].as_str().unwrap_or_default();
    vec![
        Cell::new(Tone::Quiet, text("finishedAt")),
        Cell::new(summary::status_tone(text("status")), text("status")),
        Cell::plain(code),
        Cell::plain(format!("{} ms", call["durationMs"])),
        Cell::new(Tone::Quiet, text("sessionId")),
        Cell::plain(shortened(
            &format!("{} {}", text("toolName"), call["arguments"]),
            ARGUMENTS_CHARS_MAX,
        )),
    ]
}

/// Time, transport, how it fared, session, method.
fn envelope(message: &Value) -> Vec<Cell> {
    let text = |name: &str| message[name].as_str().unwrap_or_default();
    let (tone, fared) = match message["error_code"].as_str() {
        Some(code) => (Tone::Bad, code),
        None => (Tone::Good, exchanges::ACCEPTED),
    };
    vec![
        Cell::new(Tone::Quiet, text("receivedAt")),
        Cell::plain(text("transport")),
        Cell::new(tone, fared),
        Cell::new(Tone::Quiet, text("sessionId")),
        Cell::plain(format!("{} {}", text("method"), text("error_message"))),
    ]
}
