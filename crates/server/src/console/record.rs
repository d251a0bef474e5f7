//! The record: searched, paged, and proved.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::reading::{Entity, Filter, Pick, Placed, Proved};
use countersign_gateway::audit::row::Row;
use countersign_gateway::clock::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Console;
use super::access::Reader;
use super::event::{self, Told, path_part};
use super::found::Found;
use super::page::{self, Failure, Frame, Place};
use super::text::{self, Html};
use super::time::{Moment, spoken_millis};

const PAGE: usize = 50;
/// Rows that are looked through for a text at once, and what they may hold together.
const SEARCHED: usize = 5_000;
const SEARCHED_BYTES: usize = 32 << 20;
const CELL_CHARS: usize = 200;
/// The states that a command or an approval can be found by.
const STATUSES: [&str; 11] = [
    "ok",
    "rejected",
    "failed",
    "timeout",
    "pending",
    "approved",
    "denied",
    "expired",
    "withdrawn",
    "applied",
    "error",
];

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Search {
    kind: String,
    status: String,
    #[serde(rename = "type")]
    event_type: String,
    correlation: String,
    request: String,
    text: String,
    from: String,
    to: String,
    /// Only what is older than this row.
    before: Option<u64>,
}

#[derive(Template)]
#[template(path = "record.html")]
struct Record {
    frame: Frame,
    search: Search,
    statuses: &'static [&'static str],
    types: Vec<&'static str>,
    problem: Option<String>,
    events: Vec<Told>,
    commands: Vec<Command>,
    is_of_commands: bool,
    older: Option<String>,
    head: Option<Head>,
    proof: Option<Proof>,
    searched: Option<usize>,
}

/// Where the chain ends.
struct Head {
    seq: u64,
    hash: String,
    at: Moment,
}

enum Proof {
    Sound {
        rows: u64,
        first_seq: u64,
        last_seq: u64,
        checkpoints: u64,
        last_hash: String,
        public_key: String,
    },
    Flawed {
        seq: Option<u64>,
        fault: Html,
    },
}

/// S0's CommandAuditRecord in a line.
struct Command {
    at: Moment,
    tone: &'static str,
    status: Html,
    command: Html,
    how: Html,
    took: String,
    directory: Html,
    story: String,
}

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Query(search): Query<Search>,
) -> Result<Response, Failure> {
    shown(&console, &reader, search, None).await
}

/// Walks the chain, and says what it found.
pub(super) async fn verify(State(console): State<Arc<Console>>, reader: Reader) -> Result<Response, Failure> {
    // One walk at a time: it reads everything.
    let _turn = console.walking.lock().await;
    let proof = match console.office.records.prove().await? {
        Proved::Sound {
            first_seq,
            last_seq,
            rows,
            checkpoints,
            last_hash,
            public_key,
        } => Proof::Sound {
            rows,
            first_seq,
            last_seq,
            checkpoints,
            last_hash,
            public_key,
        },
        Proved::Flawed { seq, fault } => Proof::Flawed {
            seq,
            fault: text::shown(&fault, CELL_CHARS),
        },
    };
    shown(&console, &reader, Search::default(), Some(proof)).await
}

async fn shown(console: &Console, reader: &Reader, search: Search, proof: Option<Proof>) -> Result<Response, Failure> {
    let now = console.clock.now();
    let (filter, problem) = match search.filter() {
        Ok(filter) => (filter, None),
        Err(problem) => (Filter::everything(), Some(problem)),
    };
    let is_of_commands = search.kind == "command";
    let mut page = Record {
        frame: Frame::of(console, reader, Some(Place::Record)).await?,
        statuses: &STATUSES,
        types: EventType::ALL.iter().map(|kind| kind.as_str()).collect(),
        problem,
        events: Vec::new(),
        commands: Vec::new(),
        is_of_commands,
        older: None,
        head: head(console).await?,
        proof,
        searched: (!search.text.is_empty()).then_some(SEARCHED),
        search,
    };
    if page.problem.is_none() {
        let last = match is_of_commands {
            true => page.find_commands(console, filter, now).await?,
            false => page.find_events(console, filter, now).await?,
        };
        page.older = last.map(|seq| page.search.older(seq));
    }
    Ok(page::html(StatusCode::OK, &page))
}

impl Record {
    /// Fills in events; where the next page begins, if there is one.
    async fn find_events(&mut self, console: &Console, filter: Filter, now: Timestamp) -> Result<Option<u64>, Failure> {
        let wanted = self.search.text.to_lowercase();
        let records = &console.office.records;
        let look = |filter| records.events(filter);
        let is_meant = |row: &Row| wanted.is_empty() || row.payload.to_lowercase().contains(&wanted);
        let found = Found::among(filter, PAGE, look, |row| row.place, is_meant).await?;
        self.searched = self.searched.map(|_| found.looked_at);
        self.events = found.rows.iter().map(|row| Told::of(row, now)).collect();
        Ok(found.older)
    }

    async fn find_commands(
        &mut self,
        console: &Console,
        filter: Filter,
        now: Timestamp,
    ) -> Result<Option<u64>, Failure> {
        let wanted = self.search.text.to_lowercase();
        let records = &console.office.records;
        let look = |filter| records.entities(Entity::Command, filter);
        let is_meant = |it: &Placed| wanted.is_empty() || event::command(&it.content).to_lowercase().contains(&wanted);
        let found = Found::among(filter, PAGE, look, |placed| placed.place, is_meant).await?;
        self.searched = self.searched.map(|_| found.looked_at);
        // A record names its request; the story is found by its correlation.
        for placed in &found.rows {
            let story = self.story_of(console, placed.place).await?;
            self.commands.push(Command::of(&placed.content, story, now));
        }
        Ok(found.older)
    }

    async fn story_of(&self, console: &Console, seq: u64) -> Result<String, Failure> {
        let filter = Filter {
            after: Some(seq.saturating_sub(1)),
            limit: 1,
            ..Filter::everything()
        };
        let found = console.office.records.events(filter).await?;
        let correlation = found.first().map_or("-", |row| path_part(&row.correlation_id));
        Ok(format!("/calls/{correlation}"))
    }
}

impl Command {
    fn of(content: &Value, story: String, now: Timestamp) -> Self {
        let of = |name: &str| content[name].as_str().unwrap_or_default();
        let how = match (&content["error_code"], &content["exit_code"]) {
            (Value::String(code), _) => code.clone(),
            (_, Value::Number(code)) => format!("exit {code}"),
            _ => String::new(),
        };
        let cell = |text: &str| text::shown(text, CELL_CHARS);
        Self {
            at: Moment::parse(of("timestamp"), now),
            tone: event::tone_of(of("status")),
            status: cell(of("status")),
            command: cell(&event::command(content)),
            how: cell(&how),
            took: spoken_millis(content["duration_ms"].as_u64().unwrap_or(0)),
            directory: cell(of("working_directory")),
            story,
        }
    }
}

async fn head(console: &Console) -> Result<Option<Head>, Failure> {
    let filter = Filter {
        limit: 1,
        pick: Pick::Newest,
        ..Filter::everything()
    };
    let now = console.clock.now();
    let found = console.office.records.events(filter).await?;
    Ok(found.last().map(|row| Head {
        seq: row.seq,
        hash: row.hash.to_hex(),
        at: Moment::parse(&row.timestamp, now),
    }))
}

impl Search {
    fn filter(&self) -> Result<Filter, String> {
        let given = |text: &str| Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned);
        let event_type = match self.event_type.trim() {
            "" => None,
            name => Some(EventType::parse(name).ok_or_else(|| format!("there is no event type `{name}`"))?),
        };
        Ok(Filter {
            event_type,
            status: given(&self.status),
            request_id: given(&self.request),
            correlation_id: given(&self.correlation),
            from: moment(&self.from)?,
            to: moment(&self.to)?,
            before: self.before,
            limit: if self.text.is_empty() { PAGE + 1 } else { SEARCHED },
            // Rows may hold commands as long as agents like.
            bytes_max: Some(SEARCHED_BYTES),
            pick: Pick::Newest,
            ..Filter::everything()
        })
    }

    /// The address of what is older, with the same search.
    fn older(&self, before: u64) -> String {
        let mut address = format!("/record?before={before}");
        let fields = [
            ("kind", &self.kind),
            ("status", &self.status),
            ("type", &self.event_type),
            ("correlation", &self.correlation),
            ("request", &self.request),
            ("text", &self.text),
            ("from", &self.from),
            ("to", &self.to),
        ];
        for (name, value) in fields {
            if !value.is_empty() {
                address.push_str(&format!("&{name}={}", page::encoded(value)));
            }
        }
        address
    }
}

/// What a browser's field for a moment says, taken as UTC, or RFC 3339.
fn moment(text: &str) -> Result<Option<Timestamp>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let seconds = if text.len() == "2026-11-15T10:00".len() {
        ":00"
    } else {
        ""
    };
    let zone = if text.contains('T') && !text.ends_with('Z') {
        "Z"
    } else {
        ""
    };
    Timestamp::parse(&format!("{text}{seconds}{zone}"))
        .or_else(|_| Timestamp::parse(text))
        .map(Some)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_what_a_browser_sends_or_rfc_3339() {
        let at = Timestamp::parse("2026-11-15T10:00:00Z").unwrap();
        for text in [
            "2026-11-15T10:00",
            "2026-11-15T10:00:00",
            "2026-11-15T10:00:00Z",
            "2026-11-15T11:00:00+01:00",
            " 2026-11-15T10:00 ",
        ] {
            assert_eq!(moment(text), Ok(Some(at)), "{text}");
        }
        assert_eq!(moment(""), Ok(None));
        assert!(moment("yesterday").is_err());
    }

    #[test]
    fn what_is_older_is_searched_for_in_the_same_way() {
        let search = Search {
            status: "ok".to_owned(),
            text: "a&b=c".to_owned(),
            ..Search::default()
        };
        assert_eq!(search.older(7), "/record?before=7&status=ok&text=a%26b%3Dc");
    }
}
