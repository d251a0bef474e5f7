//! What a message means. A [`Connection`] is one client on one transport: it takes frames, answers
//! what can be answered at once, and follows each tool call in a task of its own.
//!
//! The lock is held for bookkeeping only; nothing is awaited, rendered or sent under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use countersign_gateway::service::{Cancel, Progress, Service, ToolCall};
use countersign_gateway::session::Caller;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::call::{CallKey, Calls, Outcome, Recipient, Running};
use super::jsonrpc::{self, Id, Incoming, Malformed, Message, Request};
use super::memory::{self, Judgement, Memory};
use super::outlet::{Batch, Outlet, Reply};
use super::progress::Reporter;
use super::revision::{Era, Legacy};
use super::tools::CallRequest;
use super::wire::{self, Occasion};
use super::{methods, modern};
use crate::limits::{ANSWERS_AWAITED_MAX, BATCH_MAX};

/// One client.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    service: Arc<dyn Service>,
    caller: Caller,
    ids: IdSource,
    depth_max: usize,
    state: Mutex<State>,
    /// Told each time the last running call has ended.
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// The revision agreed upon; none before `initialize`.
    session: Option<Legacy>,
    memory: Memory,
    calls: Calls,
    /// Calls whose answers have not left yet; at least as many as run.
    open: usize,
}

impl Connection {
    pub(crate) fn new(service: Arc<dyn Service>, caller: Caller, ids: IdSource, depth_max: usize) -> Self {
        Self(Arc::new(Shared {
            service,
            caller,
            ids,
            depth_max,
            state: Mutex::default(),
            settled: Notify::new(),
        }))
    }

    /// Takes one frame. Every answer it leads to goes out through `outlet`.
    pub(crate) fn receive(&self, frame: &[u8], outlet: &Arc<dyn Outlet>) {
        match jsonrpc::parse(frame, self.0.depth_max) {
            Ok(Incoming::One(message)) => self.handle(message, Reply::to(outlet), outlet),
            Ok(Incoming::Batch(members)) => self.batch(members, outlet),
            Err(malformed) => self.refuse_frame(malformed, Reply::to(outlet)),
        }
    }

    /// Answers a frame that could not be read.
    pub(crate) fn refuse_frame(&self, malformed: Malformed, reply: Reply) {
        let Malformed { id, refusal } = malformed;
        reply.send(self.0.error(id.as_ref(), &refusal, None));
    }

    /// Asks every running call to end. Who waits still hears how it ended.
    pub(crate) fn cancel_all(&self) {
        self.0.state().calls.cancel_all();
    }

    /// Resolves when no call runs and all answers are handed to their outlets.
    pub(crate) async fn settled(&self) {
        let mut settled = std::pin::pin!(self.0.settled.notified());
        loop {
            settled.as_mut().enable();
            if self.0.state().open == 0 {
                return;
            }
            settled.as_mut().await;
            settled.set(self.0.settled.notified());
        }
    }

    fn batch(&self, members: Vec<Value>, outlet: &Arc<dyn Outlet>) {
        let refusal = match self.0.state().session {
            Some(revision) if revision.has_batches() => match members.len() {
                0 => Some("a batch must not be empty".to_owned()),
                1..=BATCH_MAX => None,
                _ => Some(format!("a batch has at most {BATCH_MAX} messages")),
            },
            Some(_) | None => {
                Some("a message is a JSON object; batches are not part of this protocol version".to_owned())
            }
        };
        if let Some(message) = refusal {
            return self.refuse_frame(Malformed::invalid(None, &message), Reply::to(outlet));
        }
        let batch = Batch::to(outlet);
        for member in members {
            match jsonrpc::message(member) {
                Ok(message) => self.handle(message, batch.reply(), outlet),
                Err(malformed) => self.refuse_frame(malformed, batch.reply()),
            }
        }
    }

    fn handle(&self, message: Message, reply: Reply, outlet: &Arc<dyn Outlet>) {
        match message {
            Message::Request(request) if modern::is_modern(&request.method, &request.params) => {
                self.modern_request(request, reply, outlet);
            }
            Message::Request(request) => self.legacy_request(request, reply, outlet),
            Message::Notification { method, params } => self.notification(&method, params),
            Message::Response => {}
        }
    }

    fn notification(&self, method: &str, mut params: Map<String, Value>) {
        if method != "notifications/cancelled" {
            return;
        }
        if let Some(Ok(id)) = params.remove("requestId").map(Id::try_from) {
            let reason = params.get("reason").and_then(Value::as_str);
            tracing::debug!(?id, reason, "the client cancelled a request");
            let released = self.0.state().calls.cancel(&id);
            drop(released);
        }
    }

    fn modern_request(&self, request: Request, reply: Reply, outlet: &Arc<dyn Outlet>) {
        let Request { id, method, params } = request;
        let checked = modern::check(&params);
        let result = match (checked, method.as_str()) {
            (Ok(()), "tools/call") => match CallRequest::read(params) {
                Ok(call) => return self.start(self.0.state(), id, Era::Modern, call, reply, outlet),
                Err(refusal) => Err(refusal),
            },
            (Ok(()), method) => methods::answer(&*self.0.service, &self.0.caller, Era::Modern, method, &params),
            (Err(refusal), _) => Err(refusal),
        };
        self.settle(&id, Some(Era::Modern), result, reply);
    }

    fn legacy_request(&self, request: Request, reply: Reply, outlet: &Arc<dyn Outlet>) {
        let Request { id, method, params } = request;
        let digest = memory::digest(&method, &params);
        let mut state = self.0.state();
        let result = match (state.session, method.as_str()) {
            (None, "initialize") => methods::initialize(&params).map(|(revision, result)| {
                state.session = Some(revision);
                // Nothing is remembered yet, so this can only proceed.
                let _ = state.memory.judge(&id, digest);
                result
            }),
            (Some(_), "initialize") => Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "this session is initialized already",
            )),
            (None, "ping") => Ok(Value::Object(Map::new())),
            (None, method) => Err(Refusal::new(
                ErrorCode::SessionNotInitialized,
                format!("`{method}` came before `initialize`; send `initialize` first"),
            )),
            (Some(revision), _) => {
                let era = Era::Legacy(revision);
                return match state.memory.judge(&id, digest) {
                    Judgement::Proceed => self.proceed(state, era, Request { id, method, params }, reply, outlet),
                    Judgement::Join(key) => self.join(state, key, &id, era, reply),
                    Judgement::Replay(outcome) => {
                        drop(state);
                        reply.send(self.0.render(&id, era, &outcome, Occasion::Duplicate));
                    }
                    Judgement::Forgotten => {
                        drop(state);
                        let message = "this request was answered before and its result is no longer kept";
                        let refusal = Refusal::new(ErrorCode::DuplicateRequest, message);
                        self.settle(&id, Some(era), Err(refusal), reply);
                    }
                    Judgement::Conflict => {
                        drop(state);
                        let message = "this request id was used before for another request; use each id once";
                        let refusal = Refusal::new(ErrorCode::DuplicateRequest, message);
                        self.settle(&id, Some(era), Err(refusal), reply);
                    }
                };
            }
        };
        let era = state.session.map(Era::Legacy);
        drop(state);
        self.settle(&id, era, result, reply);
    }

    fn proceed(
        &self,
        state: MutexGuard<'_, State>,
        era: Era,
        request: Request,
        reply: Reply,
        outlet: &Arc<dyn Outlet>,
    ) {
        let Request { id, method, params } = request;
        if method == "tools/call" {
            match CallRequest::read(params) {
                Ok(call) => self.start(state, id, era, call, reply, outlet),
                Err(refusal) => {
                    drop(state);
                    self.settle(&id, Some(era), Err(refusal), reply);
                }
            }
        } else {
            drop(state);
            let result = methods::answer(&*self.0.service, &self.0.caller, era, &method, &params);
            self.settle(&id, Some(era), result, reply);
        }
    }

    fn join(&self, mut state: MutexGuard<'_, State>, key: CallKey, id: &Id, era: Era, reply: Reply) {
        let occasion = Occasion::Duplicate;
        if state.calls.awaited() >= ANSWERS_AWAITED_MAX {
            drop(state);
            return self.settle(id, Some(era), Err(too_many()), reply);
        }
        let joined = state.calls.join(key, Recipient { reply, occasion });
        debug_assert!(joined.is_ok(), "the memory says running, the calls say not");
    }

    /// Begins a call. It goes on in a task of its own and settles by its key.
    fn start(
        &self,
        mut state: MutexGuard<'_, State>,
        id: Id,
        era: Era,
        call: CallRequest,
        reply: Reply,
        outlet: &Arc<dyn Outlet>,
    ) {
        if state.calls.awaited() >= ANSWERS_AWAITED_MAX {
            drop(state);
            return self.settle(&id, Some(era), Err(too_many()), reply);
        }
        let (handle, cancel) = Cancel::new();
        let reporter = call
            .progress_token
            .map(|token| Arc::new(Reporter::new(token, era, outlet)));
        let occasion = Occasion::First;
        let key = state.calls.start(Running {
            id: id.clone(),
            era,
            recipients: vec![Recipient { reply, occasion }],
            cancel: handle,
            progress: reporter.clone(),
        });
        state.open += 1;
        if era != Era::Modern {
            state.memory.begin(&id, key);
        }
        drop(state);
        let call = ToolCall {
            tool: call.tool,
            arguments: call.arguments,
            progress: reporter.map(|reporter| reporter as Arc<dyn Progress>),
            cancel,
        };
        let followed = Followed {
            shared: Arc::clone(&self.0),
            key,
            outcome: None,
        };
        tokio::spawn(async move {
            let shared = &followed.shared;
            let outcome = shared.service.call(shared.caller.clone(), call).await;
            followed.end(outcome);
        });
    }

    fn settle(&self, id: &Id, era: Option<Era>, result: Result<Value, Refusal>, reply: Reply) {
        reply.send(match result {
            Ok(result) => wire::result(id, &result),
            Err(refusal) => self.0.error(Some(id), &refusal, era),
        });
    }
}

/// A call in its task. However the task ends, also by a panic, the call settles.
struct Followed {
    shared: Arc<Shared>,
    key: CallKey,
    outcome: Option<Outcome>,
}

impl Followed {
    fn end(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| {
            tracing::error!("a call ended without an outcome");
            Err(Refusal::new(
                ErrorCode::InternalError,
                "the call ended without an answer; whether it acted is in the record",
            ))
        });
        self.shared.end(self.key, outcome);
    }
}

impl Shared {
    fn end(&self, key: CallKey, outcome: Outcome) {
        let outcome = Arc::new(outcome);
        let mut state = self.state();
        let Some(running) = state.calls.end(key) else {
            return;
        };
        if let Some(progress) = &running.progress {
            progress.close();
        }
        if running.era != Era::Modern {
            state
                .memory
                .end(&running.id, key, Arc::clone(&outcome), weight(&outcome));
        }
        drop(state);
        for Recipient { reply, occasion } in running.recipients {
            reply.send(self.render(&running.id, running.era, &outcome, occasion));
        }
        let mut state = self.state();
        state.open -= 1;
        if state.open == 0 {
            self.settled.notify_waiters();
        }
    }

    fn render(&self, id: &Id, era: Era, outcome: &Outcome, occasion: Occasion) -> Vec<u8> {
        match outcome {
            Ok(answer) => wire::answer(id, answer, era, occasion),
            Err(refusal) => self.error(Some(id), refusal, Some(era)),
        }
    }

    fn error(&self, id: Option<&Id>, refusal: &Refusal, era: Option<Era>) -> Vec<u8> {
        let code = match (refusal.code, era) {
            // The modern era gave this case another number.
            (ErrorCode::ResourceNotFound, Some(Era::Modern)) => ErrorCode::InvalidParams.json_rpc(),
            (code, _) => code.json_rpc(),
        };
        let correlation = self.ids.correlation();
        tracing::debug!(%correlation, code = refusal.code.name(), message = refusal.message, "refused");
        wire::error(id, code, refusal, &correlation)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_many() -> Refusal {
    let message = format!("{ANSWERS_AWAITED_MAX} requests of this client are waiting; let some end first");
    Refusal::new(ErrorCode::RateLimited, message)
}

/// Roughly the bytes an outcome holds.
fn weight(outcome: &Outcome) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
            Value::String(text) => size_of::<Value>() + text.len(),
            Value::Array(items) => items.iter().map(of).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + of(value)).sum(),
        }
    }
    match outcome {
        Ok(answer) => answer.text.len() + of(&answer.structured),
        Err(refusal) => refusal.message.len() + refusal.details.values().map(of).sum::<usize>(),
    }
}
