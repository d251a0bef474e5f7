//! The control tools with the real binary: databases on a real PostgreSQL, secrets in stand-ins of GitHub and
//! Kubernetes that hold everybody to what those have published.

mod databases;
mod nowhere;
mod proxy;
mod races;
mod secrets;
mod stopping;
mod world;

use serde_json::Value;

use crate::bench::Bench;
use crate::client::Server;

/// A call of a tool that is no command: its result, and whether it is an error.
fn act(server: &mut Server, tool: &str, arguments: Value) -> (Value, bool) {
    let id = server.call_later(tool, arguments);
    heard(server, id)
}

fn heard(server: &mut Server, id: i64) -> (Value, bool) {
    let answer = server.answer(id);
    let result = &answer["result"];
    let is_error = result["isError"].as_bool().unwrap_or(false);
    (result["structuredContent"].clone(), is_error)
}

/// Approves the one question that is open; gives what a person sees of it.
#[track_caller]
fn approve(bench: &Bench) -> (String, Value) {
    let (question, details) = bench.question();
    let output = bench
        .command()
        .args(["approve", &question])
        .env("USER", "ana")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    (question, details)
}

/// The same call with a yes.
#[track_caller]
fn approved(bench: &Bench, server: &mut Server, tool: &str, arguments: Value) -> (Value, bool) {
    let id = server.call_later(tool, arguments);
    approve(bench);
    heard(server, id)
}

/// The ends of acts in the record, oldest first: event, system, code, and whether it was a repair.
fn ends(bench: &Bench) -> Vec<String> {
    let query = "SELECT event_type || ' ' || payload FROM flow_events
         WHERE event_type IN ('mcp.tool.applied', 'mcp.tool.failed') ORDER BY seq";
    let rows = bench.column(query).into_iter();
    rows.map(|row| {
        let (kind, payload) = row.split_once(' ').unwrap();
        let payload: Value = serde_json::from_str(payload).unwrap();
        let said = |name: &str| payload[name].as_str().unwrap_or_default().to_owned();
        let repair = if payload["repair"] == true { " repair" } else { "" };
        let words = format!(
            "{} {} {}{repair}",
            kind.trim_start_matches("mcp.tool."),
            said("system"),
            said("code")
        );
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    })
    .collect()
}
