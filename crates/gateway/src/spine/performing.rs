//! An act that is no command, from its leave to its end in the record.
//!
//! It is opened before anything is done and ended before its caller hears. It goes on when the caller does
//! not wait for it any longer: half an act is worse than one that nobody hears of. A server that stops lets
//! acts under way end, for as long as it has time, and begins no more.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::Gateway;
use super::opening::unrecorded;
use crate::approval::ClearedAct;
use crate::approval::lifecycle::ApprovalStep;
use crate::approval::request::{ApprovalChange, ApprovalRequest};
use crate::audit::act::{ActChange, ActJournal, JournalParts, OpenAct};
use crate::audit::event::{Draft, EventType};
use crate::audit::outcome::AskedAct;
use crate::audit::payload::Object;
use crate::audit::redact::Redactor;
use crate::audit::{Change, RecordError};
use crate::delegation::{Delegation, DelegationChange};
use crate::error::{ErrorCode, Refusal};
use crate::tools::acts::Act;

/// An act that may be done, with what the record says of it before.
pub(super) struct Leave {
    pub(super) tool: String,
    /// The request for which it is done once.
    pub(super) asked: Option<Box<AskedAct>>,
    pub(super) cleared: ClearedAct,
    /// The question that was answered with yes.
    pub(super) approval: Option<Box<ApprovalRequest>>,
    pub(super) requested: Object,
    /// Knows what the call brought along.
    pub(super) redactor: Redactor,
}

/// What became of an act that might be done.
pub(super) enum Performed {
    Ended(Result<Fields, Refusal>),
    /// The same request is being done by another process, or was: this one did nothing.
    Elsewhere(Box<dyn Act>),
}

/// Why an act was not opened.
enum Unopened {
    Refused(Refusal),
    Elsewhere,
}

type Fields = Map<String, Value>;

impl Gateway {
    /// Opens an act, does it and ends it.
    pub(super) async fn perform(self: &Arc<Self>, act: Box<dyn Act>, mut leave: Leave) -> Performed {
        if act.only_looks() && leave.approval.is_none() {
            return Performed::Ended(act.perform(leave.cleared).await);
        }
        // An approval that was given is not used: the same call uses it at the next server.
        let Some(under_way) = self.begin_act() else {
            return Performed::Ended(Err(stopping()));
        };
        // In a task of its own from here on: whoever waits may go at any moment, also between the record and the act.
        let gateway = self.clone();
        let performed = tokio::spawn(
            async move {
                let journal = match gateway.open(&*act, &mut leave).await {
                    Ok(journal) => journal,
                    Err(Unopened::Refused(refusal)) => return Performed::Ended(Err(refusal)),
                    Err(Unopened::Elsewhere) => return Performed::Elsewhere(act),
                };
                let Leave { cleared, approval, .. } = leave;
                let cleared = cleared.opened(journal.clone());
                let done = tokio::spawn(async move { act.perform(cleared).await }).await;
                let outcome = done.unwrap_or_else(|_| Err(broken()));
                let ended = gateway.end(&journal, approval, outcome).await;
                drop(under_way);
                Performed::Ended(ended)
            }
            .in_current_span(),
        );
        performed.await.unwrap_or_else(|_| Performed::Ended(Err(broken())))
    }

    /// Writes down that an act is done from now on.
    async fn open(&self, act: &dyn Act, leave: &mut Leave) -> Result<ActJournal, Unopened> {
        let cleared = &leave.cleared;
        if let Err(refusal) = act.begins() {
            self.give_up(cleared, leave.approval.as_deref(), &refusal.message).await;
            return Err(Unopened::Refused(refusal));
        }
        let open = self.opening_of(act, leave);
        let approval_id = cleared.approval().map(|id| id.as_str());
        // By these the event alone tells whoever ends it later what is left to be told.
        let systems = open.systems.iter().map(String::as_str);
        let requested = std::mem::take(&mut leave.requested).texts("systems", systems);
        let event = Draft::new(
            open.id.clone(),
            open.opened_at,
            open.correlation_id.clone(),
            open.actor.clone(),
            EventType::ActRequested,
            requested.optional_text("approval_id", approval_id).finish(),
        );
        let opening = Change {
            events: vec![event],
            act: Some(ActChange::Open(open.clone())),
            delegations: act.delegation(cleared).map(begun).into_iter().collect(),
            ..Change::default()
        };
        let parts = JournalParts {
            record: self.ports.record.clone(),
            redactor: leave.redactor.clone(),
            clock: self.ports.clock.clone(),
            ids: self.ports.ids.clone(),
        };
        let journal = ActJournal::new(parts, open);
        match self.commit_opening(opening).await {
            Ok(_) => Ok(journal),
            Err(RecordError::RequestIdTaken(_)) => Err(Unopened::Elsewhere),
            Err(RecordError::ApprovalMoved) => Err(Unopened::Refused(self::used())),
            Err(error) => {
                let refusal = unrecorded(&error);
                if let RecordError::Unavailable(_) = error {
                    self.close_unopened(&journal, &refusal);
                }
                Err(Unopened::Refused(refusal))
            }
        }
    }

    /// It may have been written after all, and only the answer was lost. Then it is open, nothing is done, and nobody
    /// else closes it while this process lives. The same request may do it yet.
    fn close_unopened(&self, journal: &ActJournal, refusal: &Refusal) {
        let mut closing = journal.closing::<()>(&Err(refusal.clone()), None);
        closing.only_if_open = true;
        if let Some(room) = self.room_to_look_after() {
            let closed = self.close_later(closing);
            tokio::spawn(async move {
                // Nobody waits for what it came to.
                let _ = closed.await;
                drop(room);
            });
        }
    }

    /// Counts an act among those under way, for as long as this is held; none where the server stops.
    fn begin_act(&self) -> Option<OwnedRwLockReadGuard<()>> {
        let begun = self.acts.clone().try_read_owned().ok();
        begun.filter(|_| !self.commands.is_closing())
    }

    /// Waits for the acts under way; none begins after them. What does not end in time is put right by the next
    /// server.
    pub(super) async fn acts_ended(&self, deadline: Instant) {
        let ended = tokio::time::timeout_at(deadline, self.acts.write()).await;
        if ended.is_err() {
            tracing::warn!("acts did not end in time; the next server puts right what they left");
        }
    }

    /// An approval that was given for nothing is over: it must not let a later act go.
    async fn give_up(&self, cleared: &ClearedAct, approval: Option<&ApprovalRequest>, reason: &str) {
        let Some(approval) = approval else { return };
        let by = &cleared.caller().actor;
        if let Err(error) = self.ports.board.withdraw(&approval.id, by, reason).await {
            tracing::warn!(%error, "an approval that was not used could not be given up");
        }
    }

    fn opening_of(&self, act: &dyn Act, leave: &Leave) -> OpenAct {
        let cleared = &leave.cleared;
        let caller = cleared.caller();
        let run = caller.run.as_ref().and_then(|run| run.run_id.as_ref());
        OpenAct {
            id: self.ports.ids.event(),
            correlation_id: cleared.correlation_id().clone(),
            actor: caller.actor.clone(),
            tool: leave.tool.clone(),
            action: act.action().map(str::to_owned),
            approval: cleared.used_approval().cloned(),
            run_id: run.map(|id| id.as_str().to_owned()),
            systems: act.systems().iter().map(|system| (*system).to_owned()).collect(),
            opened_at: self.ports.clock.now(),
            asked: leave.asked.clone(),
        }
    }

    /// Writes down how an act went; its approval comes to the same.
    async fn end(
        &self,
        journal: &ActJournal,
        approval: Option<Box<ApprovalRequest>>,
        outcome: Result<Fields, Refusal>,
    ) -> Result<Fields, Refusal> {
        let mut closing = journal.closing(&outcome, journal.kept(&outcome));
        let step = match &outcome {
            Ok(_) => ApprovalStep::Apply,
            Err(_) => ApprovalStep::Fail,
        };
        let now = self.ports.clock.now();
        closing.approvals = approval
            .and_then(|given| ended_as(*given, step, now))
            .into_iter()
            .collect();
        let mut closed = self.commit_patiently(closing.clone()).await;
        if closed == Err(RecordError::ApprovalMoved) {
            // Somebody gave the approval up meanwhile; the act was done, and that is what counts.
            closing.approvals.clear();
            closed = self.commit_patiently(closing).await;
        }
        match (closed, &outcome) {
            (Ok(_), _) => {
                self.ports.board.announce();
                outcome
            }
            (Err(error), Ok(_)) => Err(error
                .refusal("this was done, but its end could not be recorded")
                .of_done()),
            (Err(error), Err(refusal)) => {
                tracing::warn!(%error, code = refusal.code.name(), "the end of an act could not be recorded");
                outcome
            }
        }
    }
}

fn begun(delegation: Delegation) -> DelegationChange {
    DelegationChange { delegation, from: None }
}

fn ended_as(approval: ApprovalRequest, step: ApprovalStep, now: crate::clock::Timestamp) -> Option<ApprovalChange> {
    let from = Some(approval.version);
    let approval = approval.step(step, now).ok()?;
    Some(ApprovalChange { approval, from })
}

/// One approval lets one act go.
pub(super) fn used() -> Refusal {
    let message = "the same call uses this approval at this moment, or has used it; call again to ask anew";
    Refusal::new(ErrorCode::Conflict, message)
}

fn stopping() -> Refusal {
    Refusal::new(
        ErrorCode::Cancelled,
        "the server is stopping; call again when it is back",
    )
}

/// Only a mistake of ours ends an act so.
fn broken() -> Refusal {
    Refusal::new(
        ErrorCode::InternalError,
        "the act broke off inside the server; see its log",
    )
}
