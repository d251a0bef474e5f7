//! What the record says of questions: the events of every step, and what whoever asked is told.

use serde_json::{Value, json};

use super::super::ballot::{Ballot, Choice};
use super::super::lifecycle::{ApprovalStep, recorded_as};
use super::super::proof;
use super::super::request::{ApprovalChange, ApprovalRequest};
use super::Board;
use crate::audit::event::{Actor, ApprovalState, Draft, EventType};
use crate::audit::payload::{Object, Payload};
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal};
use crate::ids::IdSource;

impl Board {
    /// A new question with the events that open it, to be committed together with what waits for it.
    pub fn opening(&self, approval: ApprovalRequest, by: &Actor) -> Opening {
        let details = Value::Object(approval.details.clone());
        let requested = told(&approval)
            .text("type", approval.kind.as_str())
            .part("details", &Payload::from(&details))
            .text("arguments_digest", &approval.arguments_digest)
            .text("policy_digest", &approval.policy_digest)
            .text(proof::FIELD, &proof::digest(&approval).to_hex())
            .whole("quorum", approval.quorum.into())
            .optional_text("approval_mode", approval.approval_mode.map(|mode| mode.as_str()))
            .optional_text("expires_at", approval.expires_at.map(|at| at.to_string()).as_deref())
            .finish();
        let events = vec![
            self.draft(&approval, EventType::ApprovalRequested, by.clone(), requested),
            self.timer(&approval, EventType::WaitPaused),
        ];
        Opening {
            events,
            change: ApprovalChange { approval, from: None },
        }
    }

    /// Lets an approved act go, in the transaction that dispatches it.
    pub fn applying(&self, approval: &ApprovalRequest, by: &Actor) -> Opening {
        self.using(approval, ApprovalStep::Apply, by, None)
    }

    /// Gives up an approval whose act did not begin.
    pub fn failing(&self, approval: &ApprovalRequest, by: &Actor, reason: &str) -> Opening {
        self.using(approval, ApprovalStep::Fail, by, Some(reason))
    }

    fn using(&self, approval: &ApprovalRequest, step: ApprovalStep, by: &Actor, reason: Option<&str>) -> Opening {
        let from = Some(approval.version);
        let (events, approval) = self.stepped(approval.clone(), step, by.clone(), reason);
        Opening {
            events,
            change: ApprovalChange { approval, from },
        }
    }

    pub(super) fn stepped(
        &self,
        approval: ApprovalRequest,
        step: ApprovalStep,
        by: Actor,
        reason: Option<&str>,
    ) -> (Vec<Draft>, ApprovalRequest) {
        let now = self.parts.clock.now();
        let mut next = approval
            .step(step, now)
            .expect("the board takes only steps that follow from the state it read");
        match step {
            ApprovalStep::Expire | ApprovalStep::Withdraw => {
                next.decided_by = Some(by.id.clone());
                next.decision_reason = reason.map(|reason| self.clean(reason));
            }
            ApprovalStep::Approve | ApprovalStep::Deny | ApprovalStep::Apply | ApprovalStep::Fail => {}
        }
        let mut payload = told(&next);
        if let Some(reason) = reason {
            payload = payload.text("reason", &self.clean(reason));
        }
        let mut events = vec![self.draft(&next, recorded_as(step), by, payload.finish())];
        match step {
            ApprovalStep::Expire | ApprovalStep::Withdraw => events.push(self.timer(&next, EventType::WaitResumed)),
            ApprovalStep::Approve | ApprovalStep::Deny | ApprovalStep::Apply | ApprovalStep::Fail => {}
        }
        (events, next)
    }

    /// The events of an answer.
    pub(super) fn decision(&self, next: &ApprovalRequest, ballot: &Ballot) -> Vec<Draft> {
        let kind = match ballot.choice {
            Choice::Allow => EventType::ApprovalApproved,
            Choice::Deny => EventType::ApprovalDenied,
        };
        let agreed = || next.votes.iter().filter(|vote| vote.choice == Choice::Allow);
        let payload = told(next)
            .text("decision", ballot.choice.as_str())
            .text("decided_by", &ballot.by.actor.id)
            .text("credential", ballot.by.credential.as_str())
            .text("reason", &ballot.reason)
            .flag("self_approved", next.owner == ballot.by.credential)
            .whole("agreed", i64::try_from(agreed().count()).unwrap_or(i64::MAX))
            .texts("agreed_by", agreed().map(|vote| vote.by.as_str()))
            .text("arguments_digest", &next.arguments_digest)
            .text("policy_digest", &next.policy_digest)
            .text(proof::FIELD, &proof::digest(next).to_hex())
            .whole("quorum", next.quorum.into());
        let given = next
            .votes
            .iter()
            .rev()
            .find(|vote| vote.credential == ballot.by.credential);
        let payload = match given.and_then(|vote| vote.answer.as_ref()) {
            Some(answer) => payload.part("answer", &Payload::from(&answer.to_json())).finish(),
            None => payload.finish(),
        };
        let mut events = vec![self.draft(next, kind, ballot.by.actor.clone(), payload)];
        if !next.is_pending() {
            events.push(self.timer(next, EventType::WaitResumed));
        }
        events
    }

    /// The act's clock stands still while somebody thinks, and goes on with what was left.
    fn timer(&self, approval: &ApprovalRequest, kind: EventType) -> Draft {
        let remaining = i64::try_from(approval.remaining_ms).unwrap_or(i64::MAX);
        let mut payload = told(approval)
            .text("wait_state", "mcp")
            .whole("remaining_ms", remaining);
        if let (EventType::WaitResumed, Some(waited)) = (kind, approval.waiting_ms()) {
            payload = payload.whole("waited_ms", i64::try_from(waited).unwrap_or(i64::MAX));
        }
        self.draft(approval, kind, Actor::system("timer"), payload.finish())
    }

    fn draft(&self, approval: &ApprovalRequest, kind: EventType, by: Actor, payload: Payload) -> Draft {
        let (now, id) = (self.parts.clock.now(), self.parts.ids.event());
        Draft::new(id, now, approval.correlation_id.clone(), by, kind, payload).in_state(approval.state())
    }
}

/// A step of a question that is written with something else.
pub struct Opening {
    pub events: Vec<Draft>,
    pub change: ApprovalChange,
}

/// A question whose asker died and cannot come back to it, withdrawn; none when it is settled.
pub fn orphaned(approval: ApprovalRequest, now: Timestamp, ids: &IdSource) -> Option<(Draft, ApprovalChange)> {
    let from = Some(approval.version);
    let mut approval = approval.step(ApprovalStep::Withdraw, now).ok()?;
    let (by, reason) = ("sweeper", "the server stopped while this was asked");
    approval.decided_by = Some(by.to_owned());
    approval.decision_reason = Some(reason.to_owned());
    let payload = told(&approval).text("reason", reason).finish();
    let correlation = approval.correlation_id.clone();
    let kind = recorded_as(ApprovalStep::Withdraw);
    let event = Draft::new(ids.event(), now, correlation, Actor::system(by), kind, payload).in_state(approval.state());
    Some((event, ApprovalChange { approval, from }))
}

/// What every event of a question says.
fn told(approval: &ApprovalRequest) -> Object {
    let command = approval.command.as_ref().map(|command| command.request_id.as_str());
    Object::new()
        .text("approval_id", approval.id.as_str())
        .text("tool", &approval.tool)
        .text("requested_by", &approval.requested_by)
        .optional_text("request_id", command)
        .optional_text("run_id", approval.run_id.as_deref())
        .optional_text("job_id", approval.job_id.as_deref())
}

/// What a question came to, for whoever asked; none while it is open or approved.
pub fn refusal(approval: &ApprovalRequest) -> Option<Refusal> {
    let reason = approval.decision_reason.as_deref().unwrap_or("no reason was given");
    let refusal = match approval.state() {
        ApprovalState::Pending | ApprovalState::Approved | ApprovalState::AutoApproved | ApprovalState::Applied => {
            return None;
        }
        ApprovalState::Denied => {
            // Nobody in particular, where it was no person.
            let person = approval.decided_by.as_deref().filter(|by| *by != "nobody");
            let message = person.map_or_else(
                || reason.to_owned(),
                |by| format!("`{by}` did not approve this: {reason}"),
            );
            Refusal::new(ErrorCode::ApprovalDenied, message)
        }
        ApprovalState::Expired => Refusal::new(
            ErrorCode::ApprovalExpired,
            "nobody approved this in time; call again to ask anew",
        ),
        ApprovalState::Withdrawn | ApprovalState::Failed => {
            Refusal::new(ErrorCode::Cancelled, format!("the question was withdrawn: {reason}"))
        }
    };
    let rule = approval.details.get("rule").cloned().unwrap_or_else(|| json!(null));
    Some(refusal.with("approval_id", approval.id.as_str()).with("rule", rule))
}
