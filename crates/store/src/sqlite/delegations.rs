//! Acts of services outside in the database: written with their events, each change over the version it was
//! made from.

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::delegation::{Delegation, DelegationChange, Delegations, Finished, Outcome};
use countersign_gateway::ids::{CorrelationId, CredentialId, DelegationId};
use rusqlite::{Params, Row, params};

use super::ledger::Ledger;
use super::readers::Readers;
use super::{SqliteStore, trouble};

const COLUMNS: &str = "delegation_id, version, correlation_id, owner, binding, tool, created_at_ms, deadline_ms, \
     outcome, detail, ended_at_ms, told";
const INSERT: &str = "INSERT INTO delegated_executions (delegation_id, version, correlation_id, owner, binding, tool,
         created_at_ms, deadline_ms, outcome, detail, ended_at_ms, told)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING";
/// What has ended stays as it ended.
const ADVANCE: &str =
    "UPDATE delegated_executions SET version = ?3, outcome = ?4, detail = ?5, ended_at_ms = ?6, told = ?7
     WHERE delegation_id = ?1 AND version = ?2 AND (outcome IS NULL OR outcome = ?4)";

impl Ledger<'_> {
    /// False when it does not stand where the change expects it.
    pub(super) fn write_delegation(&self, change: &DelegationChange) -> rusqlite::Result<bool> {
        let DelegationChange { delegation, from } = change;
        let (outcome, detail, ended_at) = ending(delegation);
        let version = delegation.version.cast_signed();
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
            ])?,
            Some(from) => self.statement(ADVANCE)?.execute(params![
                delegation.id.as_str(),
                from.cast_signed(),
                version,
                outcome,
                detail,
                ended_at,
                delegation.told,
            ])?,
        };
        Ok(written == 1)
    }
}

fn ending(delegation: &Delegation) -> (Option<&'static str>, Option<String>, Option<i64>) {
    let Some(Finished { outcome, at }) = &delegation.end else {
        return (None, None, None);
    };
    let detail = match outcome {
        Outcome::Applied(result) => Some(result.to_string()),
        Outcome::Failed(reason) => Some(reason.clone()),
        Outcome::TimedOut => None,
    };
    (Some(outcome.word()), detail, Some(at.as_millis()))
}

impl Readers {
    fn delegations(&self, rest: &str, values: impl Params) -> Result<Vec<Delegation>, RecordError> {
        let sql = format!("SELECT {COLUMNS} FROM delegated_executions {rest}");
        self.read(|connection| connection.prepare_cached(&sql)?.query_map(values, read)?.collect())
            .map_err(|error| trouble::unavailable(&error))
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Delegation> {
    let text = |index: usize| row.get::<_, String>(index);
    let (outcome, detail) = (row.get::<_, Option<String>>(8)?, row.get::<_, Option<String>>(9)?);
    let detail = detail.unwrap_or_default();
    let outcome = outcome.map(|word| match word.as_str() {
        "applied" => Outcome::Applied(serde_json::from_str(&detail).unwrap_or_default()),
        "failed" => Outcome::Failed(detail),
        _ => Outcome::TimedOut,
    });
    let ended_at = row.get::<_, Option<i64>>(10)?.map(Timestamp::from_millis);
    Ok(Delegation {
        id: DelegationId::trusted(text(0)?),
        version: row.get::<_, i64>(1)?.cast_unsigned(),
        correlation_id: CorrelationId::trusted(text(2)?),
        owner: CredentialId::trusted(text(3)?),
        binding: text(4)?,
        tool: text(5)?,
        created_at: Timestamp::from_millis(row.get(6)?),
        deadline: Timestamp::from_millis(row.get(7)?),
        end: outcome.zip(ended_at).map(|(outcome, at)| Finished { outcome, at }),
        told: row.get(11)?,
    })
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
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            readers.delegations(rest, params![now.as_millis(), limit])
        })
    }
}
