//! Connections that read. They are made when needed and a few are kept; a failed one is dropped.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use countersign_gateway::audit::{RecordError, StoredCommand};
use countersign_gateway::ids::{CredentialId, RequestId};
use tokio_postgres::Row;

use super::link::{Link, Values};
use super::site::Site;
use super::trouble::{self, Trouble};
use crate::kept::Found;
use crate::rows::commands::{self, Unvouched};

/// Connections of one process that read at once; a server has room for a hundred or so, of all nodes.
const LINKS_MAX: usize = 6;
/// Connections kept for the next reader.
const KEPT_MAX: usize = 3;

pub(super) struct Readers {
    pub(super) site: Arc<Site>,
    links: Mutex<Links>,
    returned: Condvar,
}

#[derive(Default)]
struct Links {
    kept: Vec<Link>,
    in_use: usize,
}

/// A place among those that read, given back however the reading ends.
struct Turn<'r>(&'r Readers);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().in_use -= 1;
        self.0.returned.notify_one();
    }
}

impl Readers {
    pub(super) fn new(site: Arc<Site>) -> Self {
        Self {
            site,
            links: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Runs one short read. The connection goes back only when all went well.
    pub(super) fn read<T>(&self, work: impl FnOnce(&Link) -> Result<T, Trouble>) -> Result<T, Trouble> {
        let (_turn, kept) = self.turn()?;
        let link = match kept.filter(|link| !link.is_closed()) {
            Some(link) => link,
            None => self.site.connect()?,
        };
        let outcome = work(&link)?;
        let mut links = self.lock();
        if links.kept.len() < KEPT_MAX {
            links.kept.push(link);
        }
        Ok(outcome)
    }

    /// The same, of one moment.
    pub(super) fn read_at_once<T>(&self, work: impl FnOnce(&Link) -> Result<T, Trouble>) -> Result<T, Trouble> {
        self.read(|link| {
            link.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
            // After an error the connection is dropped, and the transaction with it.
            let outcome = work(link)?;
            link.batch("COMMIT")?;
            Ok(outcome)
        })
    }

    pub(super) fn command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Result<Option<StoredCommand>, RecordError> {
        let found = self.read(|link| command(link, owner, request_id));
        let found = found.map_err(|error| trouble::unavailable(&error))?;
        Ok(found.transpose()?)
    }

    /// The rows of an answer, each read as something.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        values: Values<'_>,
        read: impl FnMut(&Row) -> Result<T, Trouble>,
    ) -> Result<Vec<T>, RecordError> {
        self.read(|link| link.all(sql, values, read))
            .map_err(|error| trouble::unavailable(&error))
    }

    pub(super) fn first<T>(
        &self,
        sql: &str,
        values: Values<'_>,
        read: impl FnOnce(&Row) -> Result<T, Trouble>,
    ) -> Result<Option<T>, RecordError> {
        self.read(|link| link.first(sql, values, read))
            .map_err(|error| trouble::unavailable(&error))
    }

    fn turn(&self) -> Result<(Turn<'_>, Option<Link>), Trouble> {
        let deadline = Instant::now() + self.site.options.busy_timeout;
        let mut links = self.lock();
        while links.in_use >= LINKS_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Trouble::TimedOut);
            }
            let waited = self.returned.wait_timeout(links, left);
            links = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        links.in_use += 1;
        let kept = links.kept.pop();
        Ok((Turn(self), kept))
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn command(
    link: &Link,
    owner: &CredentialId,
    request_id: &RequestId,
) -> Result<Option<Result<StoredCommand, Unvouched>>, Trouble> {
    let known = link.first(
        "SELECT digest, opened_at_ms, result, stdout, stderr, correlation_id, NULL::text FROM commands
         WHERE owner = $1 AND request_id = $2
         UNION ALL SELECT digest, opened_at_ms, NULL, NULL, NULL, correlation_id, abandoned FROM open_commands
         WHERE owner = $1 AND request_id = $2",
        &[&owner.as_str(), &request_id.as_str()],
        |row| commands::command(row, request_id),
    )?;
    let Some(known) = known else { return Ok(None) };
    let correlation_id = known.correlation_id.as_str();
    Ok(Some(if known.has_ended() {
        let closings = closings(link, correlation_id)?;
        known.vouched_end(owner, &closings)
    } else {
        let openings = openings(link, correlation_id)?;
        Ok(known.vouched_open(owner, &openings))
    }))
}

/// The events of openings of a call.
pub(super) fn openings(link: &Link, correlation_id: &str) -> Result<Vec<String>, Trouble> {
    let sql = "SELECT payload FROM flow_events WHERE correlation_id = $1 AND event_type = 'command.received'
         ORDER BY chain, seq";
    link.all(sql, &[&correlation_id], |row| Ok(row.try_get(0)?))
}

/// The closing events of a call.
pub(super) fn closings(link: &Link, correlation_id: &str) -> Result<Vec<Found>, Trouble> {
    let sql = "SELECT chain, seq, payload FROM flow_events
         WHERE correlation_id = $1 AND event_type = 'command.completed' ORDER BY chain, seq";
    link.all(sql, &[&correlation_id], |row| {
        Ok(Found {
            chain: row.try_get(0)?,
            seq: row.try_get::<_, i64>(1)?.cast_unsigned(),
            payload: row.try_get(2)?,
        })
    })
}
