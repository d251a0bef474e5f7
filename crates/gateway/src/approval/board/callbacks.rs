//! Callbacks: an answer that somebody outside sends back. Each is in the record before it counts.

use serde_json::Value;

use super::super::ballot::{Ballot, Choice, Decider};
use super::super::callback::{Callback, CallbackError, Meant, Route};
use super::super::request::{ApprovalRequest, ApprovalType};
use super::{Board, Decided};
use crate::audit::event::{Actor, ApprovalState, Draft, EventType};
use crate::audit::payload::{Object, Payload};
use crate::audit::{Change, RecordError};
use crate::delegation::Delegation;
use crate::ids::CorrelationId;
use crate::limits;

impl Board {
    /// Takes a callback. The first decision stands: a repeated or a late one is told what it was.
    pub async fn called_back(&self, callback: Callback) -> Result<Decided, CallbackError> {
        let found = self.meant(&callback.meant).await;
        let checked = found.and_then(|approval| fits(&callback, approval));
        let approval = match checked {
            Ok(approval) => approval,
            Err(error) => {
                self.note_refused(&callback, &error).await?;
                return Err(error);
            }
        };
        // An executor that was asked a question has answered it once it is done.
        let choice = match (callback.word.choice(), approval.kind, &callback.answer) {
            (None, ApprovalType::Question, Some(_)) => Some(Choice::Allow),
            (choice, _, _) => choice,
        };
        let Some(choice) = choice else {
            let error = CallbackError::NotDelegated;
            self.note_refused(&callback, &error).await?;
            return Err(error);
        };
        let told = self.told_of(&callback).text("approval_id", approval.id.as_str());
        self.note_callback(&approval.correlation_id, callback.actor(), told, Some(approval.state()))
            .await?;
        let ballot = Ballot {
            choice,
            by: Decider::callback(callback.actor()),
            reason: callback.reason.unwrap_or_else(|| callback.word.reason().to_owned()),
            answer: callback.answer,
        };
        Ok(self.decide(&approval.id, ballot).await?)
    }

    /// Writes down a callback that could not be read.
    pub async fn misread_callback(&self, route: Route, message: &str) -> Result<(), RecordError> {
        let told = Object::new()
            .text("route", route.as_str())
            .text("outcome", "refused")
            .text("error", &self.clean(message));
        let actor = Actor::system(super::super::callback::NAMELESS);
        self.note_callback(&self.parts.ids.correlation(), actor, told, None)
            .await
    }

    /// The question that is meant. A call that asked more than once is not guessed at: a callback about
    /// its first question, sent again, would answer the second.
    async fn meant(&self, meant: &Meant) -> Result<ApprovalRequest, CallbackError> {
        match meant {
            Meant::Question { id, .. } => {
                let found = self.parts.approvals.find(id).await?;
                found.ok_or_else(|| CallbackError::Unknown(id.to_string()))
            }
            // Whoever keeps such acts was asked first, and has none of this name.
            Meant::Act { id, .. } => Err(CallbackError::Unknown(id.to_string())),
            Meant::Call(correlation) => {
                let mut found = self.parts.approvals.of_correlation(correlation).await?;
                match (found.pop(), found.is_empty()) {
                    (None, _) => Err(CallbackError::Unknown(correlation.to_string())),
                    (Some(only), true) => Ok(only),
                    (Some(_), false) => Err(CallbackError::Ambiguous(correlation.to_string())),
                }
            }
        }
    }

    /// Writes down a callback about an act that was given to an executor.
    pub(crate) async fn note_of_act(
        &self,
        callback: &Callback,
        delegation: &Delegation,
        error: Option<&CallbackError>,
    ) -> Result<(), RecordError> {
        let told = self.told_of(callback).text("delegation_id", delegation.id.as_str());
        let told = match error {
            Some(error) => told
                .text("outcome", "refused")
                .text("error", &self.clean(&error.to_string())),
            None => told,
        };
        self.note_callback(&delegation.correlation_id, callback.actor(), told, None)
            .await
    }

    async fn note_refused(&self, callback: &Callback, error: &CallbackError) -> Result<(), RecordError> {
        let correlation = match &callback.meant {
            Meant::Question {
                correlation_id: Some(correlation),
                ..
            }
            | Meant::Act {
                correlation_id: Some(correlation),
                ..
            }
            | Meant::Call(correlation) => correlation.clone(),
            Meant::Question {
                correlation_id: None, ..
            }
            | Meant::Act {
                correlation_id: None, ..
            } => self.parts.ids.correlation(),
        };
        let told = self
            .told_of(callback)
            .text("outcome", "refused")
            .text("error", &self.clean(&error.to_string()));
        self.note_callback(&correlation, callback.actor(), told, None).await
    }

    async fn note_callback(
        &self,
        correlation: &CorrelationId,
        by: Actor,
        told: Object,
        state: Option<ApprovalState>,
    ) -> Result<(), RecordError> {
        let (now, id) = (self.parts.clock.now(), self.parts.ids.event());
        let kind = EventType::CallbackReceived;
        let mut event = Draft::new(id, now, correlation.clone(), by, kind, told.finish());
        event.approval_state = state;
        let change = Change {
            events: vec![event],
            ..Change::default()
        };
        self.parts.record.commit(change).await.map(drop)
    }

    fn told_of(&self, callback: &Callback) -> Object {
        let clean = |text: &Option<String>| text.as_deref().map(|text| self.clean(text));
        let named = match &callback.meant {
            Meant::Question { id, .. } => Some(self.clean(id.as_str())),
            Meant::Call(_) | Meant::Act { .. } => None,
        };
        let told = Object::new()
            .text("route", callback.route.as_str())
            .text("decision", callback.word.as_str())
            .optional_text("approval_request_id", named.as_deref())
            .optional_text("reason", clean(&callback.reason).as_deref())
            .optional_text("tool", clean(&callback.tool).as_deref())
            .optional_text("request_id", clean(&callback.request_id).as_deref());
        match &callback.metadata {
            Some(metadata) => told.part("metadata", &self.kept(metadata)),
            None => told,
        }
    }

    /// What a callback says besides, without secrets and not for ever long.
    fn kept(&self, metadata: &Value) -> Payload {
        let clean = self.parts.redactor.redact_json(metadata);
        let kept = Payload::from(&clean);
        if kept.as_str().len() <= limits::METADATA_BYTES_KEPT {
            kept
        } else {
            Payload::from(&Value::from("left out: it was too long"))
        }
    }
}

/// What a callback names besides the question must be the question's own.
fn fits(callback: &Callback, approval: ApprovalRequest) -> Result<ApprovalRequest, CallbackError> {
    let correlation = match &callback.meant {
        Meant::Question { correlation_id, .. } => correlation_id.as_ref().map(CorrelationId::as_str),
        Meant::Call(_) | Meant::Act { .. } => None,
    };
    let tool = callback.tool.as_deref();
    for (field, said, own) in [
        ("correlation_id", correlation, approval.correlation_id.as_str()),
        ("tool", tool, approval.tool.as_str()),
    ] {
        if let Some(said) = said.filter(|said| *said != own) {
            let said = said.chars().take(limits::NAME_CHARS_ECHOED).collect();
            return Err(CallbackError::Another { field, said });
        }
    }
    Ok(approval)
}
