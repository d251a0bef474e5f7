//! Answers about the record, put together the same way from whichever database the rows come.

use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::invocation::Entry;
use countersign_gateway::audit::reading::{Filter, Pick, Placed};
use countersign_gateway::audit::row::Row;
use countersign_gateway::audit::summary::{MetricsSummary, Period, Tally};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, RequestId};
use serde_json::Value;

use crate::sqlite::dump::ExportError;
use crate::sqlite::exchanges::Found;
use crate::sqlite::query::QueryError;

/// Rows that are counted at once: on SQLite a longer reading would keep the log from shrinking.
pub(crate) const RANGE_ROWS: i64 = 16_384;
/// Bytes of an export that are handed on at once.
pub(crate) const EXPORT_BYTES: usize = 64 << 10;

/// What a question is about.
#[derive(Clone, Copy)]
pub(crate) enum Subject {
    Events,
    Commands,
}

/// The rows of an answer, oldest first, cut off where it would grow too large.
pub(crate) fn within<E>(filter: &Filter, found: impl Iterator<Item = Result<Row, E>>) -> Result<Vec<Row>, E> {
    let mut rows = Vec::new();
    let mut room = filter.bytes_max.unwrap_or(usize::MAX);
    for row in found {
        let row = row?;
        let size = row.payload.len();
        if size > room && !rows.is_empty() {
            break;
        }
        room = room.saturating_sub(size);
        rows.push(row);
    }
    if filter.pick == Pick::Newest {
        rows.reverse();
    }
    Ok(rows)
}

/// Audit records of commands. One that cannot be read says so in its place.
pub(crate) fn payloads(rows: Vec<Row>) -> Vec<Result<Value, QueryError>> {
    let payload = |row: Row| {
        row.payload()
            .map_err(|source| QueryError::Payload { seq: row.seq, source })
    };
    rows.into_iter().map(payload).collect()
}

/// The same of those that can be read, each at its place.
pub(crate) fn placed(rows: &[Row]) -> Vec<Placed> {
    let placed = |row: &Row| {
        let (place, content) = (row.place, row.payload().ok()?);
        Some(Placed { place, content })
    };
    rows.iter().filter_map(placed).collect()
}

/// Reads what was found, one at a time, until the answer is as large as it may be.
pub(crate) fn read_all(
    filter: &Filter,
    found: &[Found],
    read: impl Fn(&Found) -> Result<Option<Value>, QueryError>,
) -> Result<Vec<Placed>, RecordError> {
    let mut placed: Vec<Placed> = Vec::new();
    let mut room = filter.bytes_max.unwrap_or(usize::MAX);
    // What is cut off is what was asked for last.
    let in_order: Box<dyn Iterator<Item = &Found>> = match filter.pick {
        Pick::Oldest => Box::new(found.iter()),
        Pick::Newest => Box::new(found.iter().rev()),
    };
    for found in in_order {
        let content = match read(found) {
            Ok(Some(content)) => content,
            Ok(None) | Err(QueryError::Payload { .. }) => continue,
            Err(error @ QueryError::Read { .. }) => return Err(unread(error)),
        };
        // Counting what nobody bounds would be work for nothing.
        let size = filter.bytes_max.map_or(0, |_| content.to_string().len());
        if size > room && !placed.is_empty() {
            break;
        }
        room = room.saturating_sub(size);
        let place = found.place();
        placed.push(Placed { place, content });
    }
    if filter.pick == Pick::Newest {
        placed.reverse();
    }
    Ok(placed)
}

pub(crate) fn unread(error: QueryError) -> RecordError {
    match error {
        QueryError::Read { source } => RecordError::Unavailable(source.to_string()),
        QueryError::Payload { .. } => RecordError::Unavailable(error.to_string()),
    }
}

pub(crate) fn unexported(error: ExportError) -> RecordError {
    match error {
        ExportError::Read { source } => RecordError::Unavailable(source.to_string()),
        ExportError::Write { .. } | ExportError::Payload { .. } | ExportError::Unsealed => {
            RecordError::Unavailable(error.to_string())
        }
    }
}

/// A client's id as text and as JSON: `7` may have been a number or a text.
pub(crate) fn spellings(id: &str) -> [String; 2] {
    [id.to_owned(), Value::from(id).to_string()]
}

/// The command that a call became, by the events that opened and ended it.
pub(crate) fn command_of(opening: &Entry, end: &Entry) -> Option<(CredentialId, RequestId)> {
    let text = |entry: &Entry, name: &str| entry.payload[name].as_str().map(str::to_owned);
    let (owner, request_id) = (text(opening, "credential")?, text(end, "request_id")?);
    Some((CredentialId::trusted(owner), RequestId::trusted(request_id)))
}

/// The ends of a period. Moments are text of one width; anything sorts behind nothing and before a tilde.
pub(crate) fn moments(period: Period) -> (String, String) {
    let from = period.from().map_or_else(String::new, |at| at.to_string());
    let before = period.to().map_or_else(|| "~".to_owned(), |at| at.to_string());
    (from, before)
}

/// What was counted in a period of a record that began then.
pub(crate) fn summary(tally: Tally, period: Period, began: Option<String>, now: Timestamp) -> MetricsSummary {
    let end = period.to().unwrap_or(now);
    let began = began.and_then(|text| Timestamp::parse(&text).ok());
    let start = period.from().unwrap_or_else(|| began.unwrap_or(end).min(end));
    tally.finish(start, end)
}
