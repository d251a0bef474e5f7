//! The board: where questions lie until somebody decides.
//!
//! A question is opened by the spine, in one transaction with the command that waits for it; everything
//! that happens to it afterwards happens here, each step in one transaction with its events and only over
//! the version it was made from. So of two who decide at once one is first, and the other is told what was
//! decided. Whoever waits looks at the store again when the bell rings, and from time to time without it.

mod callbacks;
mod telling;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use super::ballot::{Ballot, Choice, OwnRequests, Vote};
use super::lifecycle::ApprovalStep;
use super::proof::{self, ProvedYes, Unproved, Use};
use super::question::{self, AnswerError, Given};
use super::request::{ApprovalChange, ApprovalRequest};
use super::{ApprovalFilter, Approvals, Approver, Bell};
use crate::audit::event::{Actor, ApprovalState, Draft};
use crate::audit::redact::Redactor;
use crate::audit::{Change, Record, RecordError};
use crate::clock::Clock;
use crate::ids::{ApprovalId, CorrelationId, CredentialId, IdSource, RequestId};
use crate::limits;
use crate::policy::approvers::ApprovalMode;
use crate::session::credential::Credentials;

pub use telling::{Opening, orphaned, refusal};

/// How often a process that listens looks for questions whose time is over.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

pub struct Board {
    parts: BoardParts,
    /// The tokens that people vote with.
    credentials: OnceLock<Arc<dyn Credentials>>,
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
    #[error("a client decides only what was asked through it")]
    AnothersRequest,
    #[error("this is the owner's to decide; an operator has to")]
    OwnersOnly,
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Why an answer lets nothing go.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VouchError {
    #[error(transparent)]
    Unproved(#[from] Unproved),
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

impl Board {
    pub fn new(parts: BoardParts) -> Arc<Self> {
        Arc::new(Self {
            parts,
            credentials: OnceLock::new(),
            heard: watch::Sender::new(0),
        })
    }

    /// Brings the tokens that people vote with, once.
    pub fn recognise(&self, credentials: Arc<dyn Credentials>) {
        let first = self.credentials.set(credentials).is_ok();
        assert!(first, "a board knows one set of tokens");
    }

    /// Listens for other processes, and expires what nobody answered, for as long as this process lives.
    pub fn listen(self: &Arc<Self>) {
        let board = self.clone();
        tokio::spawn(async move {
            // Not at once: whoever looks at a question expires it, and starting has better things to do.
            let first = tokio::time::Instant::now() + EXPIRE_EVERY;
            let mut rounds = tokio::time::interval_at(first, EXPIRE_EVERY);
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

    /// The newest question about this very act, which is no command, whatever became of it.
    pub async fn bound(&self, owner: &CredentialId, binding: &str) -> Result<Option<ApprovalRequest>, RecordError> {
        self.parts.approvals.bound(owner, binding).await
    }

    /// Whether a credential may ask one more question. A board that an agent can fill is one that nobody
    /// reads.
    pub async fn has_room(&self, owner: &CredentialId) -> Result<bool, RecordError> {
        Ok(self.parts.approvals.open_of(owner).await? < limits::QUESTIONS_OPEN_MAX)
    }

    /// All questions of one story, oldest first.
    pub async fn of_correlation(&self, id: &CorrelationId) -> Result<Vec<ApprovalRequest>, RecordError> {
        self.parts.approvals.of_correlation(id).await
    }

    pub async fn of_command(
        &self,
        owner: &CredentialId,
        request_id: &RequestId,
    ) -> Result<Option<ApprovalRequest>, RecordError> {
        self.parts.approvals.of_command(owner, request_id).await
    }

    /// Shows a question that was just opened to everybody.
    pub fn show(self: &Arc<Self>, approval: &ApprovalRequest) {
        self.announce();
        self.ask(approval);
    }

    /// Asks this process's approvers what was open before it began: whoever asked them then may be gone,
    /// and its connection with it.
    pub async fn ask_again(self: &Arc<Self>) -> Result<(), RecordError> {
        if self.parts.approvers.is_empty() {
            return Ok(());
        }
        let open = ApprovalFilter {
            limit: limits::QUESTIONS_ASKED_AGAIN_MAX,
            ..ApprovalFilter::open()
        };
        for approval in self.list(open).await? {
            self.ask(&approval);
        }
        Ok(())
    }

    fn ask(self: &Arc<Self>, approval: &ApprovalRequest) {
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
            let mut approval = found.ok_or_else(|| DecideError::Unknown(id.clone()))?;
            if approval.is_due(self.parts.clock.now()) {
                self.expire(approval).await?;
                continue;
            }
            if !approval.is_pending() {
                return Ok(Decided::Before(approval));
            }
            match (approval.owner == ballot.by.credential, ballot.by.own_requests) {
                (true, OwnRequests::Refused) => return Err(DecideError::OwnRequest),
                (false, OwnRequests::Only) => return Err(DecideError::AnothersRequest),
                (true, OwnRequests::Allowed | OwnRequests::Only)
                | (false, OwnRequests::Refused | OwnRequests::Allowed) => {}
            }
            if ballot.by.is_delegate && approval.approval_mode == Some(ApprovalMode::Owner) {
                return Err(DecideError::OwnersOnly);
            }
            approval.votes.retain(|vote| self.counts(vote));
            if ballot.choice == Choice::Allow && approval.has_voted(&ballot.by.credential, &ballot.by.actor.id) {
                return Ok(Decided::Counted(approval));
            }
            let answer = question::check(&approval, ballot.choice, ballot.answer.as_ref())?;
            let from = approval.version;
            let Ok(next) = approval.with(&ballot, answer, self.parts.clock.now()) else {
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

    /// Proves by the record that a question was answered with yes, for the act that this binding is of.
    pub async fn vouch(&self, approval: &ApprovalRequest, binding: &str, wanted: Use) -> Result<ProvedYes, VouchError> {
        let events = self.parts.approvals.told_of(approval).await?;
        let proved = proof::prove(approval, binding, wanted, &events, self.parts.clock.now());
        if let Err(error) = &proved {
            tracing::error!(
                approval = approval.id.as_str(),
                "a question stands as approved and lets nothing go: {error}; `audit verify` tells more"
            );
        }
        Ok(proved?)
    }

    /// Whether a yes of a quorum still counts. Whose token was revoked agrees to nothing any more; they may say so again
    /// with another.
    fn counts(&self, vote: &Vote) -> bool {
        let known = self.credentials.get().filter(|_| vote.credential.is_token());
        // What was said a moment ago may have come with a token that is too new to be known here.
        let is_new = || self.parts.clock.now().since(vote.at) < limits::TOKENS_KNOWN_WITHIN;
        known.is_none_or(|credentials| credentials.is_in_force(&vote.credential) || is_new())
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

    fn presentable(&self, ballot: Ballot) -> Ballot {
        let answer = ballot.answer.map(|given| match given {
            Given::Option(option) => Given::Option(option),
            Given::Custom(words) => Given::Custom(self.parts.redactor.redact_text(&words).into_owned()),
        });
        Ballot {
            reason: self.clean(&ballot.reason),
            answer,
            ..ballot
        }
    }

    fn clean(&self, reason: &str) -> String {
        let clean = self.parts.redactor.redact_text(reason);
        clean.chars().take(limits::REASON_CHARS_MAX).collect()
    }
}
