//! Finding rows by time without an index on it.
//!
//! An index on time would be one more page in every commit. Rows are appended in the order of their moments, but
//! for clocks that were set and writers that had to wait; so a line per stretch of rows, saying which moments it
//! covers, bounds a question about time just as well. A row outside its stretch's moments cannot be, whatever
//! the clock did: the line is made of the rows themselves.

use countersign_gateway::clock::Timestamp;
use rusqlite::{Connection, OptionalExtension};

/// Rows in a span; the last one has a place that is a multiple of this.
pub(super) const SPAN_ROWS: u64 = 512;

/// Places between which all rows of a time range lie: behind the first, up to the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    pub(super) behind: i64,
    pub(super) up_to: i64,
}

/// Where to look for rows from one moment on and before another.
pub(super) fn places(
    connection: &Connection,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
) -> rusqlite::Result<Places> {
    let mut places = Places {
        behind: 0,
        up_to: i64::MAX,
    };
    // What comes behind the last span is too little to be worth one, and may be of any time.
    let spanned = connection
        .query_row("SELECT max(last_seq) FROM spans", [], |row| {
            row.get::<_, Option<i64>>(0)
        })?
        .unwrap_or(0);
    if let Some(from) = from {
        let first = "SELECT last_seq FROM spans WHERE latest >= ?1 ORDER BY last_seq LIMIT 1";
        places.behind = seq(connection, first, from)?.map_or(spanned, |last| last - SPAN_ROWS.cast_signed());
    }
    if let Some(to) = to {
        let in_the_rest = "SELECT seq FROM flow_events WHERE seq > ?2 AND timestamp < ?1 LIMIT 1";
        let mut statement = connection.prepare(in_the_rest)?;
        if !statement.exists((to.to_string(), spanned))? {
            let last = "SELECT last_seq FROM spans WHERE earliest < ?1 ORDER BY last_seq DESC LIMIT 1";
            places.up_to = seq(connection, last, to)?.unwrap_or(0);
        }
    }
    Ok(places)
}

fn seq(connection: &Connection, sql: &str, moment: Timestamp) -> rusqlite::Result<Option<i64>> {
    connection
        .query_row(sql, [moment.to_string()], |row| row.get(0))
        .optional()
}
