//! S1's ApprovalRequest with what S4 adds: one question to a person, and what became of it.
//!
//! The value is whole: a step makes the next value, and a store keeps it only if nobody took another
//! step meanwhile ([`ApprovalChange`]). What is shown of an act stands in `details`, redacted.

use serde_json::{Map, Value, json};

use super::ballot::{Ballot, Choice, Vote};
use super::lifecycle::{self, ApprovalStatus, ApprovalStep, IllegalApprovalStep};
use super::question::Answered;
use crate::audit::event::ApprovalState;
use crate::clock::Timestamp;
use crate::ids::{ApprovalId, CorrelationId, CredentialId, RequestId};
use crate::policy::approvers::ApprovalMode;

/// What is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApprovalType {
    ExecCommand,
    ApplyPatch,
    ToolCall,
    Question,
}

impl ApprovalType {
    pub const ALL: [Self; 4] = [Self::ExecCommand, Self::ApplyPatch, Self::ToolCall, Self::Question];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExecCommand => "exec-command",
            Self::ApplyPatch => "apply-patch",
            Self::ToolCall => "tool-call",
            Self::Question => "question",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The question and its fate.
#[derive(Clone, PartialEq, Debug)]
pub struct ApprovalRequest {
    pub id: ApprovalId,
    /// Counts its changes. A change is written only over the version it was made from.
    pub version: u64,
    pub kind: ApprovalType,
    // INVARIANT: changed by `step` and `with` only, along the arrows of `lifecycle`.
    state: ApprovalState,
    /// The whitelist answered for a person.
    pub automatic: bool,
    pub correlation_id: CorrelationId,
    pub job_id: Option<String>,
    pub run_id: Option<String>,
    /// The credential that asked. It never decides.
    pub owner: CredentialId,
    /// What the record calls whoever asked.
    pub requested_by: String,
    pub tool: String,
    /// The command that is about, and whether it waits to begin or asks to run once more.
    pub command: Option<AskedFor>,
    /// What the answer is good for, and for nothing else (see [`super::binding`]).
    pub binding: String,
    pub arguments_digest: String,
    pub policy_digest: String,
    /// What a person must see to decide.
    pub details: Map<String, Value>,
    /// Who may answer; none said, whoever may decide at all.
    pub approval_mode: Option<ApprovalMode>,
    /// How many people must agree.
    pub quorum: u32,
    pub votes: Vec<Vote>,
    pub created_at: Timestamp,
    /// When silence becomes a no; none waits for ever.
    pub expires_at: Option<Timestamp>,
    pub resolved_at: Option<Timestamp>,
    pub decided_by: Option<String>,
    pub decision_reason: Option<String>,
    /// What is left of the act's time; its clock stands still until the answer.
    pub remaining_ms: u64,
}

/// The command a question is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedFor {
    pub request_id: RequestId,
    /// The command has not begun and lies in the store until the answer; else it ran once already and its
    /// process waits.
    pub parks: bool,
}

impl ApprovalRequest {
    /// A question about nothing yet; the asking station fills in the rest.
    pub fn new(
        id: ApprovalId,
        kind: ApprovalType,
        correlation_id: CorrelationId,
        owner: CredentialId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            version: 1,
            kind,
            state: ApprovalState::Pending,
            automatic: false,
            correlation_id,
            job_id: None,
            run_id: None,
            requested_by: owner.as_str().to_owned(),
            owner,
            tool: String::new(),
            command: None,
            binding: String::new(),
            arguments_digest: String::new(),
            policy_digest: String::new(),
            details: Map::new(),
            approval_mode: None,
            quorum: 1,
            votes: Vec::new(),
            created_at,
            expires_at: None,
            resolved_at: None,
            decided_by: None,
            decision_reason: None,
            remaining_ms: 0,
        }
    }

    /// What was never a question: the whitelist answered, and the act is let go with this very change.
    #[must_use]
    pub fn answered_by_whitelist(mut self, reason: &str) -> Self {
        self.automatic = true;
        // Nothing waits for it.
        if let Some(command) = &mut self.command {
            command.parks = false;
        }
        self.decided_by = Some("whitelist".to_owned());
        self.decision_reason = Some(reason.to_owned());
        self.resolved_at = Some(self.created_at);
        self.state = lifecycle::transition(ApprovalState::AutoApproved, ApprovalStep::Apply)
            .expect("what is auto-approved may be let go");
        self
    }

    /// S1's status.
    pub fn status(&self) -> ApprovalStatus {
        match lifecycle::status(self.state) {
            ApprovalStatus::Approved if self.automatic => ApprovalStatus::AutoApproved,
            status => status,
        }
    }

    /// A question as a store kept it.
    pub fn restored(state: ApprovalState, request: Self) -> Self {
        Self { state, ..request }
    }

    pub fn state(&self) -> ApprovalState {
        self.state
    }

    pub fn is_pending(&self) -> bool {
        self.state == ApprovalState::Pending
    }

    /// Whether silence has become a no.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.is_pending() && self.expires_at.is_some_and(|at| at <= now)
    }

    pub fn decision(&self) -> Option<Choice> {
        match self.state {
            ApprovalState::Pending => None,
            ApprovalState::Approved | ApprovalState::AutoApproved | ApprovalState::Applied | ApprovalState::Failed => {
                Some(Choice::Allow)
            }
            ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => Some(Choice::Deny),
        }
    }

    pub fn waiting_ms(&self) -> Option<u64> {
        let resolved = self.resolved_at?;
        u64::try_from(resolved.since(self.created_at).as_millis()).ok()
    }

    /// The question after a step that is nobody's answer.
    pub fn step(mut self, step: ApprovalStep, now: Timestamp) -> Result<Self, IllegalApprovalStep> {
        self.state = lifecycle::transition(self.state, step)?;
        self.version += 1;
        match step {
            ApprovalStep::Approve | ApprovalStep::Deny | ApprovalStep::Expire | ApprovalStep::Withdraw => {
                self.resolved_at = Some(now.max(self.created_at));
            }
            ApprovalStep::Apply | ApprovalStep::Fail => {}
        }
        Ok(self)
    }

    /// The question after an answer. One no settles it; yes settles it when enough people said so. Who
    /// said something before is not counted again. What was chosen has been held against the offer.
    pub fn with(
        mut self,
        ballot: &Ballot,
        answer: Option<Answered>,
        now: Timestamp,
    ) -> Result<Self, IllegalApprovalStep> {
        let step = match ballot.choice {
            Choice::Allow => ApprovalStep::Approve,
            Choice::Deny => ApprovalStep::Deny,
        };
        lifecycle::transition(self.state, step)?;
        if !self.has_voted(&ballot.by.credential, &ballot.by.actor.id) {
            self.votes.push(Vote {
                credential: ballot.by.credential.clone(),
                by: ballot.by.actor.id.clone(),
                choice: ballot.choice,
                reason: ballot.reason.clone(),
                at: now,
                answer,
            });
        }
        let agreed = self.votes.iter().filter(|vote| vote.choice == Choice::Allow).count();
        let enough = usize::try_from(self.quorum).unwrap_or(usize::MAX);
        if ballot.choice == Choice::Allow && agreed < enough {
            self.version += 1;
            return Ok(self);
        }
        let names: Vec<&str> = match ballot.choice {
            Choice::Allow => self.votes.iter().map(|vote| vote.by.as_str()).collect(),
            Choice::Deny => vec![ballot.by.actor.id.as_str()],
        };
        self.decided_by = Some(names.join(", "));
        self.decision_reason = Some(ballot.reason.clone());
        self.step(step, now)
    }

    /// Whether somebody has said yes or no already. A person has one voice: by another token of the same name, or at
    /// the terminal under that name, they are no second one.
    pub fn has_voted(&self, credential: &CredentialId, name: &str) -> bool {
        let is_same = |vote: &Vote| is_same_voice((&vote.credential, &vote.by), (credential, name));
        self.votes.iter().any(is_same)
    }

    /// What was chosen, of a question that is answered.
    pub fn answer(&self) -> Option<&Answered> {
        let chosen = self.votes.iter().rev().find_map(|vote| vote.answer.as_ref());
        chosen.filter(|_| self.decision() == Some(Choice::Allow))
    }

    /// S1's fields under S1's names, with S4's beside them.
    pub fn to_json(&self) -> Value {
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let mut shown = json!({
            "requestId": self.id.as_str(),
            "jobId": self.job_id,
            "type": self.kind.as_str(),
            "createdAt": self.created_at.to_string(),
            "resolvedAt": time(self.resolved_at),
            "status": self.status().as_str(),
            "details": self.details,
            "decision": self.decision().map(Choice::as_str),
            "decisionReason": self.decision_reason,
            "waitingDuration": self.waiting_ms(),
            "approval_state": self.state.as_str(),
            "correlation_id": self.correlation_id.as_str(),
            "run_id": self.run_id,
            "requested_by": self.requested_by,
            "decided_by": self.decided_by,
            "arguments_digest": self.arguments_digest,
            "policy_digest": self.policy_digest,
            "tool": self.tool,
            "command_request_id": self.command.as_ref().map(|command| command.request_id.as_str()),
            "expires_at": time(self.expires_at),
            "approval_mode": self.approval_mode.map(ApprovalMode::as_str),
            "quorum": self.quorum,
            "votes": self.votes_json(),
        });
        if let (Some(Value::Object(answer)), Value::Object(fields)) = (self.answer().map(Answered::to_json), &mut shown)
        {
            fields.extend(answer);
        }
        // What has nothing to say is left out; S1 marks these as optional.
        if let Value::Object(fields) = &mut shown {
            fields.retain(|_, value| !value.is_null());
        }
        shown
    }

    pub fn votes_json(&self) -> Value {
        self.votes.iter().map(Vote::to_json).collect()
    }

    /// The votes out of what a store kept; what cannot be read is nobody's vote.
    pub fn votes_from(text: &str) -> Vec<Vote> {
        let kept: Value = serde_json::from_str(text).unwrap_or_default();
        kept.as_array()
            .into_iter()
            .flatten()
            .filter_map(Vote::from_json)
            .collect()
    }
}

/// Whether two who said something, by credential and name, are one.
pub(super) fn is_same_voice(one: (&CredentialId, &str), other: (&CredentialId, &str)) -> bool {
    let is_person = |credential: &CredentialId| credential.is_token() || credential.is_user();
    one.0 == other.0 || (one.1 == other.1 && is_person(one.0) && is_person(other.0))
}

/// An approval's row after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct ApprovalChange {
    pub approval: ApprovalRequest,
    /// The version that it was made from; none for a new question. Refused over any other.
    pub from: Option<u64>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::approval::ballot::{Decider, OwnRequests};

    pub(crate) fn sample(quorum: u32) -> ApprovalRequest {
        ApprovalRequest {
            id: ApprovalId::trusted("a1"),
            version: 1,
            kind: ApprovalType::ExecCommand,
            state: ApprovalState::Pending,
            automatic: false,
            correlation_id: CorrelationId::trusted("c"),
            job_id: None,
            run_id: None,
            owner: CredentialId::trusted("local"),
            requested_by: "local".to_owned(),
            tool: "execute_process".to_owned(),
            command: None,
            binding: "b".to_owned(),
            arguments_digest: "d".to_owned(),
            policy_digest: "p".to_owned(),
            details: Map::new(),
            approval_mode: None,
            quorum,
            votes: Vec::new(),
            created_at: Timestamp::from_millis(1_000),
            expires_at: Some(Timestamp::from_millis(5_000)),
            resolved_at: None,
            decided_by: None,
            decision_reason: None,
            remaining_ms: 30_000,
        }
    }

    fn says(user: &str, choice: Choice) -> Ballot {
        Ballot {
            choice,
            by: Decider::person(user, OwnRequests::Refused),
            reason: format!("{user} thinks so"),
            answer: None,
        }
    }

    #[test]
    fn a_decision_is_set_with_its_time_and_how_long_it_took() {
        let now = Timestamp::from_millis(4_000);
        let decided = sample(1).with(&says("ana", Choice::Allow), None, now).unwrap();
        let shown = decided.to_json();
        assert_eq!(
            (&shown["status"], &shown["decision"], &shown["decided_by"]),
            (&json!("approved"), &json!("allow"), &json!("ana"))
        );
        assert_eq!((&shown["waitingDuration"], decided.version), (&json!(3_000), 2));
        assert_eq!(shown["resolvedAt"], "1970-01-01T00:00:04.000Z");
        assert!(sample(1).to_json().get("decision").is_none());
        let late = decided.with(&says("ben", Choice::Deny), None, now);
        assert!(late.is_err(), "the first decision stands");
    }

    #[test]
    fn a_quorum_counts_people_not_answers() {
        let now = Timestamp::from_millis(2_000);
        let yes = |user| says(user, Choice::Allow);
        let once = sample(2).with(&yes("ana"), None, now).unwrap();
        assert!(once.is_pending());
        let twice = once.clone().with(&yes("ana"), None, now).unwrap();
        assert!(twice.is_pending() && twice.votes.len() == 1, "one person is one voice");
        let both = twice.with(&yes("ben"), None, now).unwrap();
        assert_eq!(both.state(), ApprovalState::Approved);
        assert_eq!(both.decided_by.as_deref(), Some("ana, ben"));
        let no = once.with(&says("ben", Choice::Deny), None, now).unwrap();
        assert_eq!(
            (no.state(), no.decided_by.as_deref()),
            (ApprovalState::Denied, Some("ben"))
        );
    }

    #[test]
    fn one_person_with_several_credentials_is_one_voice() {
        let now = Timestamp::from_millis(2_000);
        let by = |credential: &str, name: &str| {
            let mut ballot = says(name, Choice::Allow);
            ballot.by.credential = CredentialId::trusted(credential);
            ballot
        };
        let once = sample(2).with(&by("user:ana", "ana"), None, now).unwrap();
        for credential in ["tok_1", "tok_2"] {
            let again = once.clone().with(&by(credential, "ana"), None, now).unwrap();
            assert!(again.is_pending() && again.votes.len() == 1, "{credential}");
        }
        // Whoever calls back only says a name, and takes nobody's voice by it.
        let claimed = sample(2).with(&by("callback", "ana"), None, now).unwrap();
        let both = claimed.with(&by("user:ana", "ana"), None, now).unwrap();
        assert_eq!(both.state(), ApprovalState::Approved);
        let others = once.with(&by("tok_3", "ben"), None, now).unwrap();
        assert_eq!(others.state(), ApprovalState::Approved);
    }

    #[test]
    fn silence_becomes_a_no_at_its_moment() {
        let at = Timestamp::from_millis;
        assert!(!sample(1).is_due(at(4_999)));
        assert!(sample(1).is_due(at(5_000)));
        let expired = sample(1).step(ApprovalStep::Expire, at(5_000)).unwrap();
        assert_eq!(
            (expired.decision(), expired.is_due(at(9_000))),
            (Some(Choice::Deny), false)
        );
        assert_eq!(expired.to_json()["status"], "denied");
    }

    #[test]
    fn what_the_whitelist_answered_is_auto_approved_and_let_go_at_once() {
        let shown = sample(1).answered_by_whitelist("read-only").to_json();
        assert_eq!(
            (&shown["status"], &shown["approval_state"], &shown["decision"]),
            (&json!("auto-approved"), &json!("applied"), &json!("allow"))
        );
        assert_eq!(
            (&shown["decisionReason"], &shown["waitingDuration"]),
            (&json!("read-only"), &json!(0))
        );
    }

    #[test]
    fn votes_read_back() {
        let voted = sample(2)
            .with(&says("ana", Choice::Allow), None, Timestamp::from_millis(7))
            .unwrap();
        assert_eq!(
            ApprovalRequest::votes_from(&voted.votes_json().to_string()),
            voted.votes
        );
        assert!(ApprovalRequest::votes_from("nonsense").is_empty());
    }
}
