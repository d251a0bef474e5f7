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

use super::PgStore;
use super::ledger::Ledger;
use super::link::{Link, Values};
use super::readers::Readers;
use super::trouble::{self, Trouble};
use crate::rows::at_most;
use crate::rows::sessions::{COLUMNS, COUNT, closing, counts, dies_with_its_process, request, session};
use crate::waiting::count_swept;

const INSERT: &str = "INSERT INTO mcp_sessions (session_id, mark, transport, state, client_name, client_version,
         protocol_version, capabilities, credential, created_at_ms, last_activity_at_ms, reuses_ids, process)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING";
/// One that expires must not have been used since it was read.
const ADVANCE: &str = "UPDATE mcp_sessions SET state = $3, client_name = $4, client_version = $5,
         protocol_version = $6, capabilities = $7, last_activity_at_ms = greatest(last_activity_at_ms, $8),
         reuses_ids = reuses_ids OR $9,
         process = CASE WHEN $3 IN ('closed', 'expired') THEN NULL ELSE process END
     WHERE session_id = $1 AND state = $2 AND ($3 <> 'expired' OR last_activity_at_ms <= $8)";
const TOUCH: &str = "UPDATE mcp_sessions SET last_activity_at_ms = greatest(last_activity_at_ms, $2),
         reuses_ids = reuses_ids OR $3
     WHERE session_id = $1 AND state IN ('created', 'initialized')";

impl Ledger<'_> {
    /// False when the session does not stand where the change expects it.
    pub(super) fn write_session(&self, change: &SessionChange) -> Result<bool, Trouble> {
        let SessionChange { session, from } = change;
        let client = &session.client;
        let (state, used) = (session.state(), session.last_activity_at.as_millis());
        let rows = match from {
            None => self.link.execute(
                INSERT,
                &[
                    &session.id.as_str(),
                    &session.id.mark(),
                    &session.transport.as_str(),
                    &state.as_str(),
                    &client.name,
                    &client.version,
                    &client.protocol_version,
                    &client.capabilities,
                    &session.credential.as_str(),
                    &session.created_at.as_millis(),
                    &used,
                    &session.reuses_ids,
                    &(dies_with_its_process(session.transport) && state.is_open()).then(|| self.process()),
                ],
            )?,
            Some(from) => self.link.execute(
                ADVANCE,
                &[
                    &session.id.as_str(),
                    &from.as_str(),
                    &state.as_str(),
                    &client.name,
                    &client.version,
                    &client.protocol_version,
                    &client.capabilities,
                    &used,
                    &session.reuses_ids,
                ],
            )?,
        };
        Ok(rows == 1)
    }

    pub(super) fn touch_sessions(&self, touched: &[Touched]) -> Result<(), Trouble> {
        for Touched { id, at, reuses_ids } in touched {
            self.link.execute(TOUCH, &[&id.as_str(), &at.as_millis(), reuses_ids])?;
        }
        Ok(())
    }
}

impl Readers {
    pub(super) fn session(&self, id: &SessionId) -> Result<Option<KeptSession>, RecordError> {
        self.read(|link| {
            let sql = format!("SELECT {COLUMNS} FROM mcp_sessions WHERE session_id = $1");
            let Some(session) = link.first(&sql, &[&id.as_str()], session)? else {
                return Ok(None);
            };
            let requests = requests(link, id)?;
            Ok(Some(KeptSession { session, requests }))
        })
        .map_err(|error| trouble::unavailable(&error))
    }

    pub(super) fn sessions(&self, state: Option<SessionState>, limit: usize) -> Result<Vec<Session>, RecordError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM mcp_sessions WHERE $1::text IS NULL OR state = $1
             ORDER BY created_at_ms DESC, arrival DESC LIMIT $2"
        );
        let mut latest = self.select(&sql, &[&state.map(SessionState::as_str), &at_most(limit)])?;
        latest.reverse();
        Ok(latest)
    }

    /// Those that are not open any more, or not kept.
    pub(super) fn ended_sessions(&self, among: Vec<SessionId>) -> Result<Vec<SessionId>, RecordError> {
        let ids: Vec<&str> = among.iter().map(SessionId::as_str).collect();
        let sql = "SELECT session_id FROM mcp_sessions
             WHERE session_id = ANY($1) AND state IN ('created', 'initialized')";
        let open = self
            .read(|link| link.all(sql, &[&ids], |row| Ok(row.try_get::<_, String>(0)?)))
            .map_err(|error| trouble::unavailable(&error))?;
        let is_open = |id: &SessionId| open.iter().any(|open| open == id.as_str());
        Ok(among.iter().filter(|id| !is_open(id)).cloned().collect())
    }

    /// States that no session stands at are told as well.
    pub(super) fn session_counts(&self) -> Result<Vec<(SessionState, usize)>, RecordError> {
        let counted = self
            .read(|link| {
                link.all(COUNT, &[], |row| {
                    Ok((row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?))
                })
            })
            .map_err(|error| trouble::unavailable(&error))?;
        Ok(counts(&counted))
    }

    pub(super) fn idle_sessions(&self, since: Timestamp, limit: usize) -> Result<Vec<Session>, RecordError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM mcp_sessions
             WHERE state IN ('created', 'initialized') AND process IS NULL AND last_activity_at_ms < $1
             ORDER BY last_activity_at_ms LIMIT $2"
        );
        self.select(&sql, &[&since.as_millis(), &at_most(limit)])
    }

    fn select(&self, sql: &str, values: Values<'_>) -> Result<Vec<Session>, RecordError> {
        self.read(|link| link.all(sql, values, session))
            .map_err(|error| trouble::unavailable(&error))
    }
}

/// The last requests of a session that acted, oldest first.
fn requests(link: &Link, id: &SessionId) -> Result<Vec<KeptRequest>, Trouble> {
    let sql = "SELECT rpc_id, rpc_digest, request_id, opened_at_ms, false FROM commands WHERE session_id = $1
         UNION ALL SELECT rpc_id, rpc_digest, request_id, opened_at_ms,
             EXISTS (SELECT 1 FROM approvals WHERE approvals.owner = open_commands.owner
                 AND approvals.request_id = open_commands.request_id AND parks
                 AND state NOT IN ('applied', 'failed'))
             FROM open_commands WHERE session_id = $1
         UNION ALL SELECT rpc_id, rpc_digest, NULL, opened_at_ms, false FROM asked_acts WHERE session_id = $1
         ORDER BY opened_at_ms DESC, request_id DESC LIMIT $2";
    let mut requests = link.all(sql, &[&id.as_str(), &at_most(limits::REQUESTS_REMEMBERED)], request)?;
    requests.reverse();
    Ok(requests)
}

impl PgStore {
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
        let sql = format!("SELECT {COLUMNS} FROM mcp_sessions WHERE process = $1 LIMIT $2");
        let left = self
            .readers
            .select(&sql, &[&process, &at_most(limits::SESSIONS_AT_ONCE)])?;
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
        let sql = "SELECT DISTINCT process FROM mcp_sessions WHERE process IS NOT NULL";
        let dead = self.readers.read(|link| {
            let mut dead = Vec::new();
            for process in link.all(sql, &[], |row| Ok(row.try_get::<_, String>(0)?))? {
                if !self.site.node.is_alive(link, &process)? {
                    dead.push(process);
                }
            }
            Ok(dead)
        });
        dead.map_err(|error| trouble::unavailable(&error))
    }
}
