//! `audit query`: events or command records by what a person remembers of them.

use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::error::Status;
use countersign_store::row::Row;
use countersign_store::sqlite::query::{Filter, Pick};
use serde_json::Value;

use super::{Reading, summary};
use crate::cli::{AuditKind, AuditQuery};
use crate::config::Flags;
use crate::start::BadUsage;
use crate::terminal::{Cell, Page, Tone};

pub(super) fn run(flags: &Flags, asked: &AuditQuery) -> anyhow::Result<()> {
    let filter = filter(asked)?;
    let record = Reading::open(flags)?;
    let mut page = Page::stdout();
    match (asked.kind, asked.json) {
        (AuditKind::Event, true) => {
            let rows = record.query_events(&filter)?;
            page.array(&rows.iter().map(Row::to_json).collect::<Result<Vec<_>, _>>()?)?;
        }
        (AuditKind::Event, false) => {
            let rows = record.query_events(&filter)?;
            page.table(&rows.iter().map(summary::cells).collect::<Vec<_>>())?;
        }
        (AuditKind::Command, true) => {
            let commands = record.query_commands(&filter)?;
            page.array(&commands.iter().map(Value::to_string).collect::<Vec<_>>())?;
        }
        (AuditKind::Command, false) => {
            let commands = record.query_commands(&filter)?;
            page.table(&commands.iter().map(command).collect::<Vec<_>>())?;
        }
    }
    page.flush()
}

fn filter(asked: &AuditQuery) -> anyhow::Result<Filter> {
    if let Some(status) = &asked.status {
        check_status(asked.kind, status)?;
    }
    Ok(Filter {
        status: asked.status.clone(),
        request_id: asked.request_id.clone(),
        correlation_id: asked.correlation_id.clone(),
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
