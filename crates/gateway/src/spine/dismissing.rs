//! A caller who comes no more: what it began ends, and what it asked is taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Gateway;
use super::joining::parks;
use crate::approval::ApprovalFilter;
use crate::approval::request::ApprovalRequest;
use crate::audit::RecordError;
use crate::audit::event::Actor;
use crate::error::{ErrorCode, Refusal};
use crate::ids::CredentialId;
use crate::limits;
use crate::session::{self, Caller, Role, Transport};

impl Gateway {
    /// Ends the commands of a credential in this process, and takes back what it asked, also what lies in
    /// the store. Its token must not be in force any more, or it could begin anew meanwhile.
    pub async fn dismiss(self: &Arc<Self>, owner: &CredentialId, why: &str) {
        self.dismiss_all_but(owner, why, |_| false).await;
    }

    async fn dismiss_all_but(
        self: &Arc<Self>,
        owner: &CredentialId,
        why: &str,
        is_spared: impl Fn(&ApprovalRequest) -> bool,
    ) {
        let running = self.commands.of(owner);
        running.iter().for_each(|live| live.cancel());
        for live in running {
            live.ended().await;
        }
        if let Err(error) = self.take_back(owner, why, is_spared).await {
            tracing::warn!(%error, "questions of a caller who is gone stay open");
        }
    }

    /// The same for everybody whose token is no longer in force.
    pub async fn dismiss_revoked(self: &Arc<Self>) {
        if self.credentials.get().is_none() {
            return;
        }
        let open = self.ports.board.list(ApprovalFilter::open()).await;
        let open = open.unwrap_or_else(|error| {
            tracing::warn!(%error, "the questions of tokens that were revoked cannot be looked for");
            Vec::new()
        });
        let now = self.ports.clock.now();
        // Whoever looks after a job asks in the name of whoever began it, and goes on.
        let is_of_job = |question: &ApprovalRequest| question.job_id.is_some() && question.command.is_none();
        // What was asked a moment ago may have come with a token that is too new to be known here.
        let is_new = |question: &ApprovalRequest| now.since(question.created_at) < limits::TOKENS_KNOWN_WITHIN;
        let asking = open
            .iter()
            .filter(|question| !is_of_job(question) && !is_new(question))
            .map(|question| question.owner.clone());
        let owners: BTreeSet<CredentialId> = self.commands.owners().into_iter().chain(asking).collect();
        for owner in owners.iter().filter(|owner| !self.is_in_force(owner)) {
            let why = "the token that it was asked with is no longer in force";
            self.dismiss_all_but(owner, why, is_of_job).await;
        }
    }

    /// Whether whoever came with this may still act. Who needs no token has none that could end.
    pub(super) fn is_in_force(&self, owner: &CredentialId) -> bool {
        let known = self.credentials.get().filter(|_| owner.is_token());
        known.is_none_or(|credentials| credentials.is_in_force(owner))
    }

    /// A yes that comes when its caller may no longer act: it is given up.
    pub(super) async fn too_late(&self, admitted: &session::Admitted, approval: &ApprovalRequest) -> Option<Refusal> {
        let caller = admitted.caller();
        if self.is_in_force(&caller.credential) {
            return None;
        }
        let message = "the token of this call is no longer in force; nothing was done";
        self.unused(admitted, Some(approval), message).await;
        Some(Refusal::new(ErrorCode::Cancelled, message))
    }

    async fn take_back(
        &self,
        owner: &CredentialId,
        why: &str,
        is_spared: impl Fn(&ApprovalRequest) -> bool,
    ) -> Result<(), RecordError> {
        let open = self.ports.board.list(ApprovalFilter::open()).await?;
        let of_owner = |question: &ApprovalRequest| question.owner == *owner && !is_spared(question);
        for question in open.into_iter().filter(of_owner) {
            if !self.close_stored(owner, &question).await? {
                let by = Actor::system("jobs");
                self.ports.board.withdraw(&question.id, &by, why).await?;
            }
        }
        Ok(())
    }

    /// Closes the command that waits in the store for this question; false where there is none.
    async fn close_stored(&self, owner: &CredentialId, question: &ApprovalRequest) -> Result<bool, RecordError> {
        let Some(command) = question.command.as_ref().filter(|_| parks(question)) else {
            return Ok(false);
        };
        let Some(stored) = self.ports.record.command(owner, &command.request_id).await? else {
            return Ok(false);
        };
        let gone = Caller {
            credential: owner.clone(),
            role: Role::Agent,
            actor: Actor::system("jobs"),
            transport: Transport::StreamableHttp,
            run: None,
            job: None,
        };
        let Ok(gone) = session::admit(gone) else {
            return Ok(false);
        };
        Ok(self.cancel_stored(&gone, &stored).await?.is_some())
    }
}
