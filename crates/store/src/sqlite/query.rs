//! Questions to the record: events and commands by what a person remembers of them.

use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::clock::Timestamp;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, params_from_iter};
use serde_json::Value;

use super::SqliteStore;
use super::spans::{self, Places};
use crate::Trouble;
use crate::reading::{Subject, payloads, within};
use crate::rows::events::event;
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
        self.readers
            .read(|connection| select(connection, filter, Subject::Commands))
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
            add("payload ->> '$.request_id' = ?", text(&filter.request_id));
            add("payload ->> '$.status' = ?", text(&filter.status));
            conditions.push("event_type = 'command.completed'");
        }
        Subject::Events => {
            // Not every event of a call repeats its request id; they share its correlation.
            add(
                "correlation_id IN (
                     SELECT correlation_id FROM flow_events
                     WHERE event_type = 'command.completed' AND payload ->> '$.request_id' = ?
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
    // There is one chain, so that its numbers are the places.
    event(row, 1)
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
        let closings = &["flow_events_by_request_id"][..];
        let call = &["flow_events_by_request_id", "flow_events_by_correlation_id"][..];
        for (subject, indexes) in [(Subject::Commands, closings), (Subject::Events, call)] {
            let (sql, values) = question(&filter, subject, spans::places(&connection, None, None).unwrap());
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = plan.query_map(params_from_iter(values), |row| row.get::<_, String>(3));
            let steps = steps.unwrap().collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ");
            for index in indexes {
                assert!(steps.contains(index), "{steps}");
            }
            assert!(
                !steps.contains("SCAN flow_events") && !steps.contains("INTEGER PRIMARY KEY"),
                "{steps}"
            );
        }
    }
}
