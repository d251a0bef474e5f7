//! The story of one call: every event that shares its correlation, from the question to the end.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::audit::reading::{Entity, Filter};
use countersign_gateway::audit::row::Row;
use countersign_gateway::clock::Timestamp;
use serde_json::Value;

use super::Console;
use super::access::Reader;
use super::event::{self, Told};
use super::page::{self, Failure, Frame};
use super::text::{self, Html};
use super::time::spoken_millis;
use crate::limits::TEXT_CHARS_SHOWN;

const EVENTS_MAX: usize = 500;

#[derive(Template)]
#[template(path = "story.html")]
struct Story {
    frame: Frame,
    correlation: Html,
    title: Html,
    tone: &'static str,
    state: String,
    facts: Vec<Fact>,
    words: Option<Html>,
    approval: Option<String>,
    outputs: Vec<Output>,
    steps: Vec<Step>,
    is_cut: bool,
}

/// A fact of the call; names that nobody reads aloud are set like code.
struct Fact {
    name: &'static str,
    is_code: bool,
    value: Html,
}

struct Step {
    told: Told,
    /// Since the first event.
    since: String,
    event_id: Html,
    hash: String,
    prev_hash: String,
    payload: Html,
}

struct Output {
    name: &'static str,
    text: Html,
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Path(correlation): Path<String>,
) -> Result<Response, Failure> {
    let filter = |limit| Filter {
        correlation_id: Some(correlation.clone()),
        limit,
        ..Filter::everything()
    };
    let mut rows = console.office.records.events(filter(EVENTS_MAX + 1)).await?;
    let is_cut = rows.len() > EVENTS_MAX;
    rows.truncate(EVENTS_MAX);
    if rows.is_empty() {
        let message = format!("the record knows no call `{correlation}`");
        return Err(Failure::new(StatusCode::NOT_FOUND, message));
    }
    let called = console.office.records.entities(Entity::Invocation, filter(1)).await?;
    let now = console.clock.now();
    let (tone, state) = state(&rows);
    let facts = facts(&rows);
    let story = Story {
        frame: Frame::of(&console, &reader, None).await?,
        correlation: text::shown(&correlation, TEXT_CHARS_SHOWN),
        title: title(&rows),
        tone,
        state,
        words: first(&rows, "justification").map(|words| shown(&words)),
        approval: first(&rows, "approval_id").filter(|id| event::path_part(id) == id),
        outputs: called.first().map(|call| outputs(&call.content)).unwrap_or_default(),
        steps: steps(&rows, now),
        facts,
        is_cut,
    };
    Ok(page::html(StatusCode::OK, &story))
}

fn shown(text: &str) -> Html {
    text::shown(text, TEXT_CHARS_SHOWN)
}

/// What the call was about: its command, else the tool, else the first event.
fn title(rows: &[Row]) -> Html {
    for row in rows {
        let payload = row.payload().unwrap_or_default();
        if payload["command"].as_str().is_some_and(|command| !command.is_empty()) {
            return shown(&event::command(&payload));
        }
        if let Some(tool) = payload["tool"].as_str() {
            return shown(tool);
        }
    }
    rows.first().map(|row| shown(&row.event_type)).unwrap_or_default()
}

/// Where it stands now: how it ended, or what it last did.
fn state(rows: &[Row]) -> (&'static str, String) {
    let ended = rows.iter().rev().find(|row| row.event_type == "command.completed");
    let Some(last) = ended.or(rows.last()) else {
        return ("quiet", String::new());
    };
    let told = Told::of(last, Timestamp::from_millis(0));
    (told.tone, told.what)
}

/// The first event that says something of this name.
fn first(rows: &[Row], name: &str) -> Option<String> {
    rows.iter().find_map(|row| {
        let payload = row.payload().ok()?;
        let value = [&payload[name], &payload["details"][name]];
        value.into_iter().find_map(Value::as_str).map(str::to_owned)
    })
}

fn facts(rows: &[Row]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name: &'static str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.push(Fact {
                name,
                is_code: matches!(name, "Session" | "Where" | "Policy" | "Request"),
                value: shown(&value),
            });
        }
    };
    add(
        "Asked by",
        rows.first().map(|row| format!("{} ({})", row.actor_id, row.actor_type)),
    );
    add("Over", first(rows, "transport"));
    add("Session", first(rows, "session_id"));
    add("Where", first(rows, "working_directory").or_else(|| first(rows, "cwd")));
    let verdict = of_kind(rows, "command.validated");
    if let Some(verdict) = &verdict {
        let said = |name: &str| verdict[name].as_str().unwrap_or_default().to_owned();
        add("Verdict", Some(said("verdict")));
        add("Rule", Some(format!("{} from {}", said("rule"), said("source"))));
        add("Policy", Some(said("policy_digest")));
    }
    if let Some(ran) = of_kind(rows, "command.dispatched") {
        let said = |name: &str| ran[name].as_str().unwrap_or_default();
        add(
            "Ran with",
            Some(format!("sandbox {}, network {}", said("sandbox"), said("network"))),
        );
    }
    if let Some(end) = of_kind(rows, "command.completed") {
        add("Exit code", end["exit_code"].as_i64().map(|code| code.to_string()));
        add("Error", end["error_code"].as_str().map(str::to_owned));
        add("Said", end["error_message"].as_str().map(str::to_owned));
        add("Took", end["duration_ms"].as_u64().map(spoken_millis));
        let layers = end["sandbox"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        add("Confined by", Some(layers.collect::<Vec<_>>().join(", ")));
        add("Request", end["request_id"].as_str().map(str::to_owned));
    }
    facts
}

fn of_kind(rows: &[Row], kind: &str) -> Option<Value> {
    let row = rows.iter().rev().find(|row| row.event_type == kind)?;
    row.payload().ok()
}

/// What is kept of what the command said.
fn outputs(call: &Value) -> Vec<Output> {
    let result = &call["result"];
    let kept = |name: &'static str, label: &'static str| {
        let text = result[name].as_str()?;
        (!text.is_empty()).then(|| Output {
            name: label,
            text: text::lines(text, TEXT_CHARS_SHOWN),
        })
    };
    [kept("stdout", "Output"), kept("stderr", "Errors")]
        .into_iter()
        .flatten()
        .collect()
}

fn steps(rows: &[Row], now: Timestamp) -> Vec<Step> {
    let began = rows.first().and_then(|row| Timestamp::parse(&row.timestamp).ok());
    rows.iter()
        .map(|row| {
            let at = Timestamp::parse(&row.timestamp).ok();
            let since = match (began, at) {
                (Some(began), Some(at)) => at.since(began).as_millis(),
                _ => 0,
            };
            let payload = row.payload().unwrap_or_default();
            let payload = serde_json::to_string_pretty(&payload).unwrap_or_else(|_| row.payload.clone());
            Step {
                told: Told::of(row, now),
                since: format!("+{}", spoken_millis(u64::try_from(since).unwrap_or(u64::MAX))),
                event_id: shown(&row.event_id),
                hash: row.hash.to_hex(),
                prev_hash: row.prev_hash.to_hex(),
                payload: plain(&payload),
            }
        })
        .collect()
}

/// JSON is ours to break into lines; its strings carry no line breaks of their own.
fn plain(json: &str) -> Html {
    text::lines(json, TEXT_CHARS_SHOWN)
}
