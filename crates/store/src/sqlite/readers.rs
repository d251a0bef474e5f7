//! Connections that read. They are made when needed and a few are kept; a failed one is dropped.

use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::audit::{RecordError, StoredCommand};
use countersign_gateway::ids::{CredentialId, RequestId};
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::site::{Identity, Site};
use super::trouble;
use crate::kept::Found;
use crate::key::Key;
use crate::rows::commands::{self, Unvouched};

/// Connections kept for the next reader.
const KEPT_MAX: usize = 2;

pub(super) struct Readers {
    site: Arc<Site>,
    kept: Mutex<Vec<Kept>>,
}

/// A connection, and the file that it reads.
struct Kept {
    file: Identity,
    connection: Connection,
}

impl Readers {
    pub(super) fn new(site: Arc<Site>) -> Self {
        Self {
            site,
            kept: Mutex::default(),
        }
    }

    /// Runs one short read. The connection goes back only when all went well.
    pub(super) fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let file = self.site.identity().ok();
        // One whose file was replaced would go on reading the old one.
        let kept = self.lock().pop().filter(|it| Some(it.file) == file);
        let connection = match kept {
            Some(kept) => kept.connection,
            None => self.site.connect_reader()?,
        };
        let outcome = work(&connection)?;
        let mut kept = self.lock();
        if let Some(file) = file
            && kept.len() < KEPT_MAX
        {
            kept.push(Kept { file, connection });
        }
        Ok(outcome)
    }

    /// The key of the record that is read.
    pub(super) fn key(&self) -> &Key {
        &self.site.key
    }

    pub(super) fn command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Result<Option<StoredCommand>, RecordError> {
        let found = self.read(|connection| command(connection, owner, request_id));
        let found = found.map_err(|error| trouble::unavailable(&error))?;
        Ok(found.transpose()?)
    }

    /// Everything that a statement finds.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, RecordError> {
        self.read(|connection| connection.prepare_cached(sql)?.query_map(values, read)?.collect())
            .map_err(|error| trouble::unavailable(&error))
    }

    /// The one thing that a statement finds, or the first.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, RecordError> {
        self.read(|connection| connection.prepare_cached(sql)?.query_row(values, read).optional())
            .map_err(|error| trouble::unavailable(&error))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn command(
    connection: &Connection,
    owner: &CredentialId,
    request_id: &RequestId,
) -> rusqlite::Result<Option<Result<StoredCommand, Unvouched>>> {
    let known = connection
        .prepare_cached(
            "SELECT digest, opened_at_ms, result, stdout, stderr, correlation_id, NULL FROM commands
             WHERE owner = ?1 AND request_id = ?2
             UNION ALL SELECT digest, opened_at_ms, NULL, NULL, NULL, correlation_id, abandoned FROM open_commands
             WHERE owner = ?1 AND request_id = ?2",
        )?
        .query_row([owner.as_str(), request_id.as_str()], |row| {
            commands::command(row, request_id)
        })
        .optional()?;
    let Some(known) = known else { return Ok(None) };
    let correlation_id = known.correlation_id.as_str();
    Ok(Some(if known.has_ended() {
        let closings = closings(connection, correlation_id)?;
        known.vouched_end(owner, &closings)
    } else {
        let openings = openings(connection, correlation_id)?;
        Ok(known.vouched_open(owner, &openings))
    }))
}

/// The closing events of a call.
pub(super) fn closings(connection: &Connection, correlation_id: &str) -> rusqlite::Result<Vec<Found>> {
    let sql = "SELECT chain, seq, payload FROM flow_events
         WHERE correlation_id = ?1 AND event_type = 'command.completed' ORDER BY seq";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_map([correlation_id], |row| {
        Ok(Found {
            chain: row.get(0)?,
            seq: row.get::<_, i64>(1)?.cast_unsigned(),
            payload: row.get(2)?,
        })
    })?;
    found.collect()
}

/// The events of openings of a call.
pub(super) fn openings(connection: &Connection, correlation_id: &str) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare_cached(
            "SELECT payload FROM flow_events WHERE correlation_id = ?1 AND event_type = 'command.received' ORDER BY seq",
        )?
        .query_map([correlation_id], |row| row.get(0))?
        .collect()
}
