//! What the record says of asking somebody outside: that a question reached them and what they said at
//! once, or that they could not be reached.

use std::sync::Arc;

use super::request::ApprovalRequest;
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::payload::Object;
use crate::audit::redact::Redactor;
use crate::audit::{Change, Record};
use crate::clock::Clock;
use crate::ids::IdSource;
use crate::limits;

/// Where an approver of this process writes down how asking went.
#[derive(Clone)]
pub struct Journal {
    pub record: Arc<dyn Record>,
    pub redactor: Redactor,
    pub clock: Clock,
    pub ids: IdSource,
}

/// How asking went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asking {
    /// They have the question, and said this at once: `pending`, or a decision.
    Reached { said: String },
    /// They may have the question; no answer came.
    Unanswered { reason: String },
    /// They do not have the question, and are asked again.
    Unreachable { reason: String },
    /// They do not have the question, and are not asked again.
    GivenUp { reason: String },
}

impl Journal {
    /// Writes down how asking went. A question is answered by others even if this cannot be written.
    pub async fn note(&self, question: &ApprovalRequest, approver: &str, tries: u32, asking: &Asking) {
        let (kind, outcome, text) = match asking {
            Asking::Reached { said } => (EventType::ApproverAsked, "reached", said),
            Asking::Unanswered { reason } => (EventType::ApproverAsked, "unanswered", reason),
            Asking::Unreachable { reason } => (EventType::ApproverUnreachable, "retrying", reason),
            Asking::GivenUp { reason } => (EventType::ApproverUnreachable, "given-up", reason),
        };
        let text: String = self
            .redactor
            .redact_text(text)
            .chars()
            .take(limits::REASON_CHARS_MAX)
            .collect();
        let payload = Object::new()
            .text("approval_id", question.id.as_str())
            .text("approver", approver)
            .text("outcome", outcome)
            .text("answer", &text)
            .whole("tries", tries.into())
            .finish();
        let (id, now) = (self.ids.event(), self.clock.now());
        let correlation = question.correlation_id.clone();
        let event = Draft::new(id, now, correlation, Actor::system(approver), kind, payload);
        let change = Change {
            events: vec![event.in_state(question.state())],
            ..Change::default()
        };
        if let Err(error) = self.record.commit(change).await {
            tracing::warn!(%error, approver, "how an approver was asked could not be recorded");
        }
    }
}
