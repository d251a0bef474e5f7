//! What clients asked and what they were answered: S2's invocations and envelopes, read out of the
//! events. What each of them says is decided in the gateway; here is how its events are found.

use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::invocation::{Entry, Sources};
use countersign_gateway::audit::{StoredCommand, envelope, invocation};
use countersign_gateway::clock::Timestamp;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use serde_json::Value;

use super::SqliteStore;
use super::query::{COLUMNS, QueryError, read_row};
use super::readers::{self, Readers};
use crate::reading::{command_of, spellings, within};
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::audit::row::Row;

/// An invocation or an envelope that was found and not read yet. Results may be large, so they are
/// read one at a time.
pub struct Found(pub(crate) Row);

/// How an envelope fared.
pub const ACCEPTED: &str = "accepted";
pub const REFUSED: &str = "refused";

impl SqliteStore {
    /// The calls of tools that were answered, by the order of their answers.
    pub fn find_invocations(&self, filter: &Filter) -> Result<Vec<Found>, QueryError> {
        self.readers.find_invocations(filter)
    }

    /// S2's McpToolInvocation.
    pub fn read_invocation(&self, found: &Found) -> Result<Option<Value>, QueryError> {
        self.readers.read_invocation(found)
    }

    /// Messages that were refused, called a tool or began a session, in the order they came.
    pub fn find_envelopes(&self, filter: &Filter) -> Result<Vec<Found>, QueryError> {
        self.readers.find_envelopes(filter)
    }

    /// S2's McpRequestEnvelope.
    pub fn read_envelope(&self, found: &Found) -> Result<Option<Value>, QueryError> {
        self.readers.read_envelope(found)
    }
}

impl Found {
    /// Where its event stands.
    pub(crate) fn place(&self) -> u64 {
        self.0.place
    }
}

impl Readers {
    pub(super) fn find_invocations(&self, filter: &Filter) -> Result<Vec<Found>, QueryError> {
        let mut question = Question::about(&invocation::SETTLING, filter);
        // A person at the terminal speaks no MCP; an early answer counts before the command's end.
        question.also(
            "(event_type <> 'command.completed' OR NOT EXISTS (
                 SELECT 1 FROM flow_events AS other WHERE other.correlation_id = flow_events.correlation_id
                     AND iif(json_valid(other.payload), other.payload ->> '$.request_id', '')
                         = iif(json_valid(flow_events.payload), flow_events.payload ->> '$.request_id', '')
                     AND (other.event_type = 'tool.answered' OR other.event_type = 'command.received'
                             AND iif(json_valid(other.payload), other.payload ->> '$.transport', '') = 'terminal')))",
            [],
        );
        if let Some(status) = &filter.status {
            question.also(
                "iif(payload ->> '$.status' = 'ok', 'ok', 'error') = ?",
                [status.clone().into()],
            );
        }
        if let Some(id) = &filter.request_id {
            let [plain, quoted] = spellings(id).map(SqlValue::from);
            question.also(
                "(payload ->> '$.request_id' = ? OR payload ->> '$.rpc_id' IN (?, ?) OR EXISTS (
                     SELECT 1 FROM flow_events AS other WHERE other.correlation_id = flow_events.correlation_id
                         AND other.event_type = 'command.received' AND other.payload ->> '$.rpc_id' IN (?, ?)
                         AND other.payload ->> '$.request_id' = flow_events.payload ->> '$.request_id'))",
                [plain.clone(), plain.clone(), quoted.clone(), plain, quoted],
            );
        }
        self.ask(&question, filter)
    }

    pub(super) fn read_invocation(&self, found: &Found) -> Result<Option<Value>, QueryError> {
        let Some(settling) = entry(&found.0)? else {
            return Ok(None);
        };
        let opening = match settling.event_type {
            EventType::ToolCalled => None,
            _ => self.opening(&settling, found.place())?,
        };
        let command = match &opening {
            Some(opening) if settling.event_type == EventType::CommandCompleted => self.result(opening, &settling)?,
            _ => None,
        };
        let session = self.session_of(opening.as_ref().unwrap_or(&settling))?;
        let sources = Sources {
            settling,
            opening,
            command,
            session,
        };
        Ok(invocation::derive(sources).map(|invocation| invocation.to_json()))
    }

    pub(super) fn find_envelopes(&self, filter: &Filter) -> Result<Vec<Found>, QueryError> {
        let mut question = Question::about(&envelope::TELLING, filter);
        // A row that is damaged is found, so that it can be told, and does not end the question.
        question.also(
            "coalesce(iif(json_valid(payload), payload ->> '$.transport', ''), '') <> 'terminal'",
            [],
        );
        if let Some(status) = &filter.status {
            question.also(
                "iif(event_type IN ('request.refused', 'auth.refused'), 'refused', 'accepted') = ?",
                [status.clone().into()],
            );
        }
        if let Some(id) = &filter.request_id {
            let [plain, quoted] = spellings(id).map(SqlValue::from);
            question.also(
                "(payload ->> '$.request_id' = ? OR payload ->> '$.rpc_id' IN (?, ?))",
                [plain.clone(), plain, quoted],
            );
        }
        self.ask(&question, filter)
    }

    pub(super) fn read_envelope(&self, found: &Found) -> Result<Option<Value>, QueryError> {
        let Some(entry) = entry(&found.0)? else {
            return Ok(None);
        };
        let session = self.session_of(&entry)?;
        Ok(envelope::derive(&entry, session))
    }

    fn ask(&self, question: &Question, filter: &Filter) -> Result<Vec<Found>, QueryError> {
        let found = self.reading(|connection| question.ask(connection, filter))?;
        Ok(found.into_iter().map(Found).collect())
    }

    /// The event that opened the command of a call. Commands of one job share its correlation.
    fn opening(&self, settling: &Entry, seq: u64) -> Result<Option<Entry>, QueryError> {
        let request_id = settling.payload["request_id"].as_str().unwrap_or_default();
        let row = self.reading(|connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM flow_events
                     WHERE correlation_id = ?1 AND event_type = 'command.received' AND seq <= ?2
                         AND iif(json_valid(payload), payload ->> '$.request_id', '') = ?3
                     ORDER BY seq DESC LIMIT 1"
                ))?
                .query_row((&settling.correlation_id, seq.cast_signed(), request_id), read_row)
                .optional()
        })?;
        row.as_ref().map_or(Ok(None), entry)
    }

    /// The row of the command that a call became.
    fn result(&self, opening: &Entry, end: &Entry) -> Result<Option<StoredCommand>, QueryError> {
        let Some((owner, request_id)) = command_of(opening, end) else {
            return Ok(None);
        };
        let found = self.reading(|connection| readers::command(connection, &owner, &request_id))?;
        // What nobody vouches for is left out, as what is kept no longer is.
        Ok(found.and_then(Result::ok))
    }

    /// The id of the session that an event names by its mark, while the session is kept.
    fn session_of(&self, entry: &Entry) -> Result<Option<String>, QueryError> {
        let Some(mark) = entry.payload["session_id"].as_str() else {
            return Ok(None);
        };
        self.reading(|connection| {
            connection
                .prepare_cached("SELECT session_id FROM mcp_sessions WHERE mark = ?1")?
                .query_row([mark], |row| row.get(0))
                .optional()
        })
    }

    fn reading<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, QueryError> {
        self.read(work)
            .map_err(|source| QueryError::Read { source: source.into() })
    }
}

pub(crate) fn entry(row: &Row) -> Result<Option<Entry>, QueryError> {
    let payload = row
        .payload()
        .map_err(|source| QueryError::Payload { seq: row.seq, source })?;
    let (Some(event_type), Ok(timestamp)) = (EventType::parse(&row.event_type), Timestamp::parse(&row.timestamp))
    else {
        return Ok(None);
    };
    Ok(Some(Entry {
        event_id: row.event_id.clone(),
        timestamp,
        correlation_id: row.correlation_id.clone(),
        event_type,
        payload,
    }))
}

/// A question about events of some kinds.
struct Question {
    conditions: Vec<String>,
    values: Vec<SqlValue>,
}

impl Question {
    fn about(kinds: &[EventType], filter: &Filter) -> Self {
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("'{}'", kind.as_str())).collect();
        let mut question = Self {
            conditions: Vec::new(),
            values: Vec::new(),
        };
        question.also("seq > ?", [filter.after.unwrap_or(0).cast_signed().into()]);
        if let Some(before) = filter.before {
            question.also("seq < ?", [before.cast_signed().into()]);
        }
        question.also(&format!("event_type IN ({})", kinds.join(", ")), []);
        if let Some(id) = &filter.correlation_id {
            question.also("correlation_id = ?", [id.clone().into()]);
        }
        for (condition, moment) in [("timestamp >= ?", filter.from), ("timestamp < ?", filter.to)] {
            if let Some(moment) = moment {
                question.also(condition, [moment.to_string().into()]);
            }
        }
        question
    }

    fn also<const N: usize>(&mut self, condition: &str, values: [SqlValue; N]) {
        self.conditions.push(condition.to_owned());
        self.values.extend(values);
    }

    fn ask(&self, connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Row>> {
        let direction = match filter.pick {
            Pick::Oldest => "ASC",
            Pick::Newest => "DESC",
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM flow_events WHERE {} ORDER BY seq {direction} LIMIT {}",
            self.conditions.join(" AND "),
            filter.limit,
        );
        let mut statement = connection.prepare(&sql)?;
        within(filter, statement.query_map(params_from_iter(&self.values), read_row)?)
    }
}
