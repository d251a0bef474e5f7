//! Waiting for a person: a verdict that asks becomes a question on the board, and the answer decides.
//!
//! The question and the command that waits for it are written together, before anybody sees them. While
//! somebody thinks, the command's clock stands still. When no caller waits any longer the command is
//! parked: it lies in the store, and the same call goes on with it, here or in another process.

use std::sync::Arc;

use tracing::Instrument as _;

use super::Gateway;
use super::in_force::InForce;
use super::opening::unrecorded;
use super::performing::used;
use crate::approval::binding::{self, Binding};
use crate::approval::board::{self, Opening, VouchError};
use crate::approval::proof::{ProvedYes, Unproved, Use};
use crate::approval::question::Offer;
use crate::approval::request::{ApprovalRequest, ApprovalType, AskedFor};
use crate::approval::{self, Cleared, details};
use crate::audit::event::ApprovalState;
use crate::audit::trace::Trace;
use crate::audit::{Change, OpenCommand, RecordError};
use crate::call::Step;
use crate::error::{ErrorCode, Refusal};
use crate::execution::live::Live;
use crate::ids::ApprovalId;
use crate::limits;
use crate::policy::decide::{Permit, Question, Rule, Verdict};
use crate::policy::plan::Plan;
use crate::session::Admitted;
use crate::tools::exec::request::CommandRequest;
use crate::tools::exec::result::CommandResult;

/// What is asked, beside the question itself.
pub(super) struct Asking<'a> {
    pub(super) request: &'a CommandRequest,
    pub(super) policy: &'a InForce,
    /// The row of a command that is not open yet; taken when the question is written.
    pub(super) opening: &'a mut Option<OpenCommand>,
    /// The question, when it was asked before.
    pub(super) held: Option<ApprovalRequest>,
    /// Whether the command has not begun, so that it may wait in the store.
    pub(super) parks: bool,
}

/// What a verdict came to.
pub(super) enum Settled {
    /// It may run, by the approval where one was needed.
    Cleared(Box<Cleared>, Option<Box<ApprovalRequest>>),
    Refused(Refusal),
    /// Nobody could be asked: the question was not written, or nobody knows whether it was.
    Unrecorded(RecordError),
    /// It waits in the store.
    Parked,
    /// The same question was asked at the same moment by another call.
    Joined(Box<ApprovalRequest>),
    /// Another process has let the act go, or has the very request.
    Elsewhere,
}

impl Gateway {
    /// Asks where the verdict says so.
    pub(super) async fn settle(
        self: &Arc<Self>,
        admitted: &Admitted,
        trace: &mut Trace,
        verdict: Verdict,
        asking: Asking<'_>,
        live: &Arc<Live>,
    ) -> Settled {
        match verdict {
            Verdict::Ask(question) => self.ask(admitted, trace, question, asking, live).await,
            Verdict::Allow(permit) => {
                let automatic = permit.auto_approved;
                let noted = automatic.then(|| Box::new(self.auto_approved(admitted, &permit, &asking, live)));
                Settled::Cleared(Box::new(approval::allow(permit)), noted)
            }
            Verdict::Deny(denial) => Settled::Refused(denial.refusal),
        }
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(
        self: &Arc<Self>,
        admitted: &Admitted,
        trace: &mut Trace,
        question: Question,
        asking: Asking<'_>,
        live: &Arc<Live>,
    ) -> Settled {
        let owner = &admitted.caller().credential;
        let binding = binding::bind(
            &self.ports.digests,
            asking.request,
            question.plan(),
            owner,
            &asking.policy.digest,
        );
        let parks = asking.parks;
        let id = match &asking.held {
            Some(held) => held.id.clone(),
            None => {
                match self.ports.board.has_room(owner).await {
                    Ok(true) => {}
                    Ok(false) => return Settled::Refused(full()),
                    Err(error) => return Settled::Refused(unrecorded(&error)),
                }
                let opened = self.question(admitted, &question, &asking, &binding, live);
                trace.follow(Step::Ask);
                match self.post(trace, opened, asking.opening.take()).await {
                    Ok(approval) => approval.id,
                    Err(RecordError::ApprovalMoved) => return self.asked_meanwhile(admitted, &binding).await,
                    Err(RecordError::RequestIdTaken(_)) => return Settled::Elsewhere,
                    Err(error) => return Settled::Unrecorded(error),
                }
            }
        };
        live.waits_for(Some(id.clone()));
        let decided = self
            .decision(admitted, live, &id, parks)
            .instrument(tracing::info_span!("approval"))
            .await;
        let approval = match decided {
            Waited::Parked => {
                let pending = self.pending(live, &id);
                live.finish(pending);
                return Settled::Parked;
            }
            Waited::Decided(approval) => {
                live.waits_for(None);
                approval
            }
            Waited::Cancelled => {
                live.waits_for(None);
                let message = "the call was cancelled while its question was open";
                if let Err(error) = self
                    .ports
                    .board
                    .withdraw(&id, &admitted.caller().actor, "the caller cancelled it")
                    .await
                {
                    tracing::warn!(%error, "a question could not be withdrawn");
                }
                return Settled::Refused(Refusal::new(ErrorCode::Cancelled, message));
            }
        };
        if approval.state() == ApprovalState::Applied {
            return Settled::Elsewhere;
        }
        if let Some(refusal) = board::refusal(&approval) {
            trace.follow(Step::Deny);
            return Settled::Refused(refusal);
        }
        let given = match self.vouched(admitted, &approval, &binding).await {
            Ok(given) => given,
            Err(refusal) => {
                trace.follow(Step::Deny);
                return Settled::Refused(refusal);
            }
        };
        trace.follow(Step::Approve);
        if let Some(refusal) = self.too_late(admitted, &approval).await {
            return Settled::Refused(refusal);
        }
        let now = self.in_force();
        if now.digest != asking.policy.digest
            && let Verdict::Deny(denial) = self.verdict(admitted, asking.request, &now)
        {
            self.unused(admitted, Some(&approval), &denial.refusal.message).await;
            return Settled::Refused(denial.refusal);
        }
        match approval::clear(question, &binding, &given) {
            Ok(cleared) => Settled::Cleared(Box::new(cleared), Some(given.into_approval())),
            Err(error) => Settled::Refused(Refusal::new(ErrorCode::ApprovalDenied, error.to_string())),
        }
    }

    /// The question as everybody will see it.
    fn question(
        &self,
        admitted: &Admitted,
        question: &Question,
        asking: &Asking<'_>,
        binding: &Binding,
        live: &Live,
    ) -> Opening {
        let mut request = self.about(admitted, asking, question.plan(), &question.rule, binding, live);
        let policy = &asking.policy.policy.approval;
        request.quorum = policy.quorum;
        request.expires_at = policy.timeout.map(|timeout| request.created_at.after(timeout));
        self.ports.board.opening(request, &admitted.caller().actor)
    }

    /// What the whitelist answered for a person, as it is kept: S1's auto-approved request.
    fn auto_approved(&self, admitted: &Admitted, permit: &Permit, asking: &Asking<'_>, live: &Live) -> ApprovalRequest {
        let owner = &admitted.caller().credential;
        let binding = binding::bind(
            &self.ports.digests,
            asking.request,
            permit.plan(),
            owner,
            &asking.policy.digest,
        );
        self.about(admitted, asking, permit.plan(), &permit.rule, &binding, live)
            .answered_by_whitelist(&permit.rule.reason)
    }

    fn about(
        &self,
        admitted: &Admitted,
        asking: &Asking<'_>,
        plan: &Plan,
        rule: &Rule,
        binding: &Binding,
        live: &Live,
    ) -> ApprovalRequest {
        let (caller, ports) = (admitted.caller(), &self.ports);
        let mut request = ApprovalRequest::new(
            ports.ids.approval(),
            ApprovalType::ExecCommand,
            live.correlation_id.clone(),
            caller.credential.clone(),
            ports.clock.now(),
        );
        request.requested_by = caller.actor.id.clone();
        request.job_id = caller.job_id().map(str::to_owned);
        request.run_id = caller.run_id().map(str::to_owned);
        request.tool = asking.request.tool.name().to_owned();
        request.command = Some(AskedFor {
            request_id: live.request_id.clone(),
            parks: asking.parks,
        });
        request.binding = binding.digest.clone();
        request.arguments_digest = binding.arguments.clone();
        request.policy_digest = binding.policy.clone();
        request.details = details::of_command(plan, rule, asking.request, live.redactor(&ports.redactor));
        request.remaining_ms = u64::try_from(plan.timeout.as_millis()).unwrap_or(u64::MAX);
        request
    }

    /// Writes a question, durably, before anybody is asked; the command counts as open from then on.
    async fn post(
        &self,
        trace: &mut Trace,
        opened: Opening,
        opening: Option<OpenCommand>,
    ) -> Result<ApprovalRequest, RecordError> {
        let approval = opened.change.approval.clone();
        let mut events = trace.take();
        events.extend(opened.events);
        let change = Change {
            events,
            open: opening,
            approvals: vec![opened.change],
            ..Change::default()
        };
        self.commit(change).await?;
        self.ports.board.show(&approval);
        Ok(approval)
    }

    /// Another call was a moment faster with the same question.
    async fn asked_meanwhile(&self, admitted: &Admitted, binding: &Binding) -> Settled {
        let owner = &admitted.caller().credential;
        match self.ports.board.held(owner, &binding.digest).await {
            Ok(Some(other)) => Settled::Joined(Box::new(other)),
            Ok(None) => Settled::Refused(Refusal::new(
                ErrorCode::Conflict,
                "the same was asked and settled at this moment; send the call again",
            )),
            Err(error) => Settled::Refused(unrecorded(&error)),
        }
    }

    async fn decision(&self, admitted: &Admitted, live: &Arc<Live>, id: &ApprovalId, parks: bool) -> Waited {
        let owner = &admitted.caller().credential;
        let mut decided = std::pin::pin!(self.ports.board.settled(id));
        loop {
            tokio::select! {
                biased;
                approval = &mut decided => return Waited::Decided(Box::new(approval)),
                () = live.cancelled() => {
                    // A server that stops does not take its questions with it.
                    if parks && self.commands.is_closing() && self.commands.park(owner, live) {
                        return Waited::Parked;
                    }
                    return Waited::Cancelled;
                }
                () = live.unattended(), if parks => {
                    if self.commands.park(owner, live) {
                        return Waited::Parked;
                    }
                }
            }
        }
    }

    /// Proves by the record that an act was approved. What only the table of questions says lets nothing go.
    pub(super) async fn vouched(
        &self,
        admitted: &Admitted,
        approval: &ApprovalRequest,
        binding: &Binding,
    ) -> Result<ProvedYes, Refusal> {
        let vouched = self.ports.board.vouch(approval, &binding.digest, Use::First).await;
        let unproved = match vouched {
            Ok(given) => return Ok(given),
            Err(VouchError::Record(error)) => return Err(unrecorded(&error)),
            // Perhaps by the same call, at this moment.
            Err(VouchError::Unproved(Unproved::Used)) => return Err(used()),
            Err(VouchError::Unproved(unproved)) => unproved,
        };
        let message =
            format!("{unproved}; nothing was done, and whoever runs this server should look at `audit verify`");
        self.unused(admitted, Some(approval), &unproved.to_string()).await;
        let refusal = Refusal::new(ErrorCode::ApprovalDenied, message);
        Err(refusal.with("approval_id", approval.id.as_str()))
    }

    /// Gives up an approval whose act does not come to be.
    pub(super) async fn unused(&self, admitted: &Admitted, approval: Option<&ApprovalRequest>, reason: &str) {
        let Some(approval) = approval else { return };
        let actor = &admitted.caller().actor;
        if let Err(error) = self.ports.board.withdraw(&approval.id, actor, reason).await {
            tracing::warn!(%error, "an unused approval could not be given up");
        }
    }

    /// What is to be said of a command that waits for a person.
    pub(super) fn pending(&self, live: &Live, id: &ApprovalId) -> CommandResult {
        let message = waits(id);
        CommandResult::pending(live.request_id.clone(), live.started_at, id.clone(), message)
    }
}

pub(super) fn full() -> Refusal {
    let message = format!(
        "{} questions of yours already wait for a person; try again when some are decided",
        limits::QUESTIONS_OPEN_MAX
    );
    Refusal::new(ErrorCode::QueueFull, message)
}

pub(super) fn waits(id: &ApprovalId) -> String {
    format!(
        "this waits for a person's approval, `{id}`; repeat the same call to learn the decision. \
         Whoever runs this server decides with `countersign approve {id}`"
    )
}

/// What is said of a question on the board, which is about an act or has answers of its own.
pub(super) fn waits_for_answer(approval: &ApprovalRequest) -> String {
    let id = &approval.id;
    let Some(offer) = Offer::of(approval) else {
        return waits(id);
    };
    let options: Vec<_> = offer.options().iter().map(|option| format!("`{option}`")).collect();
    format!(
        "this waits for a person's answer, `{id}`; repeat the same call to learn it. Whoever runs this server answers with \
         `countersign approve {id} --option …`, one of {}",
        options.join(", ")
    )
}

/// How waiting ended.
enum Waited {
    Decided(Box<ApprovalRequest>),
    Cancelled,
    Parked,
}
