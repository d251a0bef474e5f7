//! Approvals in the database: written with their events, each change over the version it was made from.

use countersign_gateway::approval::proof::Told;
use countersign_gateway::approval::request::{ApprovalChange, ApprovalRequest};
use countersign_gateway::approval::{ApprovalFilter, Approvals};
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{ApprovalId, CorrelationId, CredentialId, RequestId};
use countersign_gateway::policy::approvers::ApprovalMode;
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use super::ledger::Ledger;
use super::readers::Readers;
use super::{SqliteStore, proving, trouble};
use crate::proved::Proved;
use crate::rows::approvals::{COLUMNS, approval};
use crate::rows::{at_most, one_of};

const INSERT: &str = "INSERT INTO approvals (approval_id, version, type, state, correlation_id, job_id, run_id, owner,
         requested_by, tool, request_id, parks, binding, arguments_digest, policy_digest, details, quorum, votes,
         created_at_ms, expires_at_ms, resolved_at_ms, decided_by, decision_reason, remaining_ms, automatic,
         approval_mode)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
         ?23, ?24, ?25, ?26) ON CONFLICT DO NOTHING";
const ADVANCE: &str = "UPDATE approvals SET version = ?3, state = ?4, votes = ?5, resolved_at_ms = ?6, decided_by = ?7,
         decision_reason = ?8
     WHERE approval_id = ?1 AND version = ?2";
/// Whoever lets an act go works on its command from then on, also if another process opened it.
const TAKE_OVER: &str = "UPDATE open_commands SET process = ?3
     WHERE owner = ?1 AND request_id = ?2";

impl Ledger<'_> {
    /// False when the approval does not stand where the change expects it, when the same question is in
    /// force already, or when the command whose act it lets go has ended.
    pub(super) fn write_approval(&self, change: &ApprovalChange) -> rusqlite::Result<bool> {
        let ApprovalChange { approval, from } = change;
        let state = approval.state();
        let written = match from {
            None => self.insert(approval)?,
            Some(from) => self.statement(ADVANCE)?.execute(params![
                approval.id.as_str(),
                from.cast_signed(),
                approval.version.cast_signed(),
                state.as_str(),
                approval.votes_json().to_string(),
                approval.resolved_at.map(Timestamp::as_millis),
                approval.decided_by,
                approval.decision_reason,
            ])?,
        };
        match &approval.command {
            Some(command) if from.is_some() && written == 1 && state == ApprovalState::Applied => {
                let key = params![approval.owner.as_str(), command.request_id.as_str(), self.process()];
                Ok(self.statement(TAKE_OVER)?.execute(key)? == 1)
            }
            Some(_) | None => Ok(written == 1),
        }
    }

    fn insert(&self, approval: &ApprovalRequest) -> rusqlite::Result<usize> {
        let command = approval.command.as_ref();
        self.statement(INSERT)?.execute(params![
            approval.id.as_str(),
            approval.version.cast_signed(),
            approval.kind.as_str(),
            approval.state().as_str(),
            approval.correlation_id.as_str(),
            approval.job_id,
            approval.run_id,
            approval.owner.as_str(),
            approval.requested_by,
            approval.tool,
            command.map(|command| command.request_id.as_str()),
            command.is_some_and(|command| command.parks),
            approval.binding,
            approval.arguments_digest,
            approval.policy_digest,
            serde_json::Value::Object(approval.details.clone()).to_string(),
            approval.quorum,
            approval.votes_json().to_string(),
            approval.created_at.as_millis(),
            approval.expires_at.map(Timestamp::as_millis),
            approval.resolved_at.map(Timestamp::as_millis),
            approval.decided_by,
            approval.decision_reason,
            i64::try_from(approval.remaining_ms).unwrap_or(i64::MAX),
            approval.automatic,
            approval.approval_mode.map(ApprovalMode::as_str),
        ])
    }
}

impl Readers {
    fn one_approval(&self, condition: &str, values: impl Params) -> Result<Option<ApprovalRequest>, RecordError> {
        let sql = format!("SELECT {COLUMNS} FROM approvals WHERE {condition}");
        self.read(|connection| {
            connection
                .prepare_cached(&sql)?
                .query_row(values, |row| approval(row))
                .optional()
        })
        .map_err(|error| trouble::unavailable(&error))
    }

    fn approvals(&self, rest: &str, values: impl Params) -> Result<Vec<ApprovalRequest>, RecordError> {
        self.read(|connection| select(connection, rest, values))
            .map_err(|error| trouble::unavailable(&error))
    }

    fn listed_approvals(&self, filter: &ApprovalFilter) -> Result<Vec<ApprovalRequest>, RecordError> {
        let states = one_of("state", filter.states.iter().map(|state| state.as_str()));
        let automatic = match filter.automatic {
            None => "",
            Some(true) => " AND automatic = 1",
            Some(false) => " AND automatic = 0",
        };
        let rest = format!("WHERE {states}{automatic} ORDER BY created_at_ms DESC, rowid DESC LIMIT ?1");
        let mut found = self.approvals(&rest, [at_most(filter.limit)])?;
        found.reverse();
        Ok(found)
    }
}

impl Approvals for SqliteStore {
    fn find(&self, id: &ApprovalId) -> Pending<Result<Option<ApprovalRequest>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| readers.one_approval("approval_id = ?1", [id.as_str()]))
    }

    fn beginning_with(&self, prefix: &str, limit: usize) -> Pending<Result<Vec<ApprovalRequest>, RecordError>> {
        let prefix = prefix.to_owned();
        self.read(move |readers| {
            // Nothing that begins so sorts behind the last character there is.
            let behind = format!("{prefix}\u{10ffff}");
            readers.approvals(
                "WHERE approval_id >= ?1 AND approval_id < ?2 ORDER BY created_at_ms, rowid LIMIT ?3",
                params![prefix, behind, at_most(limit)],
            )
        })
    }

    fn held(&self, owner: &CredentialId, binding: &str) -> Pending<Result<Option<ApprovalRequest>, RecordError>> {
        let (owner, binding) = (owner.clone(), binding.to_owned());
        self.read(move |readers| {
            readers.one_approval(
                "owner = ?1 AND binding = ?2 AND parks = 1 AND state NOT IN ('applied', 'failed')
                 AND EXISTS (SELECT 1 FROM open_commands WHERE open_commands.owner = approvals.owner
                     AND open_commands.request_id = approvals.request_id)
                 ORDER BY created_at_ms DESC, rowid DESC LIMIT 1",
                [owner.as_str(), &binding],
            )
        })
    }

    fn bound(&self, owner: &CredentialId, binding: &str) -> Pending<Result<Option<ApprovalRequest>, RecordError>> {
        let (owner, binding) = (owner.clone(), binding.to_owned());
        self.read(move |readers| {
            readers.one_approval(
                "owner = ?1 AND binding = ?2 AND request_id IS NULL ORDER BY created_at_ms DESC, rowid DESC LIMIT 1",
                [owner.as_str(), &binding],
            )
        })
    }

    fn of_command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Pending<Result<Option<ApprovalRequest>, RecordError>> {
        let (owner, request_id) = (owner.clone(), request_id.clone());
        self.read(move |readers| {
            readers.one_approval(
                "owner = ?1 AND request_id = ?2 ORDER BY created_at_ms DESC, rowid DESC LIMIT 1",
                [owner.as_str(), request_id.as_str()],
            )
        })
    }

    fn of_correlation(&self, id: &CorrelationId) -> Pending<Result<Vec<ApprovalRequest>, RecordError>> {
        let id = id.clone();
        // Through the events, which are found by this id; approvals are many and asked for so seldom.
        self.read(move |readers| {
            readers.approvals(
                "WHERE approval_id IN (SELECT payload ->> '$.approval_id' FROM flow_events
                     WHERE correlation_id = ?1 AND event_type = 'approval.requested')
                 ORDER BY created_at_ms, rowid",
                [id.as_str()],
            )
        })
    }

    fn list(&self, filter: ApprovalFilter) -> Pending<Result<Vec<ApprovalRequest>, RecordError>> {
        self.read(move |readers| readers.listed_approvals(&filter))
    }

    fn open_of(&self, owner: &CredentialId) -> Pending<Result<usize, RecordError>> {
        let owner = owner.clone();
        self.read(move |readers| {
            let sql = "SELECT count(*) FROM approvals WHERE state = 'pending' AND owner = ?1";
            let count = readers.read(|connection| {
                connection
                    .prepare_cached(sql)?
                    .query_row([owner.as_str()], |row| row.get::<_, i64>(0))
            });
            let count = count.map_err(|error| trouble::unavailable(&error))?;
            Ok(usize::try_from(count).unwrap_or(usize::MAX))
        })
    }

    fn told_of(&self, question: &ApprovalRequest) -> Pending<Result<Vec<Told>, RecordError>> {
        let (question, site) = (question.clone(), self.site.clone());
        self.read(move |readers| {
            let proved = readers.read(|connection| proving::events_of_question(connection, &site, &question));
            let proved = proved.map_err(|error| trouble::unavailable(&error))?;
            Ok(proved.into_iter().filter_map(Proved::told).collect())
        })
    }

    fn due(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<ApprovalRequest>, RecordError>> {
        self.read(move |readers| {
            readers.approvals(
                "WHERE state = 'pending' AND expires_at_ms IS NOT NULL AND expires_at_ms <= ?1
                 ORDER BY expires_at_ms LIMIT ?2",
                [now.as_millis(), at_most(limit)],
            )
        })
    }
}

pub(super) fn select(
    connection: &Connection,
    rest: &str,
    values: impl Params,
) -> rusqlite::Result<Vec<ApprovalRequest>> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM approvals {rest}"))?
        .query_map(values, |row| approval(row))?
        .collect()
}
