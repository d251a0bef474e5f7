//! Approvals.

use countersign_gateway::approval::request::{ApprovalRequest, ApprovalType, AskedFor};
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::ids::{ApprovalId, CorrelationId, CredentialId, RequestId};
use countersign_gateway::policy::approvers::ApprovalMode;

use super::Cells;

/// The columns that [`approval`] reads, in its order.
pub(crate) const COLUMNS: &str = "approval_id, version, type, state, correlation_id, job_id, run_id, owner, \
     requested_by, tool, request_id, parks, binding, arguments_digest, policy_digest, details, quorum, votes, \
     created_at_ms, expires_at_ms, resolved_at_ms, decided_by, decision_reason, remaining_ms, automatic, approval_mode";

pub(crate) fn approval<R: Cells>(row: &R) -> Result<ApprovalRequest, R::Error> {
    let kind = ApprovalType::parse(&row.text(2)?).unwrap_or(ApprovalType::ExecCommand);
    // The table allows no other words; one that is none could at least not be acted upon.
    let state = ApprovalState::parse(&row.text(3)?).unwrap_or(ApprovalState::Failed);
    let mut approval = ApprovalRequest::new(
        ApprovalId::trusted(row.text(0)?),
        kind,
        CorrelationId::trusted(row.text(4)?),
        CredentialId::trusted(row.text(7)?),
        row.time(18)?,
    );
    approval.version = row.count(1)?;
    approval.job_id = row.any_text(5)?;
    approval.run_id = row.any_text(6)?;
    approval.requested_by = row.text(8)?;
    approval.tool = row.text(9)?;
    approval.command = match row.any_text(10)? {
        Some(request_id) => Some(AskedFor {
            request_id: RequestId::trusted(request_id),
            parks: row.flag(11)?,
        }),
        None => None,
    };
    approval.binding = row.text(12)?;
    approval.arguments_digest = row.text(13)?;
    approval.policy_digest = row.text(14)?;
    approval.details = serde_json::from_str(&row.text(15)?).unwrap_or_default();
    approval.quorum = row.number(16)?;
    approval.votes = ApprovalRequest::votes_from(&row.text(17)?);
    approval.expires_at = row.any_time(19)?;
    approval.resolved_at = row.any_time(20)?;
    approval.decided_by = row.any_text(21)?;
    approval.decision_reason = row.any_text(22)?;
    approval.remaining_ms = row.count(23)?;
    approval.automatic = row.flag(24)?;
    // A word that is none of ours is the stricter.
    let mode = row.any_text(25)?;
    approval.approval_mode = mode.map(|word| ApprovalMode::parse(&word).unwrap_or(ApprovalMode::Owner));
    Ok(ApprovalRequest::restored(state, approval))
}
