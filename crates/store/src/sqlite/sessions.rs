//! Sessions in the database: written with the events they leave, read back with the requests they
//! must know again.
//!
//! A session over pipes, or on an event stream of HTTP+SSE, lives and dies with its process. While that
//! one lives it is never idle; what a crash left open, the sweeper closes. All others outlive processes and
//! expire.

use countersign_gateway::audit::{RecordError, SessionChange};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{IdSource, SessionId};
use countersign_gateway::limits;
use countersign_gateway::session::lifetime::{KeptRequest, KeptSession, Session, SessionState, Touched};
use rusqlite::{Connection, OptionalExtension, params};

use super::ledger::Ledger;
use super::readers::Readers;
use super::{SqliteStore, trouble};
use crate::process::Process;
use crate::rows::at_most;
use crate::rows::sessions::{COLUMNS, COUNT, closing, counts, dies_with_its_process, request, session};
use crate::waiting::count_swept;

const SAVE: &str = "SAVEPOINT session";
const UNDO: &str = "ROLLBACK TO session";
const RELEASE: &str = "RELEASE session";
const INSERT: &str = "INSERT INTO mcp_sessions (session_id, mark, transport, state, client_name, client_version,
         protocol_version, capabilities, credential, created_at_ms, last_activity_at_ms, reuses_ids, process)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT DO NOTHING";
/// One that expires must not have been used since it was read.
const ADVANCE: &str = "UPDATE mcp_sessions SET state = ?3, client_name = ?4, client_version = ?5,
         protocol_version = ?6, capabilities = ?7, last_activity_at_ms = max(last_activity_at_ms, ?8),
         reuses_ids = max(reuses_ids, ?9), process = iif(?3 IN ('closed', 'expired'), NULL, process)
     WHERE session_id = ?1 AND state = ?2 AND (?3 <> 'expired' OR last_activity_at_ms <= ?8)";
const TOUCH: &str = "UPDATE mcp_sessions SET last_activity_at_ms = max(last_activity_at_ms, ?2),
         reuses_ids = max(reuses_ids, ?3)
     WHERE session_id = ?1 AND state IN ('created', 'initialized')";

impl Ledger<'_> {
    /// False when the session does not stand where the change expects it.
    pub(super) fn write_session(&self, change: &SessionChange) -> rusqlite::Result<bool> {
        let SessionChange { session, from } = change;
        let client = &session.client;
        let (state, used) = (session.state(), session.last_activity_at.as_millis());
        let rows = match from {
            None => self.statement(INSERT)?.execute(params![
                session.id.as_str(),
                session.id.mark(),
                session.transport.as_str(),
                state.as_str(),
                client.name,
                client.version,
                client.protocol_version,
                client.capabilities,
                session.credential.as_str(),
                session.created_at.as_millis(),
                used,
                session.reuses_ids,
                (dies_with_its_process(session.transport) && state.is_open()).then(|| self.process()),
            ])?,
            Some(from) => self.statement(ADVANCE)?.execute(params![
                session.id.as_str(),
                from.as_str(),
                state.as_str(),
                client.name,
                client.version,
                client.protocol_version,
                client.capabilities,
                used,
                session.reuses_ids,
            ])?,
        };
        Ok(rows == 1)
    }

    pub(super) fn touch_sessions(&self, touched: &[Touched]) -> rusqlite::Result<()> {
        if touched.is_empty() {
            return Ok(());
        }
        let mut statement = self.statement(TOUCH)?;
        for Touched { id, at, reuses_ids } in touched {
            statement.execute(params![id.as_str(), at.as_millis(), reuses_ids])?;
        }
        Ok(())
    }

    pub(super) fn save(&self) -> rusqlite::Result<()> {
        self.statement(SAVE)?.execute([]).map(drop)
    }

    pub(super) fn release(&self) -> rusqlite::Result<()> {
        self.statement(RELEASE)?.execute([]).map(drop)
    }

    /// Takes back what was written since [`Self::save`].
    pub(super) fn undo(&self) -> rusqlite::Result<()> {
        self.statement(UNDO)?.execute([])?;
        self.release()
    }
}

impl Readers {
    pub(super) fn session(&self, id: &SessionId) -> Result<Option<KeptSession>, RecordError> {
        self.read(|connection| {
            let session = connection
                .prepare(&format!("SELECT {COLUMNS} FROM mcp_sessions WHERE session_id = ?1"))?
                .query_row([id.as_str()], |row| session(row))
                .optional()?;
            let Some(session) = session else {
                return Ok(None);
            };
            let requests = requests(connection, id)?;
            Ok(Some(KeptSession { session, requests }))
        })
        .map_err(|error| trouble::unavailable(&error))
    }

    pub(super) fn sessions(&self, state: Option<SessionState>, limit: usize) -> Result<Vec<Session>, RecordError> {
        let condition = state.map_or("?1 IS NULL", |_| "state = ?1");
        let sql = format!(
            "SELECT {COLUMNS} FROM mcp_sessions WHERE {condition} ORDER BY created_at_ms DESC, rowid DESC LIMIT ?2"
        );
        let mut latest = self.select(&sql, params![state.map(SessionState::as_str), at_most(limit)])?;
        latest.reverse();
        Ok(latest)
    }

    /// Those that are not open any more, or not kept.
    pub(super) fn ended_sessions(&self, among: Vec<SessionId>) -> Result<Vec<SessionId>, RecordError> {
        let ended = self.read(|connection| {
            let mut is_open = connection.prepare_cached(
                "SELECT 1 FROM mcp_sessions WHERE session_id = ?1 AND state IN ('created', 'initialized')",
            )?;
            let mut ended = Vec::new();
            for id in among {
                if !is_open.exists([id.as_str()])? {
                    ended.push(id);
                }
            }
            Ok(ended)
        });
        ended.map_err(|error| trouble::unavailable(&error))
    }

    /// States that no session stands at are told as well.
    pub(super) fn session_counts(&self) -> Result<Vec<(SessionState, usize)>, RecordError> {
        let counted = self.read(|connection| {
            connection
                .prepare(COUNT)?
                .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        });
        let counted = counted.map_err(|error| trouble::unavailable(&error))?;
        Ok(counts(&counted))
    }

    pub(super) fn idle_sessions(&self, since: Timestamp, limit: usize) -> Result<Vec<Session>, RecordError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM mcp_sessions
             WHERE state IN ('created', 'initialized') AND process IS NULL AND last_activity_at_ms < ?1
             ORDER BY last_activity_at_ms LIMIT ?2"
        );
        self.select(&sql, params![since.as_millis(), at_most(limit)])
    }

    fn select(&self, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> Result<Vec<Session>, RecordError> {
        self.read(|connection| {
            connection
                .prepare(sql)?
                .query_map(parameters, |row| session(row))?
                .collect()
        })
        .map_err(|error| trouble::unavailable(&error))
    }
}

/// The last requests of a session that acted, oldest first.
fn requests(connection: &Connection, id: &SessionId) -> rusqlite::Result<Vec<KeptRequest>> {
    let mut requests = connection
        .prepare(
            "SELECT rpc_id, rpc_digest, request_id, opened_at_ms, 0 FROM commands WHERE session_id = ?1
             UNION ALL SELECT rpc_id, rpc_digest, request_id, opened_at_ms,
                 EXISTS (SELECT 1 FROM approvals WHERE approvals.owner = open_commands.owner
                     AND approvals.request_id = open_commands.request_id AND parks = 1
                     AND state NOT IN ('applied', 'failed'))
                 FROM open_commands WHERE session_id = ?1
             UNION ALL SELECT rpc_id, rpc_digest, NULL, opened_at_ms, 0 FROM asked_acts WHERE session_id = ?1
             ORDER BY opened_at_ms DESC, request_id DESC LIMIT ?2",
        )?
        .query_map(params![id.as_str(), at_most(limits::REQUESTS_REMEMBERED)], |row| {
            request(row)
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    requests.reverse();
    Ok(requests)
}

impl SqliteStore {
    /// The latest sessions, of one state where one is named; the newest last. Blocks.
    pub fn query_sessions(&self, state: Option<SessionState>, limit: usize) -> Result<Vec<Session>, RecordError> {
        self.readers.sessions(state, limit)
    }

    /// Closes sessions whose process died without doing so; gives their number. Blocks.
    pub(super) fn sweep_sessions(&self, now: Timestamp, ids: &IdSource) -> Result<usize, RecordError> {
        let mut closed = 0;
        for process in self.dead_processes()? {
            // One that is closed belongs to no process any more, so that each round finds others.
            loop {
                let swept = self.close_sessions_of(&process, now, ids)?;
                if swept == 0 {
                    break;
                }
                closed += swept;
            }
        }
        Ok(closed)
    }

    fn close_sessions_of(&self, process: &str, now: Timestamp, ids: &IdSource) -> Result<usize, RecordError> {
        let sql = format!("SELECT {COLUMNS} FROM mcp_sessions WHERE process = ?1 LIMIT ?2");
        let left = self
            .readers
            .select(&sql, params![process, at_most(limits::SESSIONS_AT_ONCE)])?;
        let mut waiting = Vec::new();
        for session in left {
            if let Some(change) = closing(session, now, ids) {
                waiting.push(self.send(change)?);
            }
        }
        count_swept(waiting)
    }

    /// Those that left sessions open.
    fn dead_processes(&self) -> Result<Vec<String>, RecordError> {
        let known = self.readers.read(|connection| {
            connection
                .prepare("SELECT DISTINCT process FROM mcp_sessions WHERE process IS NOT NULL")?
                .query_map([], |row| row.get::<_, String>(0))?
                .collect::<rusqlite::Result<Vec<_>>>()
        });
        let known = known.map_err(|error| trouble::unavailable(&error))?;
        Ok(known
            .into_iter()
            .filter(|process| !Process::is_alive(process))
            .collect())
    }
}
