//! Questions to the record: events and commands by what a person remembers of them.

use countersign_gateway::audit::chain::Hash;
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::clock::Timestamp;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, params_from_iter};
use serde_json::Value;

use super::SqliteStore;
use super::spans::{self, Places};
use crate::Trouble;
use countersign_gateway::audit::row::Row;

pub(super) const COLUMNS: &str = "chain, seq, event_id, timestamp, correlation_id, actor_type, \
     actor_id, event_type, approval_state, payload, prev_hash, hash";

#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("the record cannot be read: {source}")]
    Read { source: Trouble },
    #[error("the payload of row {seq} is not JSON; `audit verify` tells more")]
    Payload { seq: u64, source: serde_json::Error },
}

impl SqliteStore {
    /// Events, oldest first.
    pub fn query_events(&self, filter: &Filter) -> Result<Vec<Row>, QueryError> {
        self.readers
            .read(|connection| select(connection, filter, Subject::Events))
            .map_err(|source| QueryError::Read { source: source.into() })
    }

    /// Audit records of commands, oldest first: the payloads of their closing events.
    /// One that cannot be read says so in its place.
    pub fn query_commands(&self, filter: &Filter) -> Result<Vec<Result<Value, QueryError>>, QueryError> {
        Ok(self
            .readers
            .read(|connection| select(connection, filter, Subject::Commands))
            .map_err(|source| QueryError::Read { source: source.into() })?
            .into_iter()
            .map(|row| {
                row.payload()
                    .map_err(|source| QueryError::Payload { seq: row.seq, source })
            })
            .collect())
    }

    /// What was written behind a place, in order; at most the usual limit.
    pub fn tail(&self, after: u64) -> Result<Vec<Row>, QueryError> {
        self.query_events(&Filter {
            after: Some(after),
            ..Filter::everything()
        })
    }
}

#[derive(Clone, Copy)]
pub(super) enum Subject {
    Events,
    Commands,
}

pub(super) fn select(connection: &Connection, filter: &Filter, subject: Subject) -> rusqlite::Result<Vec<Row>> {
    // One moment for both questions, or rows could be spanned between them.
    let transaction = connection.unchecked_transaction()?;
    let places = spans::places(&transaction, filter.from, filter.to)?;
    let (sql, values) = question(filter, subject, places);
    let mut statement = transaction.prepare(&sql)?;
    let rows = within(filter, statement.query_map(params_from_iter(values), read_row)?)?;
    drop(statement);
    transaction.finish()?;
    Ok(rows)
}

fn question(filter: &Filter, subject: Subject, places: Places) -> (String, Vec<SqlValue>) {
    let (conditions, values) = conditions(filter, subject, places);
    let direction = match filter.pick {
        Pick::Oldest => "ASC",
        Pick::Newest => "DESC",
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM flow_events WHERE {} ORDER BY seq {direction} LIMIT {}",
        conditions.join(" AND "),
        filter.limit,
    );
    (sql, values)
}

/// The rows of an answer, oldest first, cut off where it would grow too large.
pub(super) fn within(
    filter: &Filter,
    found: impl Iterator<Item = rusqlite::Result<Row>>,
) -> rusqlite::Result<Vec<Row>> {
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

fn conditions(filter: &Filter, subject: Subject, places: Places) -> (Vec<&'static str>, Vec<SqlValue>) {
    let mut conditions = Vec::new();
    let mut values = Vec::new();
    let mut add = |condition, given: Option<SqlValue>| {
        if let Some(value) = given {
            conditions.push(condition);
            values.push(value);
        }
    };
    let text = |given: &Option<String>| given.clone().map(SqlValue::from);
    let moment = |given: Option<Timestamp>| given.map(|it| SqlValue::from(it.to_string()));
    let after = filter.after.unwrap_or(0).cast_signed().max(places.behind);
    add("seq > ?", Some(SqlValue::from(after)));
    add("seq <= ?", Some(SqlValue::from(places.up_to)));
    add("seq < ?", filter.before.map(|seq| SqlValue::from(seq.cast_signed())));
    add("correlation_id = ?", text(&filter.correlation_id));
    add("timestamp >= ?", moment(filter.from));
    add("timestamp < ?", moment(filter.to));
    let event_type = filter.event_type.map(|it| SqlValue::from(it.as_str().to_owned()));
    add("event_type = ?", event_type);
    match subject {
        Subject::Commands => {
            add(
                "correlation_id IN (SELECT correlation_id FROM commands WHERE request_id = ?)",
                text(&filter.request_id),
            );
            add("payload ->> '$.request_id' = ?", text(&filter.request_id));
            add("payload ->> '$.status' = ?", text(&filter.status));
            conditions.push("event_type = 'command.completed'");
        }
        Subject::Events => {
            // Not every event of a call repeats its request id; they share its correlation.
            add(
                "correlation_id IN (
                     SELECT correlation_id FROM commands WHERE request_id = ?
                     UNION SELECT correlation_id FROM open_commands WHERE request_id = ?)",
                text(&filter.request_id),
            );
            if let Some(request_id) = &filter.request_id {
                values.push(request_id.clone().into());
                // What else happened in the job or the run of that call is not of the call.
                conditions.push(
                    "coalesce(payload ->> '$.request_id', iif(payload ->> '$.job_id' IS NULL
                         AND payload ->> '$.run_id' IS NULL AND event_type NOT LIKE 'mcp.tool.%', ?, '')) = ?",
                );
                values.extend([request_id.clone().into(), request_id.clone().into()]);
            }
            if let Some(status) = &filter.status {
                conditions.push("? IN (payload ->> '$.status', approval_state)");
                values.push(status.clone().into());
            }
        }
    }
    if filter.event_type.is_some_and(|it| !it.is_of_every_command()) {
        // In the words of the index over rare events, so that it applies.
        conditions.push(
            "event_type <> 'command.received' AND event_type <> 'command.validated'
                 AND event_type <> 'command.dispatched' AND event_type <> 'command.completed'",
        );
    }
    (conditions, values)
}

pub(super) fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let seq = row.get::<_, i64>(1)?.cast_unsigned();
    Ok(Row {
        place: seq,
        chain: row.get(0)?,
        seq,
        event_id: row.get(2)?,
        timestamp: row.get(3)?,
        correlation_id: row.get(4)?,
        actor_type: row.get(5)?,
        actor_id: row.get(6)?,
        event_type: row.get(7)?,
        approval_state: row.get(8)?,
        payload: row.get(9)?,
        prev_hash: Hash::from_bytes(row.get(10)?),
        hash: Hash::from_bytes(row.get(11)?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::migrations;
    use super::*;

    #[test]
    fn a_request_id_is_found_without_going_through_the_record() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrations::apply(&mut connection).unwrap();
        let filter = Filter {
            request_id: Some("r".to_owned()),
            ..Filter::everything()
        };
        for subject in [Subject::Events, Subject::Commands] {
            let (sql, values) = question(&filter, subject, spans::places(&connection, None, None).unwrap());
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = plan.query_map(params_from_iter(values), |row| row.get::<_, String>(3));
            let steps = steps.unwrap().collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
            for index in ["commands_by_request_id", "flow_events_by_correlation_id"] {
                assert!(steps.contains(index), "{steps}");
            }
            assert!(
                !steps.contains("SCAN flow_events") && !steps.contains("INTEGER PRIMARY KEY"),
                "{steps}"
            );
        }
    }
}
