//! `db status`.

use countersign_store::db::{self, ChainEnd, Condition, NodeSeen};
use serde_json::{Value, json};

use super::Place;
use crate::commands::audit::Form;
use crate::config::Flags;
use crate::terminal::{Cell, Page, Tone, count};
use crate::whereabouts;

pub(super) fn run(flags: &Flags, form: Form) -> anyhow::Result<()> {
    let place = Place::find(flags)?;
    let condition = db::condition(&place.directory, place.database.as_deref())?;
    let engine = if place.database.is_some() {
        "postgresql"
    } else {
        "sqlite"
    };
    // The server of this state directory, which may be on another record.
    let server = whereabouts::find(&place.directory);
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&as_json(engine, &condition, server.as_deref()))?,
        Form::Text => say(&mut page, engine, &condition, server.as_deref())?,
    }
    page.flush()
}

fn as_json(engine: &str, condition: &Condition, server: Option<&str>) -> Value {
    let tables = condition.tables.iter();
    json!({
        "engine": engine,
        "version": condition.version,
        "known": condition.known,
        "pending": condition.pending().collect::<Vec<_>>(),
        "bytes": condition.bytes,
        "rows": tables.map(|(name, rows)| (name.clone(), (*rows).into())).collect::<serde_json::Map<_, _>>(),
        "chains": condition.chains.iter().map(chain).collect::<Vec<_>>(),
        "nodes": condition.nodes.iter().map(node).collect::<Vec<_>>(),
        "moved": condition.moved,
        "server": server,
    })
}

fn chain(end: &ChainEnd) -> Value {
    json!({
        "chain": end.chain,
        "first_seq": end.first_seq,
        "last_seq": end.last_seq,
        "hash": end.hash,
        "checkpointed": end.checkpointed,
        "public_key": end.public_key,
    })
}

fn node(seen: &NodeSeen) -> Value {
    json!({
        "node": seen.node,
        "processes": seen.processes,
        "last_seen": seen.last_seen,
        "silent_ms": seen.silent_ms,
    })
}

fn say(page: &mut Page, engine: &str, condition: &Condition, server: Option<&str>) -> anyhow::Result<()> {
    let name = if engine == "sqlite" { "SQLite" } else { "PostgreSQL" };
    let (version, known) = (condition.version, condition.known);
    let standing = if version > known {
        page.paint(
            Tone::Bad,
            &format!("written by a newer program, this one knows {known}"),
        )
    } else if version < known {
        let pending = count((known - version) as u64, "step");
        page.paint(Tone::Caution, &format!("{pending} to apply, `db migrate` does"))
    } else {
        page.paint(Tone::Good, "up to date")
    };
    let megabytes = condition.bytes as f64 / 1_000_000.0;
    page.line(format_args!(
        "{name}, version {version} ({standing}), {megabytes:.1} MB"
    ))?;
    if let Some(to) = &condition.moved {
        page.line(format_args!("moved to {to}; this file is no longer used"))?;
    }
    if let Some(server) = server {
        page.line(format_args!("a server of this state directory runs at {server}"))?;
    }
    page.line("")?;
    page.table(&condition.chains.iter().map(chain_cells).collect::<Vec<_>>())?;
    if !condition.nodes.is_empty() {
        page.line("")?;
        page.table(&condition.nodes.iter().map(node_cells).collect::<Vec<_>>())?;
    }
    page.line("")?;
    let filled = condition.tables.iter().filter(|(_, rows)| *rows > 0);
    let rows = filled.map(|(name, rows)| vec![Cell::plain(name), Cell::new(Tone::Quiet, rows.to_string())]);
    page.table(&rows.collect::<Vec<_>>())
}

fn chain_cells(end: &ChainEnd) -> Vec<Cell> {
    vec![
        Cell::plain(format!("chain {}", end.chain)),
        Cell::plain(format!("rows {} to {}", end.first_seq, end.last_seq)),
        Cell::plain(format!("signed to {}", end.checkpointed)),
        Cell::new(Tone::Quiet, &end.hash),
    ]
}

fn node_cells(seen: &NodeSeen) -> Vec<Cell> {
    let life = match (&seen.last_seen, seen.silent_ms) {
        (Some(moment), Some(silent)) => format!("last seen {moment}, {} s ago", silent / 1_000),
        (Some(moment), None) => format!("last seen {moment}"),
        (None, _) => "no sign of life".to_owned(),
    };
    vec![
        Cell::plain(format!("node {}", seen.node)),
        Cell::plain(match seen.processes {
            1 => "1 process".to_owned(),
            several => format!("{several} processes"),
        }),
        Cell::new(Tone::Quiet, life),
    ]
}
