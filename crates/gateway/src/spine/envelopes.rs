//! Messages that never became a call, in the record all the same.

use serde_json::{Value, json};

use super::Gateway;
use crate::audit::Change;
use crate::audit::event::{Actor, Draft, EventType};
use crate::limits;
use crate::service::RefusedEnvelope;

impl Gateway {
    /// Writes S2's McpRequestEnvelope of a refused message. Failing to is no reason to keep the
    /// refusal back: nothing was run.
    pub(super) async fn record_refused(&self, envelope: RefusedEnvelope) {
        let ports = &self.ports;
        let payload = json!({
            "requestId": envelope.rpc_id.as_deref().map(json_or_text),
            "method": shown(&ports.redactor.redact_text(&envelope.method)),
            "params": envelope.params.map(|params| bounded(ports.redactor.redact_json(&Value::Object(params)))),
            "sessionId": envelope.session.as_ref().map(|id| id.as_str()),
            "receivedAt": envelope.received_at.to_string(),
            "transport": envelope.transport.as_str(),
            "error_code": envelope.code.name(),
            "error_message": shown(&ports.redactor.redact_text(&envelope.message)),
        });
        let actor = envelope
            .caller
            .map_or_else(|| Actor::system("transport"), |caller| caller.actor);
        let event = Draft::new(
            ports.ids.event(),
            ports.clock.now(),
            envelope.correlation_id,
            actor,
            EventType::RequestRefused,
            &payload,
        );
        let change = Change {
            events: vec![event],
            ..Change::default()
        };
        if let Err(error) = ports.record.commit(change).await {
            tracing::warn!(%error, "a refused message could not be recorded");
        }
    }
}

fn json_or_text(id: &str) -> Value {
    serde_json::from_str(id).unwrap_or_else(|_| id.into())
}

fn shown(text: &str) -> String {
    text.chars().take(limits::REFUSED_TEXT_CHARS_MAX).collect()
}

/// Of parameters too large to keep only the size is.
fn bounded(params: Value) -> Value {
    let bytes = params.to_string().len();
    if bytes <= limits::REFUSED_PARAMS_BYTES_MAX {
        params
    } else {
        json!({"bytes": bytes})
    }
}
