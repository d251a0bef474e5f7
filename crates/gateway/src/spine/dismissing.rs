//! A caller who comes no more: what it began ends, and what it asked is taken back.

use std::sync::Arc;

use super::Gateway;
use super::joining::parks;
use crate::approval::ApprovalFilter;
use crate::approval::request::ApprovalRequest;
use crate::audit::RecordError;
use crate::audit::event::Actor;
use crate::ids::CredentialId;
use crate::session::{self, Caller, Role, Transport};

impl Gateway {
    /// Ends the commands of a credential in this process, and takes back what it asked, also what lies in
    /// the store. Its token must not be in force any more, or it could begin anew meanwhile.
    pub async fn dismiss(self: &Arc<Self>, owner: &CredentialId, why: &str) {
        let running = self.commands.of(owner);
        running.iter().for_each(|live| live.cancel());
        for live in running {
            live.ended().await;
        }
        if let Err(error) = self.take_back(owner, why).await {
            tracing::warn!(%error, "questions of a caller who is gone stay open");
        }
    }

    async fn take_back(&self, owner: &CredentialId, why: &str) -> Result<(), RecordError> {
        let open = self.ports.board.list(ApprovalFilter::open()).await?;
        for question in open.into_iter().filter(|question| question.owner == *owner) {
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
