//! The port [`Records`] on PostgreSQL: everything here runs off the async threads.

use std::io::{BufWriter, Write};

use countersign_gateway::audit::reading::{Entity, Filter, Placed, Proved, Records};
use countersign_gateway::audit::row::Row;
use countersign_gateway::audit::summary::{self, MetricsSummary, Period, Tally};
use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::session::credential::Credential;
use countersign_gateway::session::lifetime::{Session, SessionState};
use tokio::sync::watch;

use super::link::Link;
use super::query::select;
use super::readers::Readers;
use super::trouble::{self, Trouble};
use super::{PgStore, dump, places, tokens, verify};
use crate::reading::{self, EXPORT_BYTES, RANGE_ROWS, Subject, moments, placed, read_all, unexported, unread};
use crate::sqlite::query::QueryError;
use crate::sqlite::verify::{Range, VerifyError};

impl PgStore {
    /// S1's MetricsSummary of a period. Blocks.
    pub fn summarize(&self, period: Period) -> Result<MetricsSummary, QueryError> {
        summed(&self.readers, period, self.site.options.clock.now())
            .map_err(|source| QueryError::Read { source: source.into() })
    }
}

impl Records for PgStore {
    fn events(&self, filter: Filter) -> Pending<Result<Vec<Row>, RecordError>> {
        self.read(move |readers| {
            readers
                .read(|link| select(link, &filter, Subject::Events))
                .map_err(|error| trouble::unavailable(&error))
        })
    }

    fn entities(&self, entity: Entity, filter: Filter) -> Pending<Result<Vec<Placed>, RecordError>> {
        self.read(move |readers| match entity {
            Entity::Command => {
                let rows = readers
                    .read(|link| select(link, &filter, Subject::Commands))
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
        self.read(|readers| readers.read(places::last).map_err(|error| trouble::unavailable(&error)))
    }

    fn grown(&self) -> watch::Receiver<u64> {
        self.site.written.subscribe()
    }

    fn prove(&self) -> Pending<Result<Proved, RecordError>> {
        self.read(move |readers| match verify::verify(readers, Range::ALL, &|_| {}) {
            Ok(report) => Ok(Proved::Sound {
                first_seq: report.first_seq,
                last_seq: report.last_seq,
                rows: report.chains().map(|chain| chain.rows).sum(),
                checkpoints: report.chains().map(|chain| chain.checkpoints).sum(),
                last_hash: report.last_hash.to_hex(),
                public_key: report.public_key,
            }),
            Err(VerifyError::Flawed(flaw)) => Ok(Proved::Flawed {
                seq: Some(flaw.seq),
                fault: match &flaw.chain {
                    Some(chain) => format!("{} (chain `{chain}`)", flaw.fault),
                    None => flaw.fault.to_string(),
                },
            }),
            Err(VerifyError::Astray { what }) => Ok(Proved::Flawed { seq: None, fault: what }),
            Err(VerifyError::Read { source }) => Err(RecordError::Unavailable(source.to_string())),
        })
    }

    fn export(&self, to: Box<dyn Write + Send>) -> Pending<Result<(), RecordError>> {
        self.read(move |readers| {
            let mut writer = BufWriter::with_capacity(EXPORT_BYTES, to);
            dump::export(readers, &mut writer).map_err(unexported)
        })
    }
}

/// Counts a period's rows, in ranges.
fn summed(readers: &Readers, period: Period, now: Timestamp) -> Result<MetricsSummary, Trouble> {
    let (from, before) = moments(period);
    let (first, last, began) = readers.read(|link| {
        let range = link.query_one(
            "SELECT coalesce(min(place), 1), coalesce(max(place), 0) FROM flow_events
             WHERE timestamp >= $1 AND timestamp < $2",
            &[&from, &before],
        )?;
        let began = link.first("SELECT timestamp FROM flow_events ORDER BY place LIMIT 1", &[], |row| {
            Ok(row.try_get::<_, String>(0)?)
        })?;
        Ok((range.try_get::<_, i64>(0)?, range.try_get::<_, i64>(1)?, began))
    })?;
    let mut tally = Tally::default();
    let mut behind = first - 1;
    while behind < last {
        let to = last.min(behind + RANGE_ROWS);
        readers.read(|link| count(link, &mut tally, (&from, &before), behind, to))?;
        behind = to;
    }
    Ok(reading::summary(tally, period, began, now))
}

fn count(link: &Link, tally: &mut Tally, (from, before): (&str, &str), behind: i64, to: i64) -> Result<(), Trouble> {
    let kinds: Vec<String> = summary::COUNTED.iter().map(|kind| kind.to_string()).collect();
    let rows = link.query(
        "SELECT event_type, approval_state, payload FROM flow_events
         WHERE place > $1 AND place <= $2 AND timestamp >= $3 AND timestamp < $4 AND event_type = ANY($5)
         ORDER BY place",
        &[&behind, &to, &from, &before, &kinds],
    )?;
    for row in rows {
        tally.count(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    }
    Ok(())
}
