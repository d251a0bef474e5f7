//! What clients asked and what they were answered: S2's invocations and envelopes, read out of the
//! events. What each of them says is decided in the gateway; here is how its events are found.

use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::invocation::{Entry, Sources};
use countersign_gateway::audit::{StoredCommand, envelope, invocation};
use serde_json::Value;

use super::PgStore;
use super::link::Link;
use super::query::{COLUMNS, Question, read_row};
use super::readers::{self, Readers};
use super::trouble::Trouble;
use crate::reading::{command_of, spellings};
use crate::sqlite::exchanges::{Found, entry};
use crate::sqlite::query::QueryError;
use countersign_gateway::audit::reading::Filter;

impl PgStore {
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

impl Readers {
    pub(super) fn find_invocations(&self, filter: &Filter) -> Result<Vec<Found>, QueryError> {
        self.ask(&invocation::SETTLING, filter, |question| {
            // A person at the terminal speaks no MCP; an early answer counts before the command's end.
            question.also(
                "(event_type <> 'command.completed' OR NOT EXISTS (
                     SELECT 1 FROM flow_events AS other WHERE other.correlation_id = flow_events.correlation_id
                         AND coalesce(payload_text(other.payload, 'request_id'), '')
                             = coalesce(payload_text(flow_events.payload, 'request_id'), '')
                         AND (other.event_type = 'tool.answered' OR other.event_type = 'command.received'
                             AND payload_text(other.payload, 'transport') = 'terminal')))",
                [],
            );
            if let Some(status) = &filter.status {
                question.also(
                    "CASE WHEN payload_text(payload, 'status') = 'ok' THEN 'ok' ELSE 'error' END = ?",
                    [status.clone()],
                );
            }
            if let Some(id) = &filter.request_id {
                let [plain, quoted] = spellings(id);
                question.also(
                    "(payload_text(payload, 'request_id') = ? OR payload_text(payload, 'rpc_id') IN (?, ?) OR EXISTS (
                         SELECT 1 FROM flow_events AS other WHERE other.correlation_id = flow_events.correlation_id
                             AND other.event_type = 'command.received'
                             AND payload_text(other.payload, 'rpc_id') IN (?, ?)
                             AND payload_text(other.payload, 'request_id')
                                 = payload_text(flow_events.payload, 'request_id')))",
                    [plain.clone(), plain.clone(), quoted.clone(), plain, quoted],
                );
            }
        })
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
        self.ask(&envelope::TELLING, filter, |question| {
            // A row that is damaged is found, so that it can be told, and does not end the question.
            question.also("coalesce(payload_text(payload, 'transport'), '') <> 'terminal'", []);
            if let Some(status) = &filter.status {
                question.also(
                    "CASE WHEN event_type IN ('request.refused', 'auth.refused') THEN 'refused' ELSE 'accepted' END = ?",
                    [status.clone()],
                );
            }
            if let Some(id) = &filter.request_id {
                let [plain, quoted] = spellings(id);
                question.also(
                    "(payload_text(payload, 'request_id') = ? OR payload_text(payload, 'rpc_id') IN (?, ?))",
                    [plain.clone(), plain, quoted],
                );
            }
        })
    }

    pub(super) fn read_envelope(&self, found: &Found) -> Result<Option<Value>, QueryError> {
        let Some(entry) = entry(&found.0)? else {
            return Ok(None);
        };
        let session = self.session_of(&entry)?;
        Ok(envelope::derive(&entry, session))
    }

    fn ask(
        &self,
        kinds: &[EventType],
        filter: &Filter,
        narrow: impl FnOnce(&mut Question),
    ) -> Result<Vec<Found>, QueryError> {
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("'{}'", kind.as_str())).collect();
        let found = self.reading(|link| {
            let mut question = Question::within(link, filter)?;
            question.also(&format!("event_type IN ({})", kinds.join(", ")), []);
            narrow(&mut question);
            question.ask(link, filter)
        })?;
        Ok(found.into_iter().map(Found).collect())
    }

    /// The event that opened the command of a call. Commands of one job share its correlation.
    fn opening(&self, settling: &Entry, place: u64) -> Result<Option<Entry>, QueryError> {
        let request_id = settling.payload["request_id"].as_str().unwrap_or_default();
        let sql = format!(
            "SELECT {COLUMNS} FROM flow_events
             WHERE correlation_id = $1 AND event_type = 'command.received' AND place <= $2
                 AND coalesce(payload_text(payload, 'request_id'), '') = $3
             ORDER BY place DESC LIMIT 1"
        );
        let row = self.reading(|link| {
            let key = (&settling.correlation_id, place.cast_signed());
            link.first(&sql, &[key.0, &key.1, &request_id], read_row)
        })?;
        row.as_ref().map_or(Ok(None), entry)
    }

    /// The row of the command that a call became.
    fn result(&self, opening: &Entry, end: &Entry) -> Result<Option<StoredCommand>, QueryError> {
        let Some((owner, request_id)) = command_of(opening, end) else {
            return Ok(None);
        };
        let found = self.reading(|link| readers::command(link, &owner, &request_id))?;
        // What nobody vouches for is left out, as what is kept no longer is.
        Ok(found.and_then(Result::ok))
    }

    /// The id of the session that an event names by its mark, while the session is kept.
    fn session_of(&self, entry: &Entry) -> Result<Option<String>, QueryError> {
        let Some(mark) = entry.payload["session_id"].as_str() else {
            return Ok(None);
        };
        let sql = "SELECT session_id FROM mcp_sessions WHERE mark = $1";
        self.reading(|link| link.first(sql, &[&mark], |row| Ok(row.try_get(0)?)))
    }

    fn reading<T>(&self, work: impl FnOnce(&Link) -> Result<T, Trouble>) -> Result<T, QueryError> {
        self.read(work)
            .map_err(|source| QueryError::Read { source: source.into() })
    }
}
