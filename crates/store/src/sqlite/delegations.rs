//! Acts of services outside in the database: written with their events, each change over the version it was
//! made from.

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::delegation::{Delegation, DelegationChange, Delegations};
use countersign_gateway::ids::{CorrelationId, CredentialId, DelegationId};
use rusqlite::{Params, params};

use super::ledger::Ledger;
use super::readers::Readers;
use super::{SqliteStore, trouble};
use crate::rows::at_most;
use crate::rows::delegations::{COLUMNS, confided, delegation, ending};

const INSERT: &str = "INSERT INTO delegated_executions (delegation_id, version, correlation_id, owner, binding, tool,
         created_at_ms, deadline_ms, outcome, detail, ended_at_ms, told, confided)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT DO NOTHING";
/// What has ended stays as it ended.
const ADVANCE: &str =
    "UPDATE delegated_executions SET version = ?3, outcome = ?4, detail = ?5, ended_at_ms = ?6, told = ?7,
         confided = ?8
     WHERE delegation_id = ?1 AND version = ?2 AND (outcome IS NULL OR outcome = ?4)";

impl Ledger<'_> {
    /// False when it does not stand where the change expects it.
    pub(super) fn write_delegation(&self, change: &DelegationChange) -> rusqlite::Result<bool> {
        let DelegationChange { delegation, from } = change;
        let (outcome, detail, ended_at) = ending(delegation);
        let (version, confided) = (delegation.version.cast_signed(), confided(delegation));
        let written = match from {
            None => self.statement(INSERT)?.execute(params![
                delegation.id.as_str(),
                version,
                delegation.correlation_id.as_str(),
                delegation.owner.as_str(),
                delegation.binding,
                delegation.tool,
                delegation.created_at.as_millis(),
                delegation.deadline.as_millis(),
                outcome,
                detail,
                ended_at,
                delegation.told,
                confided,
            ])?,
            Some(from) => self.statement(ADVANCE)?.execute(params![
                delegation.id.as_str(),
                from.cast_signed(),
                version,
                outcome,
                detail,
                ended_at,
                delegation.told,
                confided,
            ])?,
        };
        Ok(written == 1)
    }
}

impl Readers {
    fn delegations(&self, rest: &str, values: impl Params) -> Result<Vec<Delegation>, RecordError> {
        let sql = format!("SELECT {COLUMNS} FROM delegated_executions {rest}");
        self.read(|connection| {
            connection
                .prepare_cached(&sql)?
                .query_map(values, |row| delegation(row))?
                .collect()
        })
        .map_err(|error| trouble::unavailable(&error))
    }
}

impl Delegations for SqliteStore {
    fn find_delegation(&self, id: &DelegationId) -> Pending<Result<Option<Delegation>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| Ok(readers.delegations("WHERE delegation_id = ?1", [id.as_str()])?.pop()))
    }

    fn delegations_of(&self, id: &CorrelationId) -> Pending<Result<Vec<Delegation>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| {
            let rest = "WHERE correlation_id = ?1 ORDER BY created_at_ms, delegation_id";
            readers.delegations(rest, [id.as_str()])
        })
    }

    fn untold(&self, owner: &CredentialId, binding: &str) -> Pending<Result<Option<Delegation>, RecordError>> {
        let (owner, binding) = (owner.clone(), binding.to_owned());
        self.read(move |readers| {
            let rest = "WHERE owner = ?1 AND binding = ?2 AND told = 0
                        ORDER BY created_at_ms DESC, delegation_id DESC LIMIT 1";
            Ok(readers.delegations(rest, [owner.as_str(), binding.as_str()])?.pop())
        })
    }

    fn overdue(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Delegation>, RecordError>> {
        self.read(move |readers| {
            let rest = "WHERE outcome IS NULL AND deadline_ms <= ?1 ORDER BY deadline_ms LIMIT ?2";
            readers.delegations(rest, [now.as_millis(), at_most(limit)])
        })
    }
}
