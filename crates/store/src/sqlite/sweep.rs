//! The sweeper: closes commands that a process left open when it died.
//!
//! A command belongs to the process that opened it; while that one lives nobody touches it. Two
//! sweepers may run at once: closing is conditional on the command being open, so one event results.

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::{Change, CloseCommand, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, CredentialId, IdSource, RequestId};
use serde_json::{Map, Value};

use super::writer::Rule;
use super::{SqliteStore, WRITER_GONE, trouble};
use crate::process::Process;

impl SqliteStore {
    /// Closes abandoned commands, and sessions that lived in a process that is gone; gives the number of
    /// commands. Cheap when none is open. Blocks.
    pub fn sweep_abandoned(&self, now: Timestamp, ids: &IdSource) -> Result<usize, RecordError> {
        self.sweep_sessions(now, ids)?;
        let mut waiting = Vec::new();
        for orphan in self.orphans()? {
            let change = orphan.closing(now, ids);
            waiting.push(self.send(change, Rule::IfStillOpen)?);
        }
        let mut closed = 0;
        for outcome in waiting {
            let receipt = outcome
                .blocking_recv()
                .unwrap_or_else(|_| Err(RecordError::Unavailable(WRITER_GONE.to_owned())))?;
            closed += usize::from(receipt.last_event.is_some());
        }
        Ok(closed)
    }

    fn orphans(&self) -> Result<Vec<Orphan>, RecordError> {
        let open = self.readers.read(|connection| {
            connection
                .prepare(
                    "SELECT owner, request_id, digest, correlation_id, opened_at_ms, abandoned, process
                     FROM commands WHERE result IS NULL ORDER BY opened_at_ms LIMIT 500",
                )?
                .query_map([], |row| {
                    let orphan = Orphan {
                        owner: CredentialId::trusted(row.get::<_, String>(0)?),
                        request_id: RequestId::trusted(row.get::<_, String>(1)?),
                        digest: row.get(2)?,
                        correlation_id: CorrelationId::trusted(row.get::<_, String>(3)?),
                        opened_at: Timestamp::from_millis(row.get(4)?),
                        abandoned: row.get::<_, Option<_>>(5)?.unwrap_or_default(),
                    };
                    Ok((orphan, row.get::<_, Option<String>>(6)?.unwrap_or_default()))
                })?
                .collect::<rusqlite::Result<Vec<_>>>()
        });
        let open = open.map_err(|error| trouble::unavailable(&error))?;
        let dead = open.into_iter().filter(|(_, process)| !Process::is_alive(process));
        Ok(dead.map(|(orphan, _)| orphan).collect())
    }
}

struct Orphan {
    owner: CredentialId,
    request_id: RequestId,
    digest: String,
    correlation_id: CorrelationId,
    opened_at: Timestamp,
    abandoned: String,
}

impl Orphan {
    fn closing(self, now: Timestamp, ids: &IdSource) -> Change {
        let event_id = ids.event();
        let mut payload: Map<String, Value> = serde_json::from_str(&self.abandoned).unwrap_or_default();
        payload.insert("audit_id".to_owned(), event_id.as_str().into());
        payload.insert("timestamp".to_owned(), now.to_string().into());
        let payload = Value::Object(payload);
        let draft = Draft::new(
            event_id,
            now,
            self.correlation_id.clone(),
            Actor::system("sweeper"),
            EventType::CommandCompleted,
            &payload,
        );
        let close = CloseCommand {
            owner: self.owner,
            request_id: self.request_id,
            digest: self.digest,
            opened_at: self.opened_at,
            correlation_id: self.correlation_id,
            result: draft.payload().to_owned(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            asked: None,
        };
        Change {
            events: vec![draft],
            close: Some(close),
            ..Change::default()
        }
    }
}
