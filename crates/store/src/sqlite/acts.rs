//! Acts that are no commands while they are done, and the end of those whose process is gone.

use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::act::{ActChange, OpenAct, UsedApproval};
use countersign_gateway::audit::outcome::{AskedAct, StoredAct};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, EventId, IdSource, RequestId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::ledger::Ledger;
use super::readers::Readers;
use super::site::Site;
use super::{SqliteStore, approvals, proving, trouble};
use crate::process::Process;
use crate::rows::acts::{self, AT_ONCE, Left, OPEN_ACTS, act, read_systems, stored, write_systems};
use crate::rows::{Cells as _, sessions};

const IS_GIVEN: &str = "SELECT 1 FROM approvals WHERE approval_id = ?1 AND version = ?2 AND state = 'approved'";
const OPEN: &str = "INSERT INTO open_acts (act_id, correlation_id, actor_type, actor_id, tool, action, approval_id,
         run_id, systems, opened_at_ms, process)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING";
const SYSTEMS: &str = "SELECT systems FROM open_acts WHERE act_id = ?1";
const LEAVE_SYSTEMS: &str = "UPDATE open_acts SET systems = ?2 WHERE act_id = ?1";
const CLOSE: &str = "DELETE FROM open_acts WHERE act_id = ?1";
const ENTER: &str = "INSERT INTO asked_acts (owner, request_id, act_id, session_id, rpc_id, rpc_digest, opened_at_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
/// The first end stands.
const KEEP: &str = "UPDATE asked_acts SET outcome = ?2, closed_at_ms = ?3 WHERE act_id = ?1 AND outcome IS NULL";
const TAKE_BACK: &str = "DELETE FROM asked_acts WHERE act_id = ?1 AND outcome IS NULL";
const ASKED: &str = "SELECT outcome FROM asked_acts WHERE owner = ?1 AND request_id = ?2";
const PROCESS: &str = "SELECT process FROM open_acts WHERE act_id = ?1";

impl Ledger<'_> {
    /// False where an act cannot be opened, or is open no longer.
    pub(super) fn write_act(&self, change: &ActChange) -> rusqlite::Result<bool> {
        match change {
            ActChange::Open(act) => self.open_act(act),
            ActChange::Told { act, system } => {
                let left = self
                    .statement(SYSTEMS)?
                    .query_row([act.as_str()], |row| row.get::<_, String>(0))
                    .optional()?;
                let Some(left) = left else { return Ok(false) };
                let mut systems = read_systems(&left);
                systems.retain(|it| it != system);
                let written = params![act.as_str(), write_systems(&systems)];
                Ok(self.statement(LEAVE_SYSTEMS)?.execute(written)? == 1)
            }
            ActChange::Close { act, kept } => {
                match kept {
                    Some(kept) => {
                        let now = self.now().as_millis();
                        let ended = params![act.as_str(), kept.as_str(), now];
                        self.statement(KEEP)?.execute(ended)?;
                    }
                    None => drop(self.statement(TAKE_BACK)?.execute([act.as_str()])?),
                }
                Ok(self.statement(CLOSE)?.execute([act.as_str()])? == 1)
            }
        }
    }

    /// False where its request came before.
    pub(super) fn enter_act(&self, id: &EventId, asked: &AskedAct, at: Timestamp) -> rusqlite::Result<bool> {
        let (session, rpc_id, rpc_digest) = sessions::asked(asked.asked.as_ref());
        let rows = self.statement(ENTER)?.execute(params![
            asked.owner.as_str(),
            asked.request_id.as_str(),
            id.as_str(),
            session,
            rpc_id,
            rpc_digest,
            at.as_millis(),
        ])?;
        Ok(rows == 1)
    }

    fn open_act(&self, act: &OpenAct) -> rusqlite::Result<bool> {
        if let Some(UsedApproval { id, version }) = &act.approval
            && !self
                .statement(IS_GIVEN)?
                .exists(params![id.as_str(), version.cast_signed()])?
        {
            return Ok(false);
        }
        let rows = self.statement(OPEN)?.execute(params![
            act.id.as_str(),
            act.correlation_id.as_str(),
            act.actor.kind.as_str(),
            act.actor.id,
            act.tool,
            act.action,
            act.approval.as_ref().map(|used| used.id.as_str()),
            act.run_id,
            write_systems(&act.systems),
            act.opened_at.as_millis(),
            self.process(),
        ])?;
        Ok(rows == 1)
    }
}

impl Readers {
    pub(super) fn act(&self, owner: &CredentialId, request_id: &RequestId) -> Result<Option<StoredAct>, RecordError> {
        let key = [owner.as_str(), request_id.as_str()];
        let found = self.first(ASKED, key, |row| row.get::<_, Option<String>>(0))?;
        Ok(found.map(stored))
    }
}

impl SqliteStore {
    /// Ends acts whose process is gone. What they left half done is put right by their tools. Blocks.
    pub(super) fn sweep_acts(&self, now: Timestamp, ids: &IdSource) -> Result<(), RecordError> {
        let left = self.readers.read(|connection| {
            let mut left = connection.prepare(&format!("{OPEN_ACTS} {AT_ONCE}"))?;
            let rows = left.query_map([], |row| Ok((act(row)?, row.text(acts::PROCESS)?)))?;
            let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let dead = rows.into_iter().filter(|(_, process)| !Process::is_alive(process));
            let dead: Vec<_> = dead.map(|(act, _)| act).collect();
            let calls = dead.iter().map(|act| act.correlation_id.as_str());
            let events = proving::events_of(connection, &self.site, calls, &acts::TELLING)?;
            let mut left: Vec<_> = dead.iter().filter_map(|act| Left::vouched(act, &events)).collect();
            for left in &mut left {
                if let Some(id) = left.approval_id() {
                    left.approval = approvals::select(connection, "WHERE approval_id = ?1", [id])?.pop();
                }
            }
            Ok(left)
        });
        let left = left.map_err(|error| trouble::unavailable(&error))?;
        for change in left.into_iter().map(|left| left.closing(now, ids)) {
            match self.send(change)?.wait() {
                // Somebody else gave its approval up at this moment; the next sweep ends it.
                Ok(_) | Err(RecordError::ApprovalMoved) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What is open must be what was opened and has not ended.
pub(super) fn prove_open(connection: &Connection, site: &Site) -> rusqlite::Result<Result<(), String>> {
    // Rows and events of one moment.
    let moment = connection.unchecked_transaction()?;
    let mut open = moment.prepare(OPEN_ACTS)?;
    let open = open.query_map([], |row| act(row))?;
    let open = open.collect::<rusqlite::Result<Vec<_>>>()?;
    let calls = open.iter().map(|act| act.correlation_id.as_str());
    let events = proving::events_of(&moment, site, calls, &acts::TELLING)?;
    Ok(open.iter().try_for_each(|act| acts::prove_open(act, &events)))
}

/// Whether an act is being done, by a process that lives.
pub(super) fn is_under_way(connection: &Connection, act: &str) -> rusqlite::Result<bool> {
    let process = connection
        .prepare_cached(PROCESS)?
        .query_row([act], |row| row.get::<_, String>(0))
        .optional()?;
    Ok(process.is_some_and(|process| Process::is_alive(&process)))
}
