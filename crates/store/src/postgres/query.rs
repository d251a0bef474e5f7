//! Questions to the record: events and commands by what a person remembers of them.

use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::row::Row;
use countersign_gateway::clock::Timestamp;
use serde_json::Value;

use super::link::Link;
use super::trouble::Trouble;
use super::{PgStore, places};
use crate::reading::{Subject, payloads, within};
use crate::rows::at_most;
use crate::rows::events::event;
use crate::sqlite::query::QueryError;

pub(super) const COLUMNS: &str = "chain, seq, event_id, timestamp, correlation_id, actor_type, \
     actor_id, event_type, approval_state, payload, prev_hash, hash, place";

impl PgStore {
    /// Events, oldest first.
    pub fn query_events(&self, filter: &Filter) -> Result<Vec<Row>, QueryError> {
        self.readers
            .read(|link| select(link, filter, Subject::Events))
            .map_err(|source| QueryError::Read { source: source.into() })
    }

    /// Audit records of commands, oldest first: the payloads of their closing events.
    /// One that cannot be read says so in its place.
    pub fn query_commands(&self, filter: &Filter) -> Result<Vec<Result<Value, QueryError>>, QueryError> {
        self.readers
            .read(|link| select(link, filter, Subject::Commands))
            .map(payloads)
            .map_err(|source| QueryError::Read { source: source.into() })
    }

    /// What was written behind a place, in order; at most the usual limit.
    pub fn tail(&self, after: u64) -> Result<Vec<Row>, QueryError> {
        self.query_events(&Filter {
            after: Some(after),
            ..Filter::everything()
        })
    }
}

pub(super) fn select(link: &Link, filter: &Filter, subject: Subject) -> Result<Vec<Row>, Trouble> {
    let mut question = Question::within(link, filter)?;
    if let Some(kind) = filter.event_type {
        question.also("event_type = ?", [kind.as_str().to_owned()]);
    }
    match subject {
        Subject::Commands => {
            // Literals, so that the index over closing events applies.
            question.also("event_type = 'command.completed'", []);
            if let Some(id) = &filter.request_id {
                question.also("payload_text(payload, 'request_id') = ?", [id.clone()]);
            }
            if let Some(status) = &filter.status {
                question.also("payload_text(payload, 'status') = ?", [status.clone()]);
            }
        }
        Subject::Events => {
            // Not every event of a call repeats its request id; they share its correlation. An array is found first,
            // by its index; a join might begin with the whole record instead.
            if let Some(id) = &filter.request_id {
                question.also(
                    "correlation_id = ANY (ARRAY(
                         SELECT correlation_id FROM flow_events
                         WHERE event_type = 'command.completed' AND payload_text(payload, 'request_id') = ?
                         UNION SELECT correlation_id FROM open_commands WHERE request_id = ?))",
                    [id.clone(), id.clone()],
                );
                // What else happened in the job or the run of that call is not of the call.
                question.also(
                    "coalesce(payload_text(payload, 'request_id'), CASE WHEN payload_text(payload, 'job_id') IS NULL
                         AND payload_text(payload, 'run_id') IS NULL AND event_type NOT LIKE 'mcp.tool.%'
                         THEN ? ELSE '' END) = ?",
                    [id.clone(), id.clone()],
                );
            }
            if let Some(status) = &filter.status {
                question.also(
                    "? IN (payload_text(payload, 'status'), approval_state)",
                    [status.clone()],
                );
            }
        }
    }
    if filter.event_type.is_some_and(|it| !it.is_of_every_command()) {
        // In the words of the index over rare events, so that it applies.
        question.also(
            "event_type <> 'command.received' AND event_type <> 'command.validated'
                 AND event_type <> 'command.dispatched' AND event_type <> 'command.completed'",
            [],
        );
    }
    question.ask(link, filter)
}

/// Conditions on events that must all hold, with the texts they name.
pub(super) struct Question {
    conditions: Vec<String>,
    values: Vec<String>,
}

impl Question {
    /// Begins with what every question may name: places, times and a correlation.
    pub(super) fn within(link: &Link, filter: &Filter) -> Result<Self, Trouble> {
        let mut question = Self {
            conditions: vec![format!("place > {}", filter.after.unwrap_or(0).cast_signed())],
            values: Vec::new(),
        };
        // Whoever goes on behind a place must not pass a row that is still being committed.
        if filter.after.is_some() {
            let settled = places::settled(link)?;
            question.conditions.push(format!("place <= {settled}"));
        }
        if let Some(before) = filter.before {
            question.conditions.push(format!("place < {}", before.cast_signed()));
        }
        if let Some(id) = &filter.correlation_id {
            question.also("correlation_id = ?", [id.clone()]);
        }
        let moment = |given: Option<Timestamp>| given.map(|it| it.to_string());
        if let Some(from) = moment(filter.from) {
            question.also("timestamp >= ?", [from]);
        }
        if let Some(to) = moment(filter.to) {
            question.also("timestamp < ?", [to]);
        }
        Ok(question)
    }

    /// One more condition; each `?` is one of the values.
    pub(super) fn also<const N: usize>(&mut self, condition: &str, values: [String; N]) {
        let mut text = String::with_capacity(condition.len() + 8 * N);
        let mut number = self.values.len();
        for piece in condition.split_inclusive('?') {
            match piece.strip_suffix('?') {
                Some(before) => {
                    number += 1;
                    text.push_str(&format!("{before}${number}::text"));
                }
                None => text.push_str(piece),
            }
        }
        self.conditions.push(text);
        self.values.extend(values);
    }

    pub(super) fn ask(&self, link: &Link, filter: &Filter) -> Result<Vec<Row>, Trouble> {
        let direction = match filter.pick {
            Pick::Oldest => "ASC",
            Pick::Newest => "DESC",
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM flow_events WHERE {} ORDER BY place {direction} LIMIT {}",
            self.conditions.join(" AND "),
            at_most(filter.limit),
        );
        let found = link.query_once(&sql, &self.values)?;
        within(filter, found.iter().map(read_row))
    }
}

pub(super) fn read_row(row: &tokio_postgres::Row) -> Result<Row, Trouble> {
    event(row, 12)
}
