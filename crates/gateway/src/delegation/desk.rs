//! The desk: sends acts to services, takes what they call back, and tells whoever waits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::answer;
use super::{
    Courier, Delegation, DelegationChange, Delegations, Finished, HasEnded, Order, Outcome, Said, SendTrouble, pending,
    read_answer,
};
use crate::approval::board::Board;
use crate::approval::callback::{Callback, CallbackError, Meant, Route, Word};
use crate::audit::act::EXECUTOR;
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::payload::{Object, Payload};
use crate::audit::redact::Redactor;
use crate::audit::{Change, Record, RecordError};
use crate::clock::Clock;
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, CredentialId, DelegationId, IdSource};
use crate::limits;
use crate::tools::declared::DeclaredTool;
use crate::tools::secrets::keeping::{SecretValue, Vault};

pub struct DelegationDesk {
    parts: DeskParts,
}

pub struct DeskParts {
    pub record: Arc<dyn Record>,
    pub delegations: Arc<dyn Delegations>,
    /// Wakes whoever waits, here and in other processes.
    pub board: Arc<Board>,
    pub courier: Arc<dyn Courier>,
    pub redactor: Redactor,
    /// Makes digests of secrets that callers bring.
    pub vault: Arc<dyn Vault>,
    pub clock: Clock,
    pub ids: IdSource,
    /// Where services call back.
    pub callback_url: String,
    /// How long a call waits before it is told to look again.
    pub answer_within: Duration,
}

/// What a service is sent an order for.
pub(crate) struct Sent {
    pub(crate) tool: Arc<DeclaredTool>,
    pub(crate) id: DelegationId,
    pub(crate) answers_later: bool,
    /// What the order holds and nobody else may see, should the service repeat it.
    pub(crate) secrets: Vec<String>,
}

/// How long an answer that nobody came for is kept for whoever makes the same call again.
const HEARD_WITHIN: Duration = Duration::from_secs(24 * 3_600);

impl DelegationDesk {
    pub fn new(parts: DeskParts) -> Arc<Self> {
        Arc::new(Self { parts })
    }

    pub(super) fn parts(&self) -> &DeskParts {
        &self.parts
    }

    pub fn callback_url(&self, id: &DelegationId) -> String {
        let url = &self.parts.callback_url;
        format!("{url}?request_id={id}")
    }

    pub(crate) fn fresh(&self) -> DelegationId {
        self.parts.ids.delegation()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.parts.clock
    }

    pub(crate) fn patience(&self, asked: Option<Duration>) -> Duration {
        let most = self.parts.answer_within;
        asked.map_or(most, |asked| asked.min(most))
    }

    /// What a value is known again by, without telling it.
    pub(crate) fn keyed(&self, value: &Value) -> String {
        self.parts.vault.digest(&SecretValue::new(value.to_string()))
    }

    /// Sends what is written already, and goes on without whoever asked.
    pub(crate) fn send(self: &Arc<Self>, sent: Sent, order: Order) {
        let desk = self.clone();
        let Sent {
            tool,
            id,
            answers_later,
            secrets,
        } = sent;
        let redactor = self.parts.redactor.confiding(secrets.iter().map(String::as_str));
        tokio::spawn(async move {
            let _turn = tool.usage.turn().await;
            let sent = desk.parts.courier.send(order).await;
            let outcome = match sent {
                Ok(reply) => match read_answer(&reply, answers_later) {
                    Said::Done(result) => Outcome::Applied(redactor.redact_json(&result)),
                    Said::Failed(reason) => Outcome::Failed(redactor.redact_text(&reason).into_owned()),
                    Said::Later => return,
                },
                // It may be at work, and will say so.
                Err(SendTrouble::Lost(reason)) if answers_later => {
                    tracing::warn!(reason, "a service did not say whether it has what it was sent");
                    return;
                }
                Err(trouble) => Outcome::Failed(redactor.redact_text(&trouble.to_string()).into_owned()),
            };
            let by = Actor::system("executor");
            if let Err(error) = desk.finish(&id, outcome, &by).await {
                tracing::error!(%error, "what a service answered could not be recorded");
            }
        });
    }

    /// Ends a delegation, once; what it came to before stands.
    pub async fn finish(
        &self,
        id: &DelegationId,
        outcome: Outcome,
        by: &Actor,
    ) -> Result<Option<Delegation>, RecordError> {
        let parts = &self.parts;
        for _ in 0..limits::DECISION_TRIES_MAX {
            let Some(found) = parts.delegations.find_delegation(id).await? else {
                return Ok(None);
            };
            let now = parts.clock.now();
            let outcome = if found.is_due(now) {
                Outcome::TimedOut
            } else {
                outcome.clone()
            };
            let from = found.version;
            let next = match found.clone().finished(outcome, now) {
                Ok(next) => next,
                Err(HasEnded) => return Ok(Some(found)),
            };
            let change = Change {
                events: vec![self.ended(&next, by)],
                delegations: vec![DelegationChange {
                    delegation: next.clone(),
                    from: Some(from),
                }],
                ..Change::default()
            };
            match parts.record.commit(change).await {
                Ok(_) => {
                    parts.board.announce();
                    return Ok(Some(next));
                }
                Err(RecordError::DelegationMoved) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RecordError::Unavailable(
            "too many end this at once; try again".to_owned(),
        ))
    }

    fn ended(&self, delegation: &Delegation, by: &Actor) -> Draft {
        let outcome = delegation.end.as_ref().map(|end| &end.outcome);
        let kind = match outcome {
            Some(Outcome::Applied(_)) => EventType::ActApplied,
            Some(Outcome::Failed(_) | Outcome::TimedOut) | None => EventType::ActFailed,
        };
        let object = Object::new()
            .text("tool", &delegation.tool)
            .text("system", EXECUTOR)
            .text("delegation_id", delegation.id.as_str())
            .text("credential", delegation.owner.as_str())
            .text("status", outcome.map_or("pending", Outcome::word));
        let object = match outcome {
            Some(Outcome::Applied(result)) => {
                let written = Payload::from(result);
                match written.as_str().len() <= limits::METADATA_BYTES_KEPT {
                    true => object.part("result", &written),
                    false => object.whole(
                        "result_bytes",
                        i64::try_from(written.as_str().len()).unwrap_or(i64::MAX),
                    ),
                }
            }
            Some(Outcome::Failed(reason)) => object.text("reason", &self.parts.redactor.redact_text(reason)),
            Some(Outcome::TimedOut) | None => object.text("reason", "the service did not answer in time"),
        };
        Draft::new(
            self.parts.ids.event(),
            self.parts.clock.now(),
            delegation.correlation_id.clone(),
            by.clone(),
            kind,
            object.finish(),
        )
    }

    /// What the same call left before, where its end was not heard yet.
    pub(crate) async fn before(
        &self,
        owner: &CredentialId,
        binding: &str,
    ) -> Result<Option<DelegationId>, RecordError> {
        let found = self.parts.delegations.untold(owner, binding).await?;
        let now = self.parts.clock.now();
        let is_young = |it: &Delegation| it.end.as_ref().is_none_or(|end| now.since(end.at) < HEARD_WITHIN);
        Ok(found.filter(is_young).map(|it| it.id))
    }

    /// The act whose end a caller was promised by this answer; none where the answer was the end.
    pub(crate) async fn promised(&self, answered: &Map<String, Value>) -> Result<Option<DelegationId>, RecordError> {
        let Some(id) = answered.get("request_id").and_then(Value::as_str) else {
            return Ok(None);
        };
        let id = DelegationId::trusted(id);
        let found = self.parts.delegations.find_delegation(&id).await?;
        Ok(found.filter(|it| pending(it) == *answered).map(|it| it.id))
    }

    /// Waits for the end as long as a client will, and tells it, or what to do to hear it later.
    pub(crate) async fn told(
        &self,
        tool: &DeclaredTool,
        id: &DelegationId,
        patience: Duration,
    ) -> Result<Map<String, Value>, Refusal> {
        let waited = tokio::time::timeout(patience, self.settled(id)).await;
        let delegation = match waited {
            Ok(delegation) => delegation,
            Err(_) => {
                let found = self.parts.delegations.find_delegation(id).await;
                return match found {
                    Ok(Some(delegation)) => Ok(pending(&delegation)),
                    Ok(None) => Err(Refusal::new(
                        ErrorCode::NotFound,
                        format!("there is no delegation `{id}`"),
                    )),
                    Err(error) => Err(error.refusal("try again later")),
                };
            }
        };
        self.note_heard(&delegation).await;
        let Delegation {
            end, correlation_id, ..
        } = delegation;
        match end.map(|Finished { outcome, .. }| outcome) {
            Some(Outcome::Applied(result)) => tool.delivered(result, &correlation_id),
            Some(Outcome::Failed(reason)) => {
                Err(Refusal::new(ErrorCode::UpstreamError, reason).with("correlation_id", correlation_id.as_str()))
            }
            Some(Outcome::TimedOut) | None => {
                let message = "the service did not answer in time; what it did meanwhile is not known";
                Err(Refusal::new(ErrorCode::CommandTimeout, message).with("correlation_id", correlation_id.as_str()))
            }
        }
    }

    async fn note_heard(&self, delegation: &Delegation) {
        if delegation.told {
            return;
        }
        let change = Change {
            delegations: vec![DelegationChange {
                from: Some(delegation.version),
                delegation: delegation.clone().heard(),
            }],
            ..Change::default()
        };
        match self.parts.record.commit(change).await {
            Ok(_) | Err(RecordError::DelegationMoved) => {}
            // The same call made again would hear it once more, which hurts nobody.
            Err(error) => tracing::warn!(%error, "that a result was heard could not be written down"),
        }
    }

    async fn settled(&self, id: &DelegationId) -> Delegation {
        let mut heard = self.parts.board.changes();
        loop {
            heard.mark_unchanged();
            match self.parts.delegations.find_delegation(id).await {
                Ok(Some(found)) if found.end.is_some() => return found,
                Ok(Some(found)) if found.is_due(self.parts.clock.now()) => {
                    if let Err(error) = self.finish(id, Outcome::TimedOut, &Actor::system("executor")).await {
                        tracing::warn!(%error, "an act whose time is over could not be ended");
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "a delegation cannot be looked at, trying again"),
            }
            let _ = tokio::time::timeout(limits::DECISION_POLL, heard.changed()).await;
        }
    }

    /// Ends what nobody answered in time; any process may.
    pub async fn expire_due(&self) -> Result<(), RecordError> {
        let due = self
            .parts
            .delegations
            .overdue(self.parts.clock.now(), limits::APPROVALS_AT_ONCE)
            .await?;
        for delegation in due {
            self.finish(&delegation.id, Outcome::TimedOut, &Actor::system("executor"))
                .await?;
        }
        Ok(())
    }

    /// Takes what an executor calls back, as it was [heard](Self::heard). None where it is about no act that was
    /// given to one: then it may be an answer to a question.
    pub async fn called_back(&self, callback: &Callback) -> Result<Option<Delegation>, CallbackError> {
        let says_how_it_went = match callback.word {
            Word::Applied | Word::Failed | Word::Expired => true,
            Word::Approved | Word::Denied => false,
        };
        if callback.route != Route::Executor || !says_how_it_went {
            return Ok(None);
        }
        let Some(delegation) = self.meant(&callback.meant).await? else {
            return Ok(None);
        };
        if let Err(error) = fits(callback, &delegation) {
            self.parts
                .board
                .note_of_act(callback, &delegation, Some(&error))
                .await?;
            return Err(error);
        }
        self.parts.board.note_of_act(callback, &delegation, None).await?;
        let outcome = match callback.word {
            Word::Applied | Word::Approved => Outcome::Applied(answer::result(callback.result.as_ref())),
            Word::Denied | Word::Failed | Word::Expired => {
                let mut fields = Map::new();
                fields.insert("result".to_owned(), callback.result.clone().unwrap_or_default());
                fields.insert("reason".to_owned(), callback.reason.clone().into());
                Outcome::Failed(answer::reason(&fields))
            }
        };
        Ok(self.finish(&delegation.id, outcome, &callback.actor()).await?)
    }

    async fn meant(&self, meant: &Meant) -> Result<Option<Delegation>, RecordError> {
        let delegations = &self.parts.delegations;
        let correlation = match meant {
            Meant::Act { id, .. } => return delegations.find_delegation(id).await,
            Meant::Call(correlation) => correlation.clone(),
            Meant::Question { id, .. } => match self.parts.board.find(id).await? {
                Some(question) => question.correlation_id,
                None => return Ok(None),
            },
        };
        Ok(delegations.delegations_of(&correlation).await?.pop())
    }
}

/// What a callback names besides the act must be the act's own.
fn fits(callback: &Callback, delegation: &Delegation) -> Result<(), CallbackError> {
    let correlation = match &callback.meant {
        Meant::Act { correlation_id, .. } | Meant::Question { correlation_id, .. } => correlation_id.as_ref(),
        Meant::Call(_) => None,
    };
    for (field, said, own) in [
        (
            "correlation_id",
            correlation.map(CorrelationId::as_str),
            delegation.correlation_id.as_str(),
        ),
        ("tool", callback.tool.as_deref(), delegation.tool.as_str()),
    ] {
        if let Some(said) = said.filter(|said| *said != own) {
            let said = said.chars().take(limits::NAME_CHARS_ECHOED).collect();
            return Err(CallbackError::Another { field, said });
        }
    }
    Ok(())
}
