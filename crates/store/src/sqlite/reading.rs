//! The port [`Records`] on SQLite: everything here runs off the async threads.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use countersign_gateway::audit::reading::{Entity, Filter, Placed, Proved, Records};
use countersign_gateway::audit::row::Row;
use countersign_gateway::audit::summary::{self, MetricsSummary, Period, Tally};
use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::session::credential::Credential;
use countersign_gateway::session::lifetime::{Session, SessionState};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::watch;

use super::query::{QueryError, select};
use super::readers::Readers;
use super::verify::{self, Range, VerifyError};
use super::{CHAIN, SqliteStore, dump, spans, tokens, trouble};
use crate::reading::{self, EXPORT_BYTES, RANGE_ROWS, Subject, moments, placed, read_all, unexported, unread};

impl SqliteStore {
    /// S1's MetricsSummary of a period. Blocks.
    pub fn summarize(&self, period: Period) -> Result<MetricsSummary, QueryError> {
        summed(&self.readers, period, self.site.options.clock.now())
            .map_err(|source| QueryError::Read { source: source.into() })
    }
}

impl Records for SqliteStore {
    fn events(&self, filter: Filter) -> Pending<Result<Vec<Row>, RecordError>> {
        self.read(move |readers| {
            readers
                .read(|connection| select(connection, &filter, Subject::Events))
                .map_err(|error| trouble::unavailable(&error))
        })
    }

    fn entities(&self, entity: Entity, filter: Filter) -> Pending<Result<Vec<Placed>, RecordError>> {
        self.read(move |readers| match entity {
            Entity::Command => {
                let rows = readers
                    .read(|connection| select(connection, &filter, Subject::Commands))
                    .map_err(|error| trouble::unavailable(&error))?;
                Ok(placed(&rows))
            }
            Entity::Invocation => {
                let found = readers.find_invocations(&filter).map_err(unread)?;
                read_all(&filter, &found, |found| readers.read_invocation(found))
            }
            Entity::Envelope => {
                let found = readers.find_envelopes(&filter).map_err(unread)?;
                read_all(&filter, &found, |found| readers.read_envelope(found))
            }
        })
    }

    fn summary(&self, period: Period) -> Pending<Result<MetricsSummary, RecordError>> {
        let now = self.site.options.clock.now();
        self.read(move |readers| summed(readers, period, now).map_err(|error| trouble::unavailable(&error)))
    }

    fn known_sessions(&self, state: Option<SessionState>, limit: usize) -> Pending<Result<Vec<Session>, RecordError>> {
        self.read(move |readers| readers.sessions(state, limit))
    }

    fn known_tokens(&self) -> Pending<Result<Vec<Credential>, RecordError>> {
        self.read(|readers| readers.read(tokens::all).map_err(|error| trouble::unavailable(&error)))
    }

    fn head(&self) -> Pending<Result<u64, RecordError>> {
        self.read(|readers| {
            readers
                .read(|connection| {
                    connection
                        .prepare_cached("SELECT seq FROM chain_heads WHERE chain = ?1")?
                        .query_row([CHAIN], |row| row.get::<_, i64>(0))
                        .optional()
                })
                .map(|seq| seq.unwrap_or(0).cast_unsigned())
                .map_err(|error| trouble::unavailable(&error))
        })
    }

    fn grown(&self) -> watch::Receiver<u64> {
        self.site.written.subscribe()
    }

    fn prove(&self) -> Pending<Result<Proved, RecordError>> {
        let site = Arc::clone(&self.site);
        self.read(
            move |readers| match verify::verify(readers, &site, Range::ALL, &|_| {}) {
                Ok(report) => Ok(Proved::Sound {
                    first_seq: report.first_seq,
                    last_seq: report.last_seq,
                    rows: report.rows,
                    checkpoints: report.checkpoints,
                    last_hash: report.last_hash.to_hex(),
                    public_key: report.public_key,
                }),
                Err(VerifyError::Flawed(flaw)) => Ok(Proved::Flawed {
                    seq: Some(flaw.seq),
                    fault: flaw.fault.to_string(),
                }),
                Err(VerifyError::Astray { what }) => Ok(Proved::Flawed { seq: None, fault: what }),
                Err(VerifyError::Read { source }) => Err(RecordError::Unavailable(source.to_string())),
            },
        )
    }

    fn export(&self, to: Box<dyn Write + Send>) -> Pending<Result<(), RecordError>> {
        let site = Arc::clone(&self.site);
        self.read(move |readers| {
            let mut writer = BufWriter::with_capacity(EXPORT_BYTES, to);
            dump::export(readers, &site, &mut writer).map_err(unexported)
        })
    }
}

/// Counts a period's rows, in ranges.
fn summed(readers: &Readers, period: Period, now: Timestamp) -> rusqlite::Result<MetricsSummary> {
    let (places, last, began) = readers.read(|connection| {
        let places = spans::places(connection, period.from(), period.to())?;
        let (last, began) = connection.query_row(
            "SELECT coalesce(max(seq), 0), (SELECT timestamp FROM flow_events ORDER BY seq LIMIT 1) FROM flow_events",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?)),
        )?;
        Ok((places, last, began))
    })?;
    let mut tally = Tally::default();
    let (mut behind, up_to) = (places.behind.max(0), places.up_to.min(last));
    while behind < up_to {
        let to = up_to.min(behind + RANGE_ROWS);
        readers.read(|connection| count(connection, &mut tally, period, behind, to))?;
        behind = to;
    }
    Ok(reading::summary(tally, period, began, now))
}

fn count(connection: &Connection, tally: &mut Tally, period: Period, behind: i64, to: i64) -> rusqlite::Result<()> {
    let kinds: Vec<String> = summary::COUNTED.iter().map(|kind| format!("'{kind}'")).collect();
    let mut statement = connection.prepare_cached(&format!(
        "SELECT event_type, approval_state, payload FROM flow_events
         WHERE seq > ?1 AND seq <= ?2 AND timestamp >= ?3 AND timestamp < ?4 AND event_type IN ({})",
        kinds.join(", ")
    ))?;
    let (from, before) = moments(period);
    let mut rows = statement.query(params![behind, to, from, before])?;
    while let Some(row) = rows.next()? {
        // Bytes that are no text are damage, which proving tells of.
        if let (Ok(kind), Ok(state), Ok(payload)) = (
            row.get_ref(0)?.as_str(),
            row.get_ref(1)?.as_str_or_null(),
            row.get_ref(2)?.as_str(),
        ) {
            tally.count(kind, state, payload);
        }
    }
    Ok(())
}
