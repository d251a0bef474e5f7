//! The sweeper: closes commands that a process left open when it died.
//!
//! A command belongs to the process that opened it; while that one lives nobody touches it. Two
//! sweepers may run at once: closing is conditional on the command being open, so one event results.

use countersign_gateway::approval::board;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::command::closed_later;
use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::{Asked, Change, CloseCommand, RecordError, chain, kept};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, CredentialId, IdSource, RequestId};
use countersign_gateway::limits;
use rusqlite::Connection;

use super::{SqliteStore, WRITER_GONE, approvals, sessions, trouble};
use crate::process::Process;

impl SqliteStore {
    /// Closes abandoned commands, acts, and sessions that lived in a process that is gone; gives the number of
    /// commands. A command that waits for an answer is not abandoned: it lies here until somebody decides
    /// and its caller comes back. Cheap when none is open. Blocks.
    pub fn sweep_abandoned(&self, now: Timestamp, ids: &IdSource) -> Result<usize, RecordError> {
        self.sweep_sessions(now, ids)?;
        self.sweep_acts(now, ids)?;
        let mut waiting = Vec::new();
        for orphan in self.orphans(now)? {
            let change = orphan.closing(now, ids);
            waiting.push(self.send(change)?);
        }
        let mut closed = 0;
        for outcome in waiting {
            let receipt = outcome
                .blocking_recv()
                .unwrap_or_else(|_| Err(RecordError::Unavailable(WRITER_GONE.to_owned())));
            match receipt {
                Ok(receipt) => closed += usize::from(receipt.last_event.is_some()),
                // Decided at this moment; the next sweep sees what it came to.
                Err(RecordError::ApprovalMoved) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(closed)
    }

    fn orphans(&self, now: Timestamp) -> Result<Vec<Orphan>, RecordError> {
        // What was denied is told to the caller that comes back, who is given a day to do so.
        let unheard = now.as_millis() - i64::try_from(limits::APPROVAL_USABLE_FOR.as_millis()).unwrap_or(i64::MAX);
        let orphans = self.readers.read(|connection| {
            let owners = connection
                .prepare("SELECT DISTINCT process FROM open_commands")?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<String>>>()?;
            let mut orphans = Vec::new();
            for dead in owners.iter().filter(|process| !Process::is_alive(process)) {
                orphans.extend(left_by(connection, dead, unheard)?);
            }
            for orphan in &mut orphans {
                let rest = "WHERE owner = ?1 AND request_id = ?2 ORDER BY created_at_ms DESC, rowid DESC LIMIT 1";
                let key = [orphan.owner.as_str(), orphan.request_id.as_str()];
                orphan.question = approvals::select(connection, rest, key)?.pop();
            }
            Ok(orphans)
        });
        orphans.map_err(|error| trouble::unavailable(&error))
    }
}

/// What a process that is gone left open, but for what waits for an answer or for its caller to hear one.
fn left_by(connection: &Connection, process: &str, unheard: i64) -> rusqlite::Result<Vec<Orphan>> {
    connection
        .prepare(
            "SELECT owner, request_id, digest, correlation_id, opened_at_ms, abandoned, session_id, rpc_id, rpc_digest
             FROM open_commands WHERE process = ?1 AND NOT EXISTS
                 (SELECT 1 FROM approvals WHERE approvals.owner = open_commands.owner
                     AND approvals.request_id = open_commands.request_id AND parks = 1
                     AND (state IN ('pending', 'approved')
                         OR state IN ('denied', 'expired') AND resolved_at_ms > ?2))
             ORDER BY opened_at_ms LIMIT 500",
        )?
        .query_map((process, unheard), |row| {
            Ok(Orphan {
                owner: CredentialId::trusted(row.get::<_, String>(0)?),
                request_id: RequestId::trusted(row.get::<_, String>(1)?),
                digest: row.get(2)?,
                correlation_id: CorrelationId::trusted(row.get::<_, String>(3)?),
                opened_at: Timestamp::from_millis(row.get(4)?),
                abandoned: row.get(5)?,
                asked: sessions::read_asked(row, 6)?,
                question: None,
            })
        })?
        .collect()
}

/// A command that its process left open.
pub(crate) struct Orphan {
    pub(crate) owner: CredentialId,
    pub(crate) request_id: RequestId,
    pub(crate) digest: String,
    pub(crate) correlation_id: CorrelationId,
    pub(crate) opened_at: Timestamp,
    pub(crate) abandoned: String,
    pub(crate) asked: Option<Asked>,
    /// The last question about it.
    pub(crate) question: Option<ApprovalRequest>,
}

impl Orphan {
    pub(crate) fn closing(self, now: Timestamp, ids: &IdSource) -> Change {
        let mut change = Change {
            only_if_open: true,
            ..Change::default()
        };
        // One that was answered with no, and never came back to hear it, ends with that. A question that
        // is still open was asked by the process that died, about a second run.
        let refusal = self.question.as_ref().and_then(board::refusal);
        if let Some(open) = self.question.filter(ApprovalRequest::is_pending)
            && let Some((event, approval)) = board::orphaned(open, now, ids)
        {
            change.events.push(event);
            change.approvals.push(approval);
        }
        let event_id = ids.event();
        let mut payload = closed_later(&self.abandoned, &event_id, now, refusal.as_ref());
        let close = CloseCommand {
            owner: self.owner,
            request_id: self.request_id,
            digest: self.digest,
            opened_at: self.opened_at,
            correlation_id: self.correlation_id.clone(),
            result: chain::canonical(&payload),
            stdout: Vec::new(),
            stderr: Vec::new(),
            asked: self.asked,
        };
        payload[kept::FIELD] = close.kept().digest().to_hex().into();
        change.close = Some(close);
        change.events.push(Draft::new(
            event_id,
            now,
            self.correlation_id,
            Actor::system("sweeper"),
            EventType::CommandCompleted,
            &payload,
        ));
        change
    }
}
