//! The board: where questions lie until somebody decides.
//!
//! A question is opened by the spine, in one transaction with the command that waits for it; everything
//! that happens to it afterwards happens here, each step in one transaction with its events and only over
//! the version it was made from. So of two who decide at once one is first, and the other is told what was
//! decided. Whoever waits looks at the store again when the bell rings, and from time to time without it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::lifecycle::{ApprovalStep, recorded_as};
use super::request::{ApprovalChange, ApprovalRequest, Ballot, Choice, Decider, OwnRequests};
use super::{ApprovalFilter, Approvals, Approver, Bell};
use crate::audit::event::{Actor, ApprovalState, Draft, EventType};
use crate::audit::payload::{Object, Payload};
use crate::audit::redact::Redactor;
use crate::audit::{Change, Record, RecordError};
use crate::clock::{Clock, Timestamp};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{ApprovalId, CredentialId, IdSource, RequestId};
use crate::limits;
use crate::session::{Caller, Role};

/// How often a process that listens looks for questions whose time is over.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

pub struct Board {
    parts: BoardParts,
    /// Counts what was heard, here or from other processes.
    heard: watch::Sender<u64>,
}

/// What a board is made of.
pub struct BoardParts {
    pub record: Arc<dyn Record>,
    pub approvals: Arc<dyn Approvals>,
    pub bell: Arc<dyn Bell>,
    /// Whom this process asks by itself.
    pub approvers: Vec<Arc<dyn Approver>>,
    pub redactor: Redactor,
    pub clock: Clock,
    pub ids: IdSource,
}

/// What came of an answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Decided {
    /// It settled the question.
    Now(ApprovalRequest),
    /// It was counted; more people must agree.
    Counted(ApprovalRequest),
    /// The question was settled before; that stands.
    Before(ApprovalRequest),
}

impl Decided {
    pub fn approval(&self) -> &ApprovalRequest {
        match self {
            Self::Now(approval) | Self::Counted(approval) | Self::Before(approval) => approval,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecideError {
    #[error("there is no approval `{0}`")]
    Unknown(ApprovalId),
    #[error("nobody decides what they asked for themselves; another person has to")]
    OwnRequest,
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Why an id, or its beginning, names no one question.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NamingError {
    #[error("there is no approval `{0}`; `approvals list --all` shows what there is")]
    Unknown(String),
    #[error("`{text}` is the beginning of several approvals: {}; say more of it", .ids.join(", "))]
    Ambiguous { text: String, ids: Vec<String> },
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Decider {
    /// A caller who may decide: an operator or an approver, never an agent or a viewer.
    pub fn of(caller: &Caller) -> Result<Self, Refusal> {
        match caller.role {
            Role::Operator | Role::Approver => Ok(Self {
                credential: caller.credential.clone(),
                actor: caller.actor.clone(),
                own_requests: OwnRequests::Refused,
            }),
            Role::Agent | Role::Viewer => Err(Refusal::new(
                ErrorCode::Forbidden,
                format!("a token of role `{}` does not decide", caller.role.as_str()),
            )),
        }
    }
}

impl Board {
    pub fn new(parts: BoardParts) -> Arc<Self> {
        Arc::new(Self {
            parts,
            heard: watch::Sender::new(0),
        })
    }

    /// Listens for other processes, and expires what nobody answered, for as long as this process lives.
    pub fn listen(self: &Arc<Self>) {
        let board = self.clone();
        tokio::spawn(async move {
            let mut rounds = tokio::time::interval(EXPIRE_EVERY);
            rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = board.parts.bell.rung() => board.heard.send_modify(|count| *count += 1),
                    _ = rounds.tick() => {
                        if let Err(error) = board.expire_due().await {
                            tracing::warn!(%error, "questions whose time is over could not be expired");
                        }
                    }
                }
            }
        });
    }

    /// Changes whenever something may have been asked or decided, for whoever shows the board.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.heard.subscribe()
    }

    /// Tells everybody, here and elsewhere, to look again.
    pub fn announce(&self) {
        self.heard.send_modify(|count| *count += 1);
        self.parts.bell.ring();
    }

    pub async fn find(&self, id: &ApprovalId) -> Result<Option<ApprovalRequest>, RecordError> {
        self.parts.approvals.find(id).await
    }

    /// The question that an id, or the beginning of one, names; one that is open before others.
    pub async fn named(&self, text: &str) -> Result<ApprovalRequest, NamingError> {
        let known = || text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if text.is_empty() || !known() {
            return Err(NamingError::Unknown(text.to_owned()));
        }
        let mut found = self.parts.approvals.beginning_with(text, 8).await?;
        if let Some(exact) = found.iter().position(|approval| approval.id.as_str() == text) {
            return Ok(found.swap_remove(exact));
        }
        if found.len() > 1 && found.iter().filter(|approval| approval.is_pending()).count() == 1 {
            found.retain(ApprovalRequest::is_pending);
        }
        match (found.pop(), found.is_empty()) {
            (None, _) => Err(NamingError::Unknown(text.to_owned())),
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                let ids = found.iter().chain([&last]).map(|approval| approval.id.to_string());
                Err(NamingError::Ambiguous {
                    text: text.to_owned(),
                    ids: ids.collect(),
                })
            }
        }
    }

    /// The latest that are asked for; the newest last.
    pub async fn list(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRequest>, RecordError> {
        self.expire_due().await?;
        self.parts.approvals.list(filter).await
    }

    /// The question that a call with this binding waits for, wherever it was asked. An approval that lay
    /// unused for too long no longer counts.
    pub async fn held(&self, owner: &CredentialId, binding: &str) -> Result<Option<ApprovalRequest>, RecordError> {
        let Some(held) = self.parts.approvals.held(owner, binding).await? else {
            return Ok(None);
        };
        let now = self.parts.clock.now();
        let given = held.resolved_at.unwrap_or(now);
        if held.state() == ApprovalState::Approved && now.since(given) >= limits::APPROVAL_USABLE_FOR {
            self.withdraw(&held.id, &Actor::system("approvals"), "it was not used in time")
                .await?;
            return Ok(None);
        }
        Ok(Some(held))
    }

    /// Whether a credential may ask one more question. A board that an agent can fill is one that nobody
    /// reads.
    pub async fn has_room(&self, owner: &CredentialId) -> Result<bool, RecordError> {
        Ok(self.parts.approvals.open_of(owner).await? < limits::QUESTIONS_OPEN_MAX)
    }

    pub async fn of_command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Result<Option<ApprovalRequest>, RecordError> {
        self.parts.approvals.of_command(owner, request_id).await
    }

    /// A new question with the events that open it, to be committed together with what waits for it.
    pub fn opening(&self, approval: ApprovalRequest, by: &Actor) -> Opening {
        let details = Value::Object(approval.details.clone());
        let requested = told(&approval)
            .text("type", approval.kind.as_str())
            .part("details", &Payload::from(&details))
            .text("arguments_digest", &approval.arguments_digest)
            .text("policy_digest", &approval.policy_digest)
            .whole("quorum", approval.quorum.into())
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

    /// Shows a question that was just opened to everybody.
    pub fn show(self: &Arc<Self>, approval: &ApprovalRequest) {
        self.announce();
        for approver in &self.parts.approvers {
            let (board, approver, approval) = (self.clone(), approver.clone(), approval.clone());
            tokio::spawn(async move {
                let answer = tokio::select! {
                    answer = approver.ask(&approval) => answer,
                    _ = board.settled(&approval.id) => None,
                };
                if let Some(ballot) = answer
                    && let Err(error) = board.decide(&approval.id, ballot).await
                {
                    tracing::warn!(%error, "an answer could not be taken");
                }
            });
        }
    }

    /// Resolves once a question is open no longer.
    pub async fn settled(&self, id: &ApprovalId) -> ApprovalRequest {
        let mut heard = self.heard.subscribe();
        loop {
            heard.mark_unchanged();
            match self.parts.approvals.find(id).await {
                Ok(Some(approval)) if !approval.is_pending() => return approval,
                Ok(Some(approval)) if approval.is_due(self.parts.clock.now()) => {
                    if let Err(error) = self.expire(approval).await {
                        tracing::warn!(%error, "a question whose time is over could not be expired");
                    }
                }
                Ok(Some(_) | None) => {}
                Err(error) => tracing::warn!(%error, "a question cannot be looked at, trying again"),
            }
            // The bell is only the quick way; a look from time to time is enough.
            let _ = tokio::time::timeout(limits::DECISION_POLL, heard.changed()).await;
        }
    }

    /// Takes an answer. The first decision stands: a later one is told what it was.
    pub async fn decide(&self, id: &ApprovalId, ballot: Ballot) -> Result<Decided, DecideError> {
        let ballot = self.presentable(ballot);
        for _ in 0..limits::DECISION_TRIES_MAX {
            let found = self.parts.approvals.find(id).await?;
            let approval = found.ok_or_else(|| DecideError::Unknown(id.clone()))?;
            if approval.is_due(self.parts.clock.now()) {
                self.expire(approval).await?;
                continue;
            }
            if !approval.is_pending() {
                return Ok(Decided::Before(approval));
            }
            if approval.owner == ballot.by.credential && ballot.by.own_requests == OwnRequests::Refused {
                return Err(DecideError::OwnRequest);
            }
            if ballot.choice == Choice::Allow && approval.has_voted(&ballot.by.credential) {
                return Ok(Decided::Counted(approval));
            }
            let from = approval.version;
            let Ok(next) = approval.with(&ballot, self.parts.clock.now()) else {
                continue;
            };
            if !self.write(from, &next, self.decision(&next, &ballot)).await? {
                continue;
            }
            return Ok(if next.is_pending() {
                Decided::Counted(next)
            } else {
                Decided::Now(next)
            });
        }
        let crowd = "too many decide this at once; try again".to_owned();
        Err(RecordError::Unavailable(crowd).into())
    }

    /// Takes a question back, or gives up an approval that was not used. What is settled stays as it is.
    pub async fn withdraw(
        &self,
        id: &ApprovalId,
        by: &Actor,
        reason: &str,
    ) -> Result<Option<ApprovalRequest>, RecordError> {
        for _ in 0..limits::DECISION_TRIES_MAX {
            let Some(approval) = self.parts.approvals.find(id).await? else {
                return Ok(None);
            };
            let step = match approval.state() {
                ApprovalState::Pending => ApprovalStep::Withdraw,
                ApprovalState::Approved => ApprovalStep::Fail,
                ApprovalState::Denied
                | ApprovalState::Expired
                | ApprovalState::Withdrawn
                | ApprovalState::AutoApproved
                | ApprovalState::Applied
                | ApprovalState::Failed => return Ok(Some(approval)),
            };
            let from = approval.version;
            let (events, next) = self.stepped(approval, step, by.clone(), Some(reason));
            if self.write(from, &next, events).await? {
                return Ok(Some(next));
            }
        }
        Err(RecordError::Unavailable(
            "too many change this at once; try again".to_owned(),
        ))
    }

    /// Expires every question whose time is over; any process may.
    pub async fn expire_due(&self) -> Result<(), RecordError> {
        let now = self.parts.clock.now();
        for approval in self.parts.approvals.due(now, limits::APPROVALS_AT_ONCE).await? {
            self.expire(approval).await?;
        }
        Ok(())
    }

    async fn expire(&self, approval: ApprovalRequest) -> Result<(), RecordError> {
        let from = approval.version;
        let reason = "nobody answered in time";
        let (events, next) = self.stepped(approval, ApprovalStep::Expire, Actor::system("approvals"), Some(reason));
        // Somebody else may have been first, with this or with an answer.
        self.write(from, &next, events).await.map(drop)
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

    fn stepped(
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
    fn decision(&self, next: &ApprovalRequest, ballot: &Ballot) -> Vec<Draft> {
        let kind = match ballot.choice {
            Choice::Allow => EventType::ApprovalApproved,
            Choice::Deny => EventType::ApprovalDenied,
        };
        let agreed = next.votes.iter().filter(|vote| vote.choice == Choice::Allow).count();
        let payload = told(next)
            .text("decision", ballot.choice.as_str())
            .text("decided_by", &ballot.by.actor.id)
            .text("credential", ballot.by.credential.as_str())
            .text("reason", &ballot.reason)
            .flag("self_approved", next.owner == ballot.by.credential)
            .whole("agreed", i64::try_from(agreed).unwrap_or(i64::MAX))
            .whole("quorum", next.quorum.into())
            .finish();
        let mut events = vec![self.draft(next, kind, ballot.by.actor.clone(), payload)];
        if !next.is_pending() {
            events.push(self.timer(next, EventType::WaitResumed));
        }
        events
    }

    /// Writes a step with its events; false when somebody else took one first.
    async fn write(&self, from: u64, next: &ApprovalRequest, events: Vec<Draft>) -> Result<bool, RecordError> {
        let change = Change {
            events,
            approvals: vec![ApprovalChange {
                approval: next.clone(),
                from: Some(from),
            }],
            ..Change::default()
        };
        match self.parts.record.commit(change).await {
            Ok(_) => {
                self.announce();
                Ok(true)
            }
            Err(RecordError::ApprovalMoved) => Ok(false),
            Err(error) => Err(error),
        }
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

    fn presentable(&self, ballot: Ballot) -> Ballot {
        Ballot {
            reason: self.clean(&ballot.reason),
            ..ballot
        }
    }

    fn clean(&self, reason: &str) -> String {
        let clean = self.parts.redactor.redact_text(reason);
        clean.chars().take(limits::REASON_CHARS_MAX).collect()
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
