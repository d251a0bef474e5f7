//! Commands, and the end of those that a process left open when it died.

use std::sync::Arc;

use countersign_gateway::approval::board;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::command::closed_later;
use countersign_gateway::audit::event::{Actor, ApprovalState, Draft, EventType};
use countersign_gateway::audit::kept::Kept;
use countersign_gateway::audit::opened::{self, Opened};
use countersign_gateway::audit::{
    Asked, Change, CloseCommand, RecordError, StoredCommand, StoredEnd, StoredOpen, chain, kept,
};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CorrelationId, CredentialId, IdSource, RequestId};

use serde_json::Value;

use super::{Cells, sessions};
use crate::kept::{Found, is_told, request_of};
use crate::proved::Proved;

/// A command as its row tells of it, which whoever writes the database may have changed.
pub(crate) struct Known {
    pub(crate) correlation_id: CorrelationId,
    stored: StoredCommand,
}

impl Known {
    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.stored.end.is_some()
    }

    /// An open one, with what the events of its opening vouch for.
    pub(crate) fn vouched_open(self, owner: &CredentialId, openings: &[String]) -> StoredCommand {
        self.stored.vouched(owner, openings)
    }

    /// One that has ended, where the event of its end tells of what is kept of it.
    pub(crate) fn vouched_end(self, owner: &CredentialId, closings: &[Found]) -> Result<StoredCommand, Unvouched> {
        let Self { correlation_id, stored } = self;
        let is_told = stored.end.as_ref().is_some_and(|end| {
            let row = Kept {
                owner: owner.as_str(),
                request_id: stored.request_id.as_str(),
                digest: &stored.digest,
                correlation_id: correlation_id.as_str(),
                result: &end.result,
                stdout: &end.stdout,
                stderr: &end.stderr,
            };
            is_told(&row, closings)
        });
        if is_told { Ok(stored) } else { Err(Unvouched) }
    }
}

/// What is kept of a command is not what the event of its end tells of: nothing of it is given out.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("what is kept of this command is not what the record tells of its end; `audit verify` tells more")]
pub(crate) struct Unvouched;

impl From<Unvouched> for RecordError {
    fn from(unvouched: Unvouched) -> Self {
        Self::Unavailable(unvouched.to_string())
    }
}

/// A row of `digest, opened_at_ms, result, stdout, stderr, correlation_id, abandoned`.
pub(crate) fn command<R: Cells>(row: &R, request_id: &RequestId) -> Result<Known, R::Error> {
    let end = match row.any_text(2)? {
        Some(result) => Some(StoredEnd {
            result,
            stdout: row.any_bytes(3)?.unwrap_or_default(),
            stderr: row.any_bytes(4)?.unwrap_or_default(),
        }),
        None => None,
    };
    let correlation_id = CorrelationId::trusted(row.text(5)?);
    let stored = StoredCommand {
        request_id: request_id.clone(),
        digest: row.text(0)?,
        opened_at: row.time(1)?,
        open: match (&end, row.any_text(6)?) {
            (None, Some(abandoned)) => Some(StoredOpen {
                correlation_id: correlation_id.clone(),
                abandoned,
            }),
            (Some(_), _) | (None, None) => None,
        },
        end,
    };
    Ok(Known { correlation_id, stored })
}

/// The columns that [`orphan`] reads, in its order.
pub(crate) const ORPHAN_COLUMNS: &str = "owner, request_id, digest, correlation_id, opened_at_ms, abandoned, \
     session_id, rpc_id, rpc_digest";

pub(crate) fn orphan<R: Cells>(row: &R) -> Result<Orphan, R::Error> {
    Ok(Orphan {
        owner: CredentialId::trusted(row.text(0)?),
        request_id: RequestId::trusted(row.text(1)?),
        digest: row.text(2)?,
        correlation_id: CorrelationId::trusted(row.text(3)?),
        opened_at: row.time(4)?,
        abandoned: Some(row.text(5)?),
        asked: sessions::read_asked(row, 6)?,
        question: None,
    })
}

/// A command that its process left open.
pub(crate) struct Orphan {
    pub(crate) owner: CredentialId,
    pub(crate) request_id: RequestId,
    pub(crate) digest: String,
    pub(crate) correlation_id: CorrelationId,
    pub(crate) opened_at: Timestamp,
    /// None where no event tells of such a command.
    pub(crate) abandoned: Option<String>,
    pub(crate) asked: Option<Asked>,
    /// The last question about it.
    pub(crate) question: Option<ApprovalRequest>,
}

/// The events that say what an orphan may be closed with.
pub(crate) const VOUCHING: [&str; 6] = [
    EventType::CommandReceived.as_str(),
    EventType::CommandCompleted.as_str(),
    EventType::ApprovalRequested.as_str(),
    EventType::ApprovalDenied.as_str(),
    EventType::ApprovalExpired.as_str(),
    EventType::ApprovalWithdrawn.as_str(),
];

impl Orphan {
    /// Under which its events stand.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &str> {
        let question = self.question.as_ref().map(|it| it.correlation_id.as_str());
        std::iter::once(self.correlation_id.as_str()).chain(question)
    }

    /// Holds what it is to be closed with, and how its question was answered, against events that were proved.
    pub(crate) fn vouch(&mut self, events: &[Proved]) {
        let question = self.question.take();
        self.question = question.and_then(|question| self.vouched_question(question, events));
        let of_call = |event: &&Proved| event.correlation_id == self.correlation_id.as_str();
        let has_ended = events
            .iter()
            .filter(of_call)
            .any(|event| kept::is_closing(&event.event_type) && request_of(&event.payload) == self.request_id.as_str());
        let openings = events.iter().filter(of_call);
        let openings = openings.filter(|event| opened::is_opening(&event.event_type) && !has_ended);
        let row = Opened {
            owner: self.owner.as_str(),
            request_id: self.request_id.as_str(),
            digest: &self.digest,
            correlation_id: self.correlation_id.as_str(),
            opened_at: self.opened_at,
            abandoned: self.abandoned.as_deref().unwrap_or_default(),
        };
        self.abandoned = row.closed_with(openings.map(|event| event.payload.as_str()));
    }

    /// The question as its events tell of it; none where they do not.
    fn vouched_question(&self, mut question: ApprovalRequest, events: &[Proved]) -> Option<ApprovalRequest> {
        let told_by = match question.state() {
            ApprovalState::Pending => EventType::ApprovalRequested,
            ApprovalState::Denied => EventType::ApprovalDenied,
            ApprovalState::Expired => EventType::ApprovalExpired,
            ApprovalState::Withdrawn => EventType::ApprovalWithdrawn,
            // Nothing is said of these.
            ApprovalState::Approved | ApprovalState::AutoApproved | ApprovalState::Applied | ApprovalState::Failed => {
                return None;
            }
        };
        let told = events.iter().find_map(|event| {
            let told: Value = serde_json::from_str(&event.payload).ok()?;
            let is_of_it = event.event_type == told_by.as_str()
                && event.correlation_id == question.correlation_id.as_str()
                && told["approval_id"] == question.id.as_str()
                && told["request_id"] == self.request_id.as_str();
            is_of_it.then_some(told)
        })?;
        let said = |name: &str| told[name].as_str().map(str::to_owned);
        question.decided_by = said("decided_by");
        question.decision_reason = said("reason");
        Some(question)
    }

    /// None where the record does not know of it: nothing is signed that somebody put there.
    pub(crate) fn closing(self, now: Timestamp, ids: &IdSource) -> Option<Change> {
        let Some(abandoned) = &self.abandoned else {
            tracing::error!(
                request_id = self.request_id.as_str(),
                "an open command lies in the record that no event tells of; it is not closed, and `audit verify` tells of it"
            );
            return None;
        };
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
        let mut payload = closed_later(abandoned, &event_id, now, refusal.as_ref());
        let close = CloseCommand {
            owner: self.owner,
            request_id: self.request_id,
            digest: self.digest,
            opened_at: self.opened_at,
            correlation_id: self.correlation_id.clone(),
            result: chain::canonical(&payload),
            stdout: Arc::default(),
            stderr: Arc::default(),
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
        Some(change)
    }
}
