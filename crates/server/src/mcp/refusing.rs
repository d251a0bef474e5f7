//! Refusals of one connection. Each is in the record before its client hears of it, as long as no more of them wait to be
//! written than there may be. Beyond that they are answered at once and counted, and the counts are written: a client
//! that sends faster than a disk can follow fills neither the memory nor the record, and hides nothing.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use countersign_gateway::service::RefusedEnvelope;
use serde_json::{Map, Value};

use super::connection::{Connection, Shared, State};
use super::following::Open;
use super::jsonrpc::{Id, Request};
use super::outlet::Reply;
use super::revision::Era;
use crate::limits::REFUSALS_AWAITED_MAX;

const CALL: &str = "tools/call";

/// A message that is being answered, as far as its record needs it.
pub(super) struct Envelope {
    pub(super) id: Option<Id>,
    pub(super) method: String,
    pub(super) params: Option<Map<String, Value>>,
}

impl Envelope {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            id: Some(request.id.clone()),
            method: request.method.clone(),
            params: Some(request.params.clone()),
        }
    }
}

/// Refusals that are not written one by one.
#[derive(Default)]
pub(super) struct Tally {
    counts: HashMap<Kind, u64>,
    is_being_written: bool,
}

/// Calls of tools are told apart from whatever else was refused; other methods may have any name.
type Kind = (ErrorCode, &'static str);

impl Connection {
    /// Answers with a refusal, once it is in the record.
    pub(super) fn refuse(&self, envelope: Envelope, era: Option<Era>, refusal: Refusal, reply: Reply) {
        let shared = &self.0;
        shared.host.metrics.refused(refusal.code);
        let correlation = shared.host.ids.correlation();
        let message = shared.error_named(envelope.id.as_ref(), &refusal, era, &correlation);
        let mut state = shared.state();
        if state.open >= REFUSALS_AWAITED_MAX {
            shared.count_refusal(&mut state, &envelope, refusal.code);
            drop(state);
            return reply.send(message);
        }
        let open = Open::count(shared, &mut state);
        drop(state);
        let written = shared.host.service.refused(RefusedEnvelope {
            rpc_id: envelope.id.as_ref().map(Id::to_json),
            method: envelope.method,
            params: envelope.params,
            message: refusal.message,
            correlation_id: correlation,
            ..shared.refused(refusal.code)
        });
        tokio::spawn(async move {
            let _open = open;
            written.await;
            reply.send(message);
        });
    }
}

impl Connection {
    /// Records a request that has no id. It is not done, for nobody could be told what it came to, and not answered:
    /// what has no id is a notification, whatever it asks for.
    pub(super) fn refuse_unnamed(&self, method: &str, params: Map<String, Value>) {
        let shared = &self.0;
        let code = ErrorCode::InvalidRequest;
        shared.host.metrics.refused(code);
        let envelope = Envelope {
            id: None,
            method: method.to_owned(),
            params: Some(params),
        };
        let mut state = shared.state();
        if state.open >= REFUSALS_AWAITED_MAX {
            return shared.count_refusal(&mut state, &envelope, code);
        }
        let open = Open::count(shared, &mut state);
        drop(state);
        let written = shared.host.service.refused(RefusedEnvelope {
            method: envelope.method,
            params: envelope.params,
            message: format!("`{}` came without an `id`, and was not done", brief(method)),
            ..shared.refused(code)
        });
        tokio::spawn(async move {
            let _open = open;
            written.await;
        });
    }
}

impl Shared {
    fn count_refusal(self: &Arc<Self>, state: &mut State, envelope: &Envelope, code: ErrorCode) {
        let method = if envelope.method == CALL { CALL } else { "" };
        *state.tally.counts.entry((code, method)).or_default() += 1;
        if !std::mem::replace(&mut state.tally.is_being_written, true) {
            let open = Open::count(self, state);
            let shared = Arc::clone(self);
            tokio::spawn(async move {
                let _open = open;
                shared.write_tally().await;
            });
        }
    }

    /// Writes counts until there are none: those that come while some are written go together.
    async fn write_tally(&self) {
        while let Some(counts) = self.counted() {
            for ((code, method), count) in counts {
                let written = self.host.service.refused(RefusedEnvelope {
                    method: method.to_owned(),
                    params: Some(Map::from_iter([("count".to_owned(), Value::from(count))])),
                    ..self.refused(code)
                });
                written.await;
            }
        }
    }

    /// What was counted since the last look; none where nothing was, and then nobody writes any more.
    fn counted(&self) -> Option<HashMap<Kind, u64>> {
        let mut state = self.state();
        let counts = std::mem::take(&mut state.tally.counts);
        state.tally.is_being_written = !counts.is_empty();
        state.tally.is_being_written.then_some(counts)
    }

    /// A refusal of this connection, of which no more is known than its code.
    fn refused(&self, code: ErrorCode) -> RefusedEnvelope {
        RefusedEnvelope {
            caller: Some(self.caller.clone()),
            transport: self.link.transport(),
            session: self.link.session().cloned(),
            rpc_id: None,
            method: String::new(),
            params: None,
            received_at: self.host.clock.now(),
            code,
            message: "so many more were refused with this code, too fast to be written one by one".to_owned(),
            correlation_id: self.host.ids.correlation(),
        }
    }
}
