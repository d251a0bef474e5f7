//! An answer that lets an act go must be in the record, not only in the table of questions: whoever can write that table
//! could otherwise answer for a person.
//!
//! The event of a question, and that of every yes, has a digest of the question as it lay there. An act is let go where the
//! question was asked like this, as many people as it asks for said yes to it like this, not too long ago, and nothing was done by
//! their answer before. A store hands in the events that it can prove ([`super::Approvals::told_of`]); what they come to is
//! decided here.

use serde_json::Value;

use super::question::Answered;
use super::request::{ApprovalRequest, is_same_voice};
use crate::audit::chain::{Hash, canonical};
use crate::audit::event::{ApprovalState, EventType};
use crate::clock::Timestamp;
use crate::error::ErrorCode;
use crate::ids::CredentialId;
use crate::limits;

/// The name of the digest in events.
pub const FIELD: &str = "question_digest";

/// The events that say what became of a question.
pub const TELLING: [EventType; 8] = [
    EventType::ApprovalRequested,
    EventType::ApprovalApproved,
    EventType::ApprovalDenied,
    EventType::ApprovalExpired,
    EventType::ApprovalWithdrawn,
    EventType::ActRequested,
    EventType::ActApplied,
    EventType::ActFailed,
];

/// Those by which it lets nothing go.
const TAKEN_BACK: [EventType; 3] = [
    EventType::ApprovalDenied,
    EventType::ApprovalExpired,
    EventType::ApprovalWithdrawn,
];

/// An event that names a question, and that was proved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    pub event_id: String,
    pub event_type: String,
    pub at: Timestamp,
    pub payload: String,
}

/// For what an answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// To let an act go.
    First,
    /// To tell again that it was let go.
    Again,
}

/// A yes that the record proves, for one act.
#[derive(Debug)]
pub struct ProvedYes {
    // INVARIANT: its events were proved, and it is bound to the act that it was asked for.
    approval: Box<ApprovalRequest>,
    answer: Option<Answered>,
}

impl ProvedYes {
    pub fn approval(&self) -> &ApprovalRequest {
        &self.approval
    }

    /// What was chosen, of a question that has answers.
    pub fn answer(&self) -> Option<&Answered> {
        self.answer.as_ref()
    }

    pub fn into_approval(self) -> Box<ApprovalRequest> {
        self.approval
    }
}

/// Why an answer lets nothing go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unproved {
    #[error("this approval is for another act, or is none")]
    Another,
    #[error("the record does not prove that this was asked like this")]
    NotAsked,
    #[error("the record does not prove that this was approved")]
    NotApproved,
    #[error("the record tells that this was settled otherwise")]
    Otherwise,
    #[error("the record tells that this approval was used")]
    Used,
    #[error("this was approved too long ago")]
    TooOld,
}

/// What a question is, but for what becomes of it.
pub fn digest(question: &ApprovalRequest) -> Hash {
    let whole = serde_json::json!({
        "approval_id": question.id.as_str(),
        "type": question.kind.as_str(),
        "owner": question.owner.as_str(),
        "requested_by": question.requested_by,
        "job_id": question.job_id,
        "run_id": question.run_id,
        "tool": question.tool,
        "request_id": question.command.as_ref().map(|command| command.request_id.as_str()),
        "binding": question.binding,
        "arguments_digest": question.arguments_digest,
        "policy_digest": question.policy_digest,
        "details": question.details,
        "approval_mode": question.approval_mode.map(|mode| mode.as_str()),
        "quorum": question.quorum,
        "expires_at": question.expires_at.map(|at| at.to_string()),
        "automatic": question.automatic,
    });
    Hash::of_parts("countersign question 1\n", [canonical(&whole).as_bytes()])
}

/// Holds a question that was answered with yes against the events that name it.
pub(super) fn prove(
    approval: &ApprovalRequest,
    binding: &str,
    wanted: Use,
    events: &[Told],
    now: Timestamp,
) -> Result<ProvedYes, Unproved> {
    let stands = match wanted {
        Use::First => approval.state() == ApprovalState::Approved && !approval.automatic,
        Use::Again => approval.state() == ApprovalState::Applied,
    };
    if !stands || approval.binding != binding {
        return Err(Unproved::Another);
    }
    let story = Story::read(approval, events);
    let settled = if approval.automatic {
        story.automatic.clone().ok_or(Unproved::NotApproved)?
    } else {
        story.agreed(approval)?
    };
    if wanted == Use::First && story.is_used() {
        return Err(Unproved::Used);
    }
    if now.since(settled.at) >= limits::APPROVAL_USABLE_FOR {
        return Err(Unproved::TooOld);
    }
    let mut approval = Box::new(approval.clone());
    if !approval.automatic {
        approval.decided_by = Some(settled.names.join(", "));
    }
    let answer = settled.answer;
    Ok(ProvedYes { approval, answer })
}

/// What the events tell of one question.
#[derive(Default)]
struct Story {
    is_asked: bool,
    /// Every yes, oldest first.
    voices: Vec<Yes>,
    /// What the whitelist answered.
    automatic: Option<Yes>,
    /// A no, or that it was taken back.
    is_over: bool,
    /// What was done by it, by the event that opened it; none for a command.
    uses: Vec<Option<String>>,
}

#[derive(Clone)]
struct Yes {
    credential: CredentialId,
    name: String,
    /// All whose yes counted at that moment.
    names: Vec<String>,
    agreed: u64,
    at: Timestamp,
    answer: Option<Answered>,
}

impl Story {
    fn read(approval: &ApprovalRequest, events: &[Told]) -> Self {
        let (own, mut story) = (digest(approval).to_hex(), Self::default());
        let mut taken_back = Vec::new();
        for event in events {
            let told: Value = serde_json::from_str(&event.payload).unwrap_or_default();
            if told["approval_id"] != approval.id.as_str() {
                continue;
            }
            let is = |kind: EventType| event.event_type == kind.as_str();
            let is_of_it = told[FIELD] == own;
            if is(EventType::ApprovalRequested) {
                story.is_asked |= is_of_it;
            } else if is(EventType::ApprovalApproved) && is_of_it {
                let yes = Yes::read(&told, event.at);
                if told["automatic"] == true {
                    story.automatic = Some(yes);
                } else {
                    story.voices.push(yes);
                }
            } else if TAKEN_BACK.into_iter().any(is) {
                story.is_over = true;
            } else if is(EventType::ActRequested) {
                story.uses.push(Some(event.event_id.clone()));
            } else if is(EventType::ActApplied) || is(EventType::ActFailed) {
                match told["act_id"].as_str() {
                    // Its opening was written and nobody heard of it, so nothing was done.
                    Some(act) if told["code"] == ErrorCode::AuditUnavailable.name() => taken_back.push(act.to_owned()),
                    Some(_) => {}
                    None => story.uses.push(None),
                }
            }
        }
        let was_done = |act: &Option<String>| act.as_ref().is_none_or(|act| !taken_back.contains(act));
        story.uses.retain(was_done);
        story
    }

    fn is_used(&self) -> bool {
        !self.uses.is_empty()
    }

    /// The yes that settled it. Each of those that it counts must be in the record itself.
    fn agreed(&self, approval: &ApprovalRequest) -> Result<Yes, Unproved> {
        if !self.is_asked {
            return Err(Unproved::NotAsked);
        }
        if self.is_over {
            return Err(Unproved::Otherwise);
        }
        let quorum = approval.quorum.max(1);
        let settled = self.voices.iter().rfind(|yes| yes.agreed >= quorum.into());
        let settled = settled.ok_or(Unproved::NotApproved)?;
        let mut people: Vec<&Yes> = Vec::new();
        for yes in self.voices.iter().filter(|yes| settled.names.contains(&yes.name)) {
            if !people.iter().any(|other| yes.is_same_voice(other)) {
                people.push(yes);
            }
        }
        if people.len() < usize::try_from(quorum).unwrap_or(usize::MAX) {
            return Err(Unproved::NotApproved);
        }
        Ok(settled.clone())
    }
}

impl Yes {
    fn read(told: &Value, at: Timestamp) -> Self {
        let text = |name: &str| told[name].as_str().unwrap_or_default();
        let names = told["agreed_by"].as_array().into_iter().flatten();
        Self {
            credential: CredentialId::trusted(text("credential")),
            name: text("decided_by").to_owned(),
            names: names.filter_map(Value::as_str).map(str::to_owned).collect(),
            agreed: told["agreed"].as_u64().unwrap_or(0),
            at,
            answer: Answered::from_json(&told["answer"]),
        }
    }

    fn is_same_voice(&self, other: &Self) -> bool {
        is_same_voice((&self.credential, &self.name), (&other.credential, &other.name))
    }
}
