//! What a message means. A [`Connection`] is one client on one transport: it takes messages, answers
//! what can be answered at once, and follows each tool call in a task of its own. What it refuses is
//! in the record before the client hears of it.
//!
//! The lock is held for bookkeeping only; nothing is awaited, rendered or sent under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{CorrelationId, RequestId};
use countersign_gateway::service::{Cancel, Origin, Progress, RefusedEnvelope, ToolCall};
use countersign_gateway::session::Caller;
use countersign_gateway::session::lifetime::{ClientInfo, KeptSession, Session, SessionStep, Touched};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::call::{CallKey, Calls, Outcome, Recipient, Running};
use super::host::{Host, Link};
use super::jsonrpc::{self, Id, Incoming, Malformed, Message, Request};
use super::memory::{self, Asked, Judgement, Kept, Memory};
use super::methods::Opening;
use super::outlet::{Batch, Outgoing, Outlet, Reply};
use super::progress::Reporter;
use super::revision::{Era, Legacy};
use super::tools::CallRequest;
use super::wire::{self, Occasion};
use super::{methods, modern};
use crate::limits::{ANSWERS_AWAITED_MAX, BATCH_MAX, REFUSALS_AWAITED_MAX};

/// One client.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    host: Arc<Host>,
    caller: Caller,
    link: Link,
    state: Mutex<State>,
    /// Told each time nothing is open any more.
    settled: Notify,
}

struct State {
    /// The revision agreed upon; none before `initialize`.
    session: Option<Legacy>,
    memory: Memory,
    calls: Calls,
    /// Requests whose answers have not left yet; at least as many as calls run.
    open: usize,
}

/// A message that is being answered, as far as its record needs it.
struct Envelope {
    id: Option<Id>,
    method: String,
    params: Option<Map<String, Value>>,
}

impl Envelope {
    fn of(request: &Request) -> Self {
        Self {
            id: Some(request.id.clone()),
            method: request.method.clone(),
            params: Some(request.params.clone()),
        }
    }
}

impl Connection {
    pub(crate) fn new(host: &Arc<Host>, caller: Caller, link: Link) -> Self {
        let memory = Memory::new(link.reuse());
        Self::with(host, caller, link, None, memory)
    }

    /// A session that this process did not see begin, or had put away.
    pub(crate) fn restored(host: &Arc<Host>, caller: Caller, link: Link, kept: KeptSession) -> Self {
        let KeptSession { session, requests } = kept;
        let revision = session.client.protocol_version.as_deref().map(Legacy::negotiate);
        let memory = Memory::restored(link.reuse(), session.reuses_ids, requests);
        Self::with(host, caller, link, revision, memory)
    }

    fn with(host: &Arc<Host>, caller: Caller, link: Link, session: Option<Legacy>, memory: Memory) -> Self {
        Self(Arc::new(Shared {
            host: Arc::clone(host),
            caller,
            link,
            state: Mutex::new(State {
                session,
                memory,
                calls: Calls::default(),
                open: 0,
            }),
            settled: Notify::new(),
        }))
    }

    /// Takes one frame. Every answer it leads to goes out through `outlet`.
    pub(crate) fn receive(&self, frame: &[u8], outlet: &Arc<dyn Outlet>) {
        match jsonrpc::parse(frame, self.0.host.depth_max) {
            Ok(incoming) => self.take(incoming, outlet),
            Err(malformed) => self.refuse_frame(malformed, Reply::to(outlet)),
        }
    }

    /// Takes what a frame held.
    pub(crate) fn take(&self, incoming: Incoming, outlet: &Arc<dyn Outlet>) {
        match incoming {
            Incoming::One(message) => self.handle(message, Reply::to(outlet), outlet),
            Incoming::Batch(members) => self.batch(members, outlet),
        }
    }

    /// Answers a frame that could not be read.
    pub(crate) fn refuse_frame(&self, malformed: Malformed, reply: Reply) {
        let Malformed { id, refusal } = malformed;
        let envelope = Envelope {
            id,
            method: String::new(),
            params: None,
        };
        self.refuse(envelope, None, *refusal, reply);
    }

    /// The revision this session speaks; none before `initialize`.
    pub(crate) fn revision(&self) -> Option<Legacy> {
        self.0.state().session
    }

    /// Whether anything is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.state().open > 0
    }

    /// The session ends here, if it ever began.
    pub(crate) async fn close_session(&self) {
        let (Some(id), Some(_)) = (self.0.link.session(), self.revision()) else {
            return;
        };
        let host = &self.0.host;
        let closed = async {
            let Some(kept) = host.sessions.find(id).await? else {
                return Ok(());
            };
            let from = kept.session.state();
            match kept.session.step(SessionStep::Close, host.clock.now()) {
                Ok(session) => host.sessions.advance(session, from).await,
                Err(_) => Ok(()),
            }
        };
        if let Err(refusal) = closed.await {
            tracing::warn!(reason = refusal.message, "the end of a session could not be recorded");
        }
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
        let refusal = match modern::check(&request.params) {
            Ok(()) if request.method == "tools/call" => match CallRequest::read(&request.params) {
                Ok(call) => {
                    return self.start(self.0.state(), request, None, Era::Modern, call, reply, outlet);
                }
                Err(refusal) => refusal,
            },
            Ok(()) => return self.answer(request, Era::Modern, reply),
            Err(refusal) => refusal,
        };
        self.refuse(Envelope::of(&request), Some(Era::Modern), refusal, reply);
    }

    fn legacy_request(&self, request: Request, reply: Reply, outlet: &Arc<dyn Outlet>) {
        let asked = Asked {
            id: request.id.clone(),
            digest: memory::digest(&request.method, &request.params),
        };
        let mut state = self.0.state();
        let Some(revision) = state.session else {
            return self.before_initialize(state, request, asked, reply);
        };
        let era = Era::Legacy(revision);
        if request.method == "initialize" {
            drop(state);
            let refusal = Refusal::new(ErrorCode::InvalidRequest, "this session is initialized already");
            return self.refuse(Envelope::of(&request), Some(era), refusal, reply);
        }
        let reused_ids = state.memory.reuses_ids();
        let judgement = state.memory.judge(&asked);
        if self.0.link.lasts() && !reused_ids && state.memory.reuses_ids() {
            self.note_reuse();
        }
        let again = |message| Refusal::new(ErrorCode::DuplicateRequest, message);
        let refusal = match judgement {
            Judgement::Proceed => return self.proceed(state, era, request, asked, reply, outlet),
            Judgement::Join(key) => return self.join(state, key, request, era, reply),
            Judgement::Replay(outcome) => {
                drop(state);
                return reply.send(self.0.render(&request.id, era, &outcome, Occasion::Duplicate));
            }
            Judgement::Recall(command) => return self.recall(state, request.id, era, command, reply),
            Judgement::Forgotten => again("this request was answered before and its result is no longer kept"),
            Judgement::Conflict => again("this request id was used before for another request; use each id once"),
        };
        drop(state);
        self.refuse(Envelope::of(&request), Some(era), refusal, reply);
    }

    /// A request without a session: only a handshake begins one.
    fn before_initialize(&self, mut state: MutexGuard<'_, State>, request: Request, asked: Asked, reply: Reply) {
        let refusal = match request.method.as_str() {
            "initialize" => match methods::initialize(&request.params) {
                Ok(opening) => {
                    state.session = Some(opening.revision);
                    // Nothing is remembered yet, so this can only proceed.
                    let _ = state.memory.judge(&asked);
                    return self.open_session(state, request, opening, reply);
                }
                Err(refusal) => refusal,
            },
            "ping" => {
                drop(state);
                return reply.send(Outgoing::answer(wire::result(&request.id, &Value::Object(Map::new()))));
            }
            method => Refusal::new(
                ErrorCode::SessionNotInitialized,
                format!("`{method}` came before `initialize`; send `initialize` first"),
            ),
        };
        drop(state);
        self.refuse(Envelope::of(&request), None, refusal, reply);
    }

    /// Enters the session into the store. The handshake is answered when it is there, except on
    /// pipes: that session ends with them, and a client may send more without waiting for the answer.
    fn open_session(&self, mut state: MutexGuard<'_, State>, request: Request, opening: Opening, reply: Reply) {
        let open = Open::count(&self.0, &mut state);
        drop(state);
        let Opening {
            revision,
            client,
            result,
        } = opening;
        let answer = Outgoing::answer(wire::result(&request.id, &result));
        let connection = self.clone();
        if let Link::Stdio(_) = self.0.link {
            reply.send(answer);
            tokio::spawn(async move {
                let _open = open;
                if let Err(refusal) = connection.0.enter(client).await {
                    tracing::warn!(reason = refusal.message, "the session could not be recorded");
                }
            });
            return;
        }
        tokio::spawn(async move {
            let _open = open;
            match connection.0.enter(client).await {
                Ok(()) => reply.send(answer),
                Err(refusal) => {
                    connection.0.state().session = None;
                    let era = Some(Era::Legacy(revision));
                    reply.send(connection.0.error(Some(&request.id), &refusal, era));
                }
            }
        });
    }

    fn proceed(
        &self,
        state: MutexGuard<'_, State>,
        era: Era,
        request: Request,
        asked: Asked,
        reply: Reply,
        outlet: &Arc<dyn Outlet>,
    ) {
        if request.method != "tools/call" {
            drop(state);
            return self.answer(request, era, reply);
        }
        match CallRequest::read(&request.params) {
            Ok(call) => self.start(state, request, Some(asked), era, call, reply, outlet),
            Err(refusal) => {
                drop(state);
                self.refuse(Envelope::of(&request), Some(era), refusal, reply);
            }
        }
    }

    /// Answers what can be answered at once.
    fn answer(&self, request: Request, era: Era, reply: Reply) {
        let shared = &self.0;
        match methods::answer(&shared.host, &shared.caller, era, &request.method, &request.params) {
            Ok(result) => reply.send(Outgoing::answer(wire::result(&request.id, &result))),
            Err(refusal) => self.refuse(Envelope::of(&request), Some(era), refusal, reply),
        }
    }

    fn join(&self, mut state: MutexGuard<'_, State>, key: CallKey, request: Request, era: Era, reply: Reply) {
        let occasion = Occasion::Duplicate;
        if state.calls.awaited() >= ANSWERS_AWAITED_MAX {
            drop(state);
            return self.refuse(Envelope::of(&request), Some(era), too_many(), reply);
        }
        let joined = state.calls.join(key, Recipient { reply, occasion });
        debug_assert!(joined.is_ok(), "the memory says running, the calls say not");
    }

    /// Answers a request that was made before with what the record has of it.
    fn recall(&self, mut state: MutexGuard<'_, State>, id: Id, era: Era, command: RequestId, reply: Reply) {
        let open = Open::count(&self.0, &mut state);
        drop(state);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _open = open;
            let outcome = shared.host.service.recall(shared.caller.clone(), command).await;
            reply.send(shared.render(&id, era, &outcome, Occasion::Duplicate));
        });
    }

    /// Begins a call. It goes on in a task of its own and settles by its key.
    #[expect(
        clippy::too_many_arguments,
        reason = "a call is all of this, and nobody else makes one"
    )]
    fn start(
        &self,
        mut state: MutexGuard<'_, State>,
        request: Request,
        asked: Option<Asked>,
        era: Era,
        call: CallRequest,
        reply: Reply,
        outlet: &Arc<dyn Outlet>,
    ) {
        if state.calls.awaited() >= ANSWERS_AWAITED_MAX {
            drop(state);
            return self.refuse(Envelope::of(&request), Some(era), too_many(), reply);
        }
        let origin = self.0.origin(&request.id, asked.as_ref());
        let (handle, cancel) = Cancel::new();
        let reporter = call
            .progress_token
            .map(|token| Arc::new(Reporter::new(token, era, outlet)));
        let occasion = Occasion::First;
        let open = Open::count(&self.0, &mut state);
        self.0.host.metrics.call_began();
        let key = state.calls.start(Running {
            id: request.id,
            asked: asked.clone(),
            era,
            tool: call.tool.clone(),
            began: Instant::now(),
            recipients: vec![Recipient { reply, occasion }],
            cancel: handle,
            progress: reporter.clone(),
        });
        if let Some(asked) = &asked {
            state.memory.begin(asked, key);
        }
        drop(state);
        let call = ToolCall {
            tool: call.tool,
            arguments: call.arguments,
            progress: reporter.map(|reporter| reporter as Arc<dyn Progress>),
            cancel,
            origin,
        };
        let followed = Followed {
            open,
            key,
            outcome: None,
        };
        tokio::spawn(async move {
            let shared = &followed.open.0;
            let outcome = shared.host.service.call(shared.caller.clone(), call).await;
            followed.end(outcome);
        });
    }

    /// Answers with a refusal, once it is in the record.
    fn refuse(&self, envelope: Envelope, era: Option<Era>, refusal: Refusal, reply: Reply) {
        let shared = &self.0;
        shared.host.metrics.refused(refusal.code);
        let correlation = shared.host.ids.correlation();
        let message = shared.error_named(envelope.id.as_ref(), &refusal, era, &correlation);
        let mut state = shared.state();
        if state.open >= REFUSALS_AWAITED_MAX {
            drop(state);
            tracing::warn!(
                code = refusal.code.name(),
                "refused without a record: too many wait to be written"
            );
            return reply.send(message);
        }
        let open = Open::count(shared, &mut state);
        drop(state);
        let written = shared.host.service.refused(RefusedEnvelope {
            caller: Some(shared.caller.clone()),
            transport: shared.link.transport(),
            session: shared.link.session().cloned(),
            rpc_id: envelope.id.as_ref().map(Id::to_json),
            method: envelope.method,
            params: envelope.params,
            received_at: shared.host.clock.now(),
            code: refusal.code,
            message: refusal.message,
            correlation_id: correlation,
        });
        tokio::spawn(async move {
            let _open = open;
            written.await;
            reply.send(message);
        });
    }

    /// The session remembers from now on, beyond this process, that its client reuses ids.
    fn note_reuse(&self) {
        let Some(id) = self.0.link.session().cloned() else {
            return;
        };
        let host = &self.0.host;
        let noted = host.sessions.touch(vec![Touched {
            id,
            at: host.clock.now(),
            reuses_ids: true,
        }]);
        tokio::spawn(async move {
            if let Err(refusal) = noted.await {
                tracing::warn!(reason = refusal.message, "a session's habit could not be noted");
            }
        });
    }
}

/// Counts as open until it is dropped.
struct Open(Arc<Shared>);

impl Open {
    fn count(shared: &Arc<Shared>, state: &mut State) -> Self {
        state.open += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        if state.open == 0 {
            self.0.settled.notify_waiters();
        }
    }
}

/// A call in its task. However the task ends, also by a panic, the call settles.
struct Followed {
    open: Open,
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
        self.open.0.end(self.key, outcome);
    }
}

impl Shared {
    fn end(&self, key: CallKey, outcome: Outcome) {
        let outcome = Arc::new(outcome);
        let mut state = self.state();
        let Some(running) = state.calls.end(key) else {
            return;
        };
        let metrics = &self.host.metrics;
        metrics.call_ended(&running.tool, &outcome, running.began.elapsed());
        if let Some(asked) = &running.asked {
            let kept = self.kept(&outcome);
            state.memory.end(asked, key, kept);
        }
        drop(state);
        if let Some(progress) = &running.progress {
            progress.close();
        }
        for Recipient { reply, occasion } in running.recipients {
            reply.send(self.render(&running.id, running.era, &outcome, occasion));
        }
    }

    /// What the session keeps of an ended call. A session that lasts holds no results: the record does.
    fn kept(&self, outcome: &Arc<Outcome>) -> Kept {
        match &**outcome {
            Ok(answer) if self.link.lasts() => answer.command.clone().map_or(Kept::Nothing, Kept::InRecord),
            Err(_) if self.link.lasts() => Kept::Nothing,
            Ok(_) | Err(_) => Kept::Here(Arc::clone(outcome), weight(outcome)),
        }
    }

    fn origin(&self, id: &Id, asked: Option<&Asked>) -> Origin {
        // A modern request has no session, whatever connection it came on.
        let session = asked.and_then(|_| self.link.session().cloned());
        Origin {
            remembered: asked.filter(|_| self.link.lasts()).map(|asked| asked.digest),
            session,
            rpc_id: Some(id.to_json()),
        }
    }

    /// Writes the initialized session; a stream that had one already takes it a step further.
    async fn enter(&self, client: ClientInfo) -> Result<(), Refusal> {
        let Some(id) = self.link.session() else {
            return Ok(());
        };
        let now = self.host.clock.now();
        let initialized = |session: Session| {
            let session = session.of(client);
            session
                .step(SessionStep::Initialize, now)
                .map_err(|illegal| Refusal::new(ErrorCode::SessionNotFound, format!("{illegal}; begin a new session")))
        };
        match self.link {
            Link::Sse(_) => {
                let kept = self.host.sessions.find(id).await?;
                let session = kept.map(|kept| kept.session).ok_or_else(|| {
                    Refusal::new(ErrorCode::SessionNotFound, "this session has ended; open a new stream")
                })?;
                let from = session.state();
                self.host.sessions.advance(initialized(session)?, from).await
            }
            Link::Stdio(_) | Link::Streamable(_) | Link::Stateless => {
                let session = Session::new(id.clone(), &self.caller, now);
                self.host.sessions.open(initialized(session)?).await
            }
        }
    }

    fn render(&self, id: &Id, era: Era, outcome: &Outcome, occasion: Occasion) -> Outgoing {
        match outcome {
            Ok(answer) => Outgoing::answer(wire::answer(id, answer, era, occasion)),
            Err(refusal) => self.error(Some(id), refusal, Some(era)),
        }
    }

    fn error(&self, id: Option<&Id>, refusal: &Refusal, era: Option<Era>) -> Outgoing {
        self.error_named(id, refusal, era, &self.host.ids.correlation())
    }

    fn error_named(
        &self,
        id: Option<&Id>,
        refusal: &Refusal,
        era: Option<Era>,
        correlation: &CorrelationId,
    ) -> Outgoing {
        let code = match (refusal.code, era) {
            // The modern era gave this case another number.
            (ErrorCode::ResourceNotFound, Some(Era::Modern)) => ErrorCode::InvalidParams.json_rpc(),
            (code, _) => code.json_rpc(),
        };
        tracing::debug!(%correlation, code = refusal.code.name(), message = refusal.message, "refused");
        Outgoing::error(wire::error(id, code, refusal, correlation), refusal.code)
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
