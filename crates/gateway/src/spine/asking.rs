//! Asking about an act that is no command, and waiting for the answer.
//!
//! The question is bound to the act: asked again by the same call it is the same question, also in another
//! process, and its answer counts once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Gateway;
use super::in_force::InForce;
use super::opening::unrecorded;
use super::performing::used;
use super::waiting::{full, waits_for_answer};
use crate::approval::binding::{self, Binding};
use crate::approval::request::{ApprovalRequest, ApprovalType};
use crate::approval::{ClearedAct, board, clear_act, withheld};
use crate::audit::event::ApprovalState;
use crate::audit::{Change, RecordError};
use crate::error::{ErrorCode, Refusal};
use crate::ids::CorrelationId;
use crate::limits;
use crate::policy::acts::{ActQuestion, ActVerdict};
use crate::service::ToolCall;
use crate::session::Admitted;
use crate::tools::acts::Act;

impl Gateway {
    /// Asks, and waits as long as a client will. What was asked before is not asked again.
    pub(super) async fn ask_about(
        self: &Arc<Self>,
        admitted: &Admitted,
        call: &ToolCall,
        act: &dyn Act,
        question: ActQuestion,
        in_force: &InForce,
        correlation: &mut CorrelationId,
    ) -> Result<(ClearedAct, Box<ApprovalRequest>), Refusal> {
        let caller = admitted.caller();
        let details = Value::Object(act.details());
        let arguments = act.bound_arguments(&call.arguments);
        let binding = binding::bind_act(
            &self.ports.digests,
            &call.tool,
            &arguments,
            &details,
            &caller.credential,
            &in_force.digest,
        );
        let board = &self.ports.board;
        let mut tries = 0;
        let approval = loop {
            let before = board.bound(&caller.credential, &binding.digest).await;
            let before = before.map_err(|error| unrecorded(&error))?;
            if let Some(before) = before.filter(|before| self.still_counts(before)) {
                break before;
            }
            let has_room = board.has_room(&caller.credential).await;
            if !has_room.map_err(|error| unrecorded(&error))? {
                return Err(full());
            }
            tries += 1;
            let kind = act.kind();
            let posted = self
                .post_act(
                    admitted,
                    call,
                    kind,
                    &details,
                    &question,
                    &binding,
                    in_force,
                    correlation,
                )
                .await;
            match posted {
                Ok(posted) => break posted,
                // Somebody asked the same at this moment: one question for both.
                Err(RecordError::ApprovalMoved) if tries < limits::DECISION_TRIES_MAX => {}
                Err(error) => return Err(unrecorded(&error)),
            }
        };
        *correlation = approval.correlation_id.clone();
        let mut cancel = call.cancel.clone();
        let usual = self.settings.answer_within;
        let patience = call.answer_within.unwrap_or(usual).min(usual);
        let patience = act.patience().unwrap_or(patience);
        let settled = tokio::select! {
            biased;
            settled = board.settled(&approval.id) => settled,
            () = cancel.cancelled() => {
                let reason = "the caller cancelled it";
                if let Err(error) = board.withdraw(&approval.id, &caller.actor, reason).await {
                    tracing::warn!(%error, "a question could not be withdrawn");
                }
                return Err(Refusal::new(ErrorCode::Cancelled, "the call was cancelled while its question was open"));
            }
            () = self.consult_about(caller, call, &approval.id) => unreachable!("it never resolves"),
            () = self.unless_stopping(patience) => {
                let pending = Refusal::new(ErrorCode::ApprovalPending, waits_for_answer(&approval));
                return Err(pending.with("approval_id", approval.id.as_str()));
            }
        };
        if let Some(refusal) = board::refusal(&settled) {
            return Err(refusal);
        }
        if settled.state() == ApprovalState::Applied {
            return Err(used());
        }
        let given = self.vouched(admitted, &settled, &binding).await?;
        if let Some(refusal) = self.too_late(admitted, &settled).await {
            return Err(refusal);
        }
        let now = self.in_force();
        if now.digest != in_force.digest
            && let ActVerdict::Deny(denial) = Self::act_verdict(admitted, call, act, &now)
        {
            self.unused(admitted, Some(&settled), &denial.refusal.message).await;
            return Err(denial.refusal);
        }
        let cleared = clear_act(question, &binding, &given, admitted)
            .map_err(|error| Refusal::new(ErrorCode::ApprovalDenied, error.to_string()))?;
        Ok((cleared, given.into_approval()))
    }

    /// As long as this, or until this process is about to stop.
    async fn unless_stopping(&self, patience: Duration) {
        tokio::select! {
            () = tokio::time::sleep(patience) => {}
            () = self.stops() => {}
        }
    }

    /// Whether the answer to an earlier call of the same words is this call's answer as well: one that is
    /// open, a yes that was not used, or a no that is young enough to be the one that was waited for.
    fn still_counts(&self, before: &ApprovalRequest) -> bool {
        let given = before.resolved_at.unwrap_or(before.created_at);
        let age = self.ports.clock.now().since(given);
        match before.state() {
            ApprovalState::Pending => true,
            ApprovalState::Approved => age < limits::APPROVAL_USABLE_FOR,
            ApprovalState::Denied | ApprovalState::Expired => age < limits::DENIAL_TOLD_FOR,
            ApprovalState::Withdrawn | ApprovalState::AutoApproved | ApprovalState::Applied | ApprovalState::Failed => {
                false
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what a question is made of, each from another station"
    )]
    async fn post_act(
        &self,
        admitted: &Admitted,
        call: &ToolCall,
        kind: ApprovalType,
        details: &Value,
        question: &ActQuestion,
        binding: &Binding,
        in_force: &InForce,
        correlation: &CorrelationId,
    ) -> Result<ApprovalRequest, RecordError> {
        let (caller, ports) = (admitted.caller(), &self.ports);
        let mut request = ApprovalRequest::new(
            ports.ids.approval(),
            kind,
            correlation.clone(),
            caller.credential.clone(),
            ports.clock.now(),
        );
        request.requested_by.clone_from(&caller.actor.id);
        request.job_id = caller.job_id().map(str::to_owned);
        request.run_id = caller.run_id().map(str::to_owned);
        request.tool.clone_from(&call.tool);
        request.binding.clone_from(&binding.digest);
        request.arguments_digest.clone_from(&binding.arguments);
        request.policy_digest.clone_from(&binding.policy);
        let own = self.redactor_of_act(call);
        let mut shown = own
            .as_ref()
            .unwrap_or(&ports.redactor)
            .redact_json(details)
            .as_object()
            .cloned()
            .unwrap_or_default();
        let unseen = withheld::in_values(details, &Value::Object(shown.clone()));
        withheld::note(&mut shown, unseen);
        let rule = question.rule();
        shown.insert("reason".to_owned(), json!(rule.reason));
        shown.insert("rule".to_owned(), json!(rule.name));
        shown.insert("source".to_owned(), json!(rule.source));
        request.details = shown;
        let context = in_force.policy.context(caller);
        request.approval_mode = in_force.policy.tools.approval_mode(&context, &call.tool);
        let approval = &in_force.policy.approval;
        request.quorum = approval.quorum;
        request.expires_at = approval.timeout.map(|timeout| request.created_at.after(timeout));
        let opening = ports.board.opening(request, &caller.actor);
        let posted = opening.change.approval.clone();
        let change = Change {
            events: opening.events,
            approvals: vec![opening.change],
            ..Change::default()
        };
        self.commit(change).await?;
        ports.board.show(&posted);
        Ok(posted)
    }
}
