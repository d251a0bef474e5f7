//! Messages that never became a call, in the record all the same.

use serde_json::Value;

use super::Gateway;
use crate::audit::Change;
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::invocation::{presentable_arguments, presentable_id};
use crate::audit::payload::{Object, Payload};
use crate::error::ErrorCode;
use crate::limits;
use crate::service::RefusedEnvelope;

impl Gateway {
    /// Writes S2's McpRequestEnvelope of a refused message. Failing to is no reason to keep the
    /// refusal back: nothing was run.
    pub(super) async fn record_refused(&self, envelope: RefusedEnvelope) {
        let ports = &self.ports;
        let mark = envelope.session.as_ref().map(|session| session.mark());
        let rpc_id = envelope.rpc_id.as_deref();
        let rpc_id = rpc_id.map(|id| presentable_id(&ports.redactor, id));
        let mut object = Object::new()
            .text("method", &self.shown(&envelope.method))
            .optional_text("session_id", mark.as_deref())
            .optional_text("rpc_id", rpc_id.as_deref())
            .text("received_at", &envelope.received_at.to_string())
            .text("transport", envelope.transport.as_str())
            .text("error_code", envelope.code.name())
            .text("error_message", &self.shown(&envelope.message));
        if let Some(params) = &envelope.params {
            object = object.part("params", &Payload::from(&self.shown_params(params)));
        }
        let actor = envelope
            .caller
            .map_or_else(|| Actor::system("transport"), |caller| caller.actor);
        let event = Draft::new(
            ports.ids.event(),
            ports.clock.now(),
            envelope.correlation_id,
            actor,
            refused_as(envelope.code),
            object.finish(),
        );
        let change = Change {
            events: vec![event],
            ..Change::default()
        };
        if let Err(error) = ports.record.commit(change).await {
            tracing::warn!(%error, "a refused message could not be recorded");
        }
    }

    /// Text that nobody checked, of any length.
    fn shown(&self, text: &str) -> String {
        // Cut before it is searched for secrets, but not so short that a secret's name is lost.
        let head: String = text.chars().take(4 * limits::REFUSED_TEXT_CHARS_MAX).collect();
        let clean = self.ports.redactor.redact_text(&head);
        clean.chars().take(limits::REFUSED_TEXT_CHARS_MAX).collect()
    }

    /// Parameters as they may be kept; the arguments of a call by their own rules.
    fn shown_params(&self, params: &serde_json::Map<String, Value>) -> Value {
        let redactor = &self.ports.redactor;
        let mut shown = presentable_arguments(redactor, params);
        if let (Some(Value::Object(arguments)), Value::Object(shown)) = (params.get("arguments"), &mut shown) {
            shown.insert("arguments".to_owned(), presentable_arguments(redactor, arguments));
        }
        let bytes = shown.to_string().len();
        if bytes <= limits::REFUSED_PARAMS_BYTES_MAX {
            shown
        } else {
            serde_json::json!({"bytes": bytes})
        }
    }
}

/// Who could not show who they are is another matter than a message that was wrong.
fn refused_as(code: ErrorCode) -> EventType {
    match code {
        ErrorCode::Unauthenticated => EventType::AuthRefused,
        _ => EventType::RequestRefused,
    }
}
