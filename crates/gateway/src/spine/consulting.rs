//! Asking the user of the client that waits, where policy lists the client as an approver.
//!
//! They are one more who may decide: the question lies on the board as any other, and whoever is first
//! decides. The agent of a run or of a job has no user at its side, so nobody is asked there.

use std::sync::Arc;
use std::time::Duration;

use super::Gateway;
use crate::approval::ballot::{Ballot, Decider};
use crate::approval::client::{ClientUser, Heard, Resumed};
use crate::error::Status;
use crate::execution::live::Live;
use crate::ids::ApprovalId;
use crate::service::ToolCall;
use crate::session::{Admitted, Caller};

impl Gateway {
    /// Shows the questions of a call to its client's user, one after the other, for as long as the call
    /// is waited for. Resolves when the call must be answered so that they can be asked.
    pub(super) async fn consult(&self, caller: &Caller, live: &Live, call: &ToolCall) {
        let Some(user) = self.user_beside(caller, call) else {
            return std::future::pending().await;
        };
        let mut shown = None;
        loop {
            let id = live.asks(shown.as_ref()).await;
            match self.show(caller, user, &id).await {
                Heard::ByAnswer => return,
                Heard::Said(_) | Heard::Nothing => shown = Some(id),
            }
        }
    }

    /// Shows the question of an act that is no command to its client's user. Never resolves: whoever waits
    /// learns of the decision from the board.
    pub(super) async fn consult_about(&self, caller: &Caller, call: &ToolCall, id: &ApprovalId) {
        if let Some(user) = self.user_beside(caller, call) {
            self.show(caller, user, id).await;
        }
        std::future::pending().await
    }

    /// Who is asked by the client's own means; none where policy does not list it, or where nobody sits.
    fn user_beside<'c>(&self, caller: &Caller, call: &'c ToolCall) -> Option<&'c Arc<dyn ClientUser>> {
        let may_sit_there = caller.run.is_none() && caller.job.is_none();
        let user = call.user.as_ref().filter(|_| may_sit_there)?;
        self.in_force().policy.approval.client_decides.then_some(user)
    }

    async fn show(&self, caller: &Caller, user: &Arc<dyn ClientUser>, id: &ApprovalId) -> Heard {
        let board = &self.ports.board;
        let question = match board.find(id).await {
            // One that was asked under another policy is not the client's to decide.
            Ok(Some(question)) if question.policy_digest == self.in_force().digest => question,
            Ok(_) => return Heard::Nothing,
            Err(error) => {
                tracing::warn!(%error, "a question could not be shown to the client's user");
                return Heard::Nothing;
            }
        };
        let heard = tokio::select! {
            biased;
            _ = board.settled(id) => Heard::Nothing,
            heard = user.ask(&question) => heard,
        };
        if let Heard::Said(word) = &heard {
            let ballot = Ballot {
                choice: word.choice,
                by: Decider::client(caller),
                reason: word.reason.clone(),
                answer: word.answer.clone(),
            };
            if let Err(error) = board.decide(id, ballot).await {
                tracing::warn!(%error, "the answer of a client's user could not be taken");
            }
        }
        heard
    }

    /// Whether the command that a call wants to go on with has gone on without it. One that still waits,
    /// under a policy that is no longer in force, must be asked about anew.
    pub(super) async fn went_on(&self, admitted: &Admitted, resumed: &Resumed) -> bool {
        let command = resumed.command.clone();
        let answer = self.recall(admitted, command, Duration::ZERO).await;
        answer.structured["status"] != Status::Pending.as_str()
    }
}
