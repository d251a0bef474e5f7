//! Proving what leads to rows: a row that is sound and not found is as good as gone.
//!
//! Spans lead to rows by their time and are held against the rows themselves. Indexes must have what their tables have, which
//! SQLite checks. And both must be those that the steps of the database make: an index that says it is one and was made as another,
//! a trigger or a comparison by other letters would lead astray without being damaged.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::migrations;
use super::spans::SPAN_ROWS;
use super::verify::VerifyError;
use crate::prove::{Fault, Flaw};

/// Which moments rows cover, by the last place of their span.
#[derive(Default)]
pub(super) struct Covered(BTreeMap<u64, (String, String)>);

impl Covered {
    pub(super) fn take_in(&mut self, seq: u64, timestamp: &str) {
        let span = self.0.entry(seq.next_multiple_of(SPAN_ROWS));
        let (earliest, latest) = span.or_insert_with(|| (timestamp.to_owned(), timestamp.to_owned()));
        if timestamp < earliest.as_str() {
            timestamp.clone_into(earliest);
        }
        if timestamp > latest.as_str() {
            timestamp.clone_into(latest);
        }
    }

    /// Takes in what another part of the walk found.
    pub(super) fn merge(&mut self, other: Self) {
        for (last, (earliest, latest)) in other.0 {
            let span = self.0.entry(last).or_insert_with(|| (earliest.clone(), latest.clone()));
            if earliest < span.0 {
                span.0 = earliest;
            }
            if latest > span.1 {
                span.1 = latest;
            }
        }
    }

    /// Holds the spans of the database against the rows from `first` to `last`, which were walked.
    pub(super) fn prove(&self, connection: &Connection, first: u64, last: u64) -> rusqlite::Result<Result<(), Flaw>> {
        let transaction = connection.unchecked_transaction()?;
        let end = transaction.query_row("SELECT coalesce(max(seq), 0) FROM flow_events", [], |row| {
            row.get::<_, i64>(0)
        })?;
        let mut expected = self.0.range(..=last).peekable();
        let sql = "SELECT last_seq, earliest, latest FROM spans WHERE last_seq >= ?1 ORDER BY last_seq";
        let mut statement = transaction.prepare(sql)?;
        let mut spans = statement.query([first.cast_signed()])?;
        while let Some(span) = spans.next()? {
            let place = span.get::<_, i64>(0)?;
            let at = place.cast_unsigned();
            // Spans of rows that came since are whoever's who proves next.
            if at > last && place <= end.max(last.cast_signed()) && at.is_multiple_of(SPAN_ROWS) {
                continue;
            }
            let (earliest, latest) = (span.get::<_, String>(1)?, span.get::<_, String>(2)?);
            let is_right = expected.next().is_some_and(|(due, (from, to))| {
                // A prune may have taken the first of its rows.
                let is_whole = due.saturating_sub(SPAN_ROWS) + 1 >= first;
                *due == at && *from >= earliest && *to <= latest && (!is_whole || (*from == earliest && *to == latest))
            });
            if !is_right {
                return Ok(Err(Fault::SpanChanged.at(at)));
            }
        }
        Ok(match expected.next() {
            Some((missing, _)) => Err(Fault::SpanChanged.at(*missing)),
            None => Ok(()),
        })
    }
}

/// Tables, indexes and triggers must be those that the steps make.
pub(super) fn prove_shape(connection: &Connection) -> Result<(), VerifyError> {
    let mut model = Connection::open_in_memory()?;
    migrations::apply(&mut model).map_err(|error| VerifyError::astray(error.to_string()))?;
    let (mut found, made) = (shape(connection)?, shape(&model)?);
    for (name, text) in made {
        match found.remove(&name) {
            Some(same) if same == text => {}
            Some(_) => return Err(VerifyError::astray(format!("{name} is not as this program makes it"))),
            None => return Err(VerifyError::astray(format!("{name} is missing"))),
        }
    }
    match found.into_keys().next() {
        Some(name) => Err(VerifyError::astray(format!(
            "{name} was added, this program does not make it"
        ))),
        None => Ok(()),
    }
}

/// Every index must have an entry for each row of its table, and no other. Table by table: a longer reading would keep the log from
/// shrinking.
pub(super) fn prove_indexes(connection: &Connection) -> Result<(), VerifyError> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let tables: Vec<String> = connection
        .prepare(sql)?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for table in tables {
        let told = connection.query_row(
            "SELECT integrity_check FROM pragma_integrity_check(?1) LIMIT 1",
            [&table],
            |row| row.get::<_, String>(0),
        )?;
        if told != "ok" {
            return Err(VerifyError::astray(format!(
                "what leads to the rows of `{table}` is not right: {told}"
            )));
        }
    }
    Ok(())
}

/// What a database is made of, in a form that compares.
fn shape(connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    let sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut statement = connection.prepare(sql)?;
    let parts = statement.query_map([], |row| {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        let text: String = row.get(2)?;
        // Line by line: where one ends decides what a comment takes in.
        let lines = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let text = lines.collect::<Vec<_>>().join("\n");
        Ok((format!("the {kind} `{name}`"), text))
    })?;
    parts.collect()
}
