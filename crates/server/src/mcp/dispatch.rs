//! What a message means. A [`Connection`] is one client on one transport: it takes messages, answers
//! what can be answered at once, and follows each tool call in a task of its own. What it refuses is
//! in the record before the client hears of it.
//!
//! The lock is held for bookkeeping only; nothing is awaited, rendered or sent under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use countersign_gateway::ids::RequestId;
use countersign_gateway::job::news::{JobTold, PROGRESS};
use countersign_gateway::service::RefusedEnvelope;
use countersign_gateway::session::Caller;
use countersign_gateway::session::lifetime::{ClientInfo, KeptRequest, KeptSession, Session, SessionStep, Touched};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::call::{CallKey, Calls, Recipient};
use super::changes::Heard;
use super::client::{Capabilities, Client};
use super::following::{Beginning, Open};
use super::host::{Host, Link};
use super::jsonrpc::{self, Id, Incoming, Malformed, Message, Request, Response};
use super::memory::{self, Asked, Judgement, Memory};
use super::methods::Opening;
use super::outlet::{Batch, Outgoing, Outlet, Reply};
use super::questions::Questions;
use super::revision::{Era, Legacy};
use super::session::{Agreed, Watcher, Watching, watch};
use super::subject::Subject;
use super::wire::{self, Occasion};
use super::{job, methods, modern};
use crate::limits::{ANSWERS_AWAITED_MAX, BATCH_MAX, REFUSALS_AWAITED_MAX};

/// One client.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

pub(super) struct Shared {
    pub(super) host: Arc<Host>,
    pub(super) caller: Caller,
    pub(super) link: Link,
    state: Mutex<State>,
    /// What the client was asked.
    pub(super) questions: Arc<Questions>,
    /// Told each time nothing is open any more.
    pub(super) settled: Notify,
}

pub(super) struct State {
    /// What `initialize` led to; none before it.
    agreed: Option<Agreed>,
    /// Whether the session was ended; whatever comes then is too late.
    has_ended: bool,
    pub(super) memory: Memory,
    pub(super) calls: Calls,
    /// Requests whose answers have not left yet; at least as many as calls run.
    pub(super) open: usize,
    /// Where to say what belongs to no request.
    pub(super) standing: Option<Weak<dyn Outlet>>,
    watching: Option<Watching>,
}

/// A message that is being answered, as far as its record needs it.
pub(super) struct Envelope {
    id: Option<Id>,
    method: String,
    params: Option<Map<String, Value>>,
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

impl Connection {
    pub(crate) fn new(host: &Arc<Host>, caller: Caller, link: Link) -> Self {
        let memory = Memory::new(link.reuse());
        Self::with(host, caller, link, None, memory)
    }

    /// A session that this process did not see begin, or had put away.
    pub(crate) fn restored(host: &Arc<Host>, caller: Caller, link: Link, kept: KeptSession) -> Self {
        let KeptSession { session, requests } = kept;
        let capabilities = session.client.capabilities.as_deref();
        let capabilities = capabilities.map_or_else(Capabilities::default, Capabilities::stored);
        let version = session.client.protocol_version.as_deref();
        let agreed = version.map(|version| Agreed::new(Legacy::negotiate(version), capabilities));
        let memory = Memory::restored(link.reuse(), session.reuses_ids, requests);
        Self::with(host, caller, link, agreed, memory)
    }

    fn with(host: &Arc<Host>, caller: Caller, link: Link, agreed: Option<Agreed>, memory: Memory) -> Self {
        Self(Arc::new(Shared {
            host: Arc::clone(host),
            caller,
            link,
            state: Mutex::new(State {
                has_ended: false,
                agreed,
                memory,
                calls: Calls::default(),
                open: 0,
                standing: None,
                watching: None,
            }),
            questions: Arc::default(),
            settled: Notify::new(),
        }))
    }

    /// Says where to say what belongs to no request, until that outlet is gone.
    pub(crate) fn stand_on(&self, outlet: &Arc<dyn Outlet>) {
        self.0.state().standing = Some(Arc::downgrade(outlet));
    }

    /// Tells a session that its list of tools may be another one. Whoever comes without a session asks to be
    /// told (see [`listening`](super::listening)).
    pub(crate) fn tell_of_tools(&self) {
        let state = self.0.state();
        let standing = state.standing.as_ref().and_then(Weak::upgrade);
        let outlet = standing.filter(|_| state.agreed.is_some());
        drop(state);
        if let Some(outlet) = outlet {
            let changed = wire::notification("notifications/tools/list_changed", &json!({}));
            outlet.offer(Outgoing::notification(changed));
        }
    }

    /// Tells a session what happened to a job that its own credential started. Whoever comes without a session
    /// asks to be told, or waits for the job.
    pub(crate) fn tell_of_job(&self, told: &JobTold) {
        if told.owner != self.0.caller.credential {
            return;
        }
        let state = self.0.state();
        let standing = state.standing.as_ref().and_then(Weak::upgrade);
        let outlet = standing.filter(|_| state.agreed.is_some() && !state.has_ended);
        drop(state);
        if let (Some(outlet), Some(params)) = (outlet, told.event.progress()) {
            outlet.offer(Outgoing::notification(wire::notification(PROGRESS, &params)));
        }
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
        self.0.state().agreed.as_ref().map(|agreed| agreed.revision)
    }

    /// Whether the client was caught using one id for two requests.
    pub(crate) fn reuses_ids(&self) -> bool {
        self.0.state().memory.reuses_ids()
    }

    /// Whether the session holds what no store knows: a log level, subscriptions.
    pub(crate) fn has_settings(&self) -> bool {
        self.0.state().agreed.as_ref().is_some_and(Agreed::has_settings)
    }

    /// Whether the client set something that only memory holds: a log level, subscriptions.
    pub(crate) fn has_wishes(&self) -> bool {
        let state = self.0.state();
        let agreed = state.agreed.as_ref();
        agreed.is_some_and(|agreed| agreed.has_subscriptions() || agreed.client.logs.is_set())
    }

    /// Whether anything is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.state().open > 0
    }

    /// The session ends here, if it ever began; one that is a stream began with it.
    pub(crate) async fn close_session(&self) {
        let Some(id) = self.0.link.session() else {
            return;
        };
        if self.revision().is_none() && !matches!(self.0.link, Link::Sse(_)) {
            return;
        }
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

    /// Ends everything that runs here, and takes no further request. Who waits still hears how it ended.
    pub(crate) fn end(&self) {
        self.0.state().has_ended = true;
        self.cancel_all();
    }

    /// Asks every running call to end. Who waits still hears how it ended.
    pub(crate) fn cancel_all(&self) {
        self.hang_up();
        self.0.state().calls.cancel_all();
    }

    /// The client will answer nothing any more: calls that wait for it go on without.
    pub(crate) fn hang_up(&self) {
        self.0.questions.hang_up();
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
        let refusal = match self.revision() {
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
            Message::Request(request)
                if self.0.link == Link::Stateless || modern::is_modern(&request.method, &request.params) =>
            {
                self.modern_request(request, reply, outlet);
            }
            Message::Request(request) => self.legacy_request(request, reply, outlet),
            Message::Notification { method, params } => self.notification(&method, params),
            Message::Response(Response { id, told }) => {
                let asked = id.is_some_and(|id| self.0.questions.answer(&id, told));
                tracing::debug!(asked, "the client answered");
            }
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
            if released.is_empty() {
                self.cancel_elsewhere(&id);
            }
            drop(released);
        }
    }

    fn modern_request(&self, request: Request, reply: Reply, outlet: &Arc<dyn Outlet>) {
        let client = methods::require_modern(&request.method).and_then(|()| modern::read(&request.params));
        match client {
            Ok(client) => self.proceed(self.0.state(), client, request, None, reply, outlet),
            Err(refusal) => self.refuse(Envelope::of(&request), Some(Era::Modern), refusal, reply),
        }
    }

    fn legacy_request(&self, request: Request, reply: Reply, outlet: &Arc<dyn Outlet>) {
        let asked = Asked {
            id: request.id.clone(),
            digest: memory::digest(&request.method, &request.params),
        };
        let mut state = self.0.state();
        let Some(client) = state.agreed.as_ref().map(|agreed| agreed.client.clone()) else {
            return self.before_initialize(state, request, asked, reply);
        };
        let era = client.era;
        if state.has_ended {
            drop(state);
            let refusal = Refusal::new(
                ErrorCode::SessionNotFound,
                "this session has ended; send `initialize` to begin a new one",
            );
            return self.refuse(Envelope::of(&request), Some(era), refusal, reply);
        }
        if request.method == "initialize" {
            drop(state);
            let refusal = Refusal::new(ErrorCode::InvalidRequest, "this session is initialized already");
            return self.refuse(Envelope::of(&request), Some(era), refusal, reply);
        }
        if let Some(session) = self.0.link.session().filter(|_| request.method == "tools/call") {
            outlet.is_about(Subject::asked(session, &asked));
        }
        let reused_ids = state.memory.reuses_ids();
        let judgement = state.memory.judge(&asked);
        if self.0.link.lasts() && !reused_ids && state.memory.reuses_ids() {
            self.note_reuse();
        }
        let again = |message| Refusal::new(ErrorCode::DuplicateRequest, message);
        let refusal = match judgement {
            Judgement::Proceed => return self.proceed(state, client, request, Some(asked), reply, outlet),
            Judgement::Join(key) => return self.join(state, key, request, era, reply),
            Judgement::Replay(outcome) => {
                drop(state);
                return reply.send(self.0.render(&request.id, era, &outcome, Occasion::Duplicate));
            }
            Judgement::Recall(command) => {
                return self.recall(
                    state,
                    request.id,
                    era,
                    command,
                    Recipient {
                        reply,
                        occasion: Occasion::Duplicate,
                    },
                );
            }
            Judgement::Forgotten => again("this request was answered before and its result is no longer kept"),
            Judgement::Conflict => again("this request id was used before for another request; use each id once"),
        };
        drop(state);
        self.refuse(Envelope::of(&request), Some(era), refusal, reply);
    }

    /// A request without a session: only a handshake begins one.
    fn before_initialize(&self, mut state: MutexGuard<'_, State>, request: Request, asked: Asked, reply: Reply) {
        let refusal = match request.method.as_str() {
            "initialize" => match methods::initialize(&self.0.host, &request.params) {
                Ok(opening) => {
                    state.agreed = Some(Agreed::new(opening.revision, opening.capabilities));
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
                format!("`{}` came before `initialize`; send `initialize` first", brief(method)),
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
            ..
        } = opening;
        let client = ClientInfo {
            rpc_id: Some(request.id.to_json()),
            ..client
        };
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
                    connection.0.state().agreed = None;
                    let era = Some(Era::Legacy(revision));
                    reply.send(connection.0.error(Some(&request.id), &refusal, era));
                }
            }
        });
    }

    fn proceed(
        &self,
        mut state: MutexGuard<'_, State>,
        client: Client,
        request: Request,
        asked: Option<Asked>,
        reply: Reply,
        outlet: &Arc<dyn Outlet>,
    ) {
        let era = client.era;
        if asked.is_some()
            && let Some(changed) = self.change(&mut state, &request)
        {
            drop(state);
            return self.tell(request, era, changed, reply);
        }
        match job::of(&self.0.host, &self.0.caller, &client, &request) {
            Ok(Some(job)) => {
                let beginning = Beginning {
                    request,
                    asked,
                    client,
                    job,
                };
                self.start(state, beginning, reply, outlet);
            }
            Ok(None) => {
                drop(state);
                let shared = &self.0;
                let written = methods::written(&shared.host, &shared.caller, era, &request.method, &request.params);
                if let Some(written) = written {
                    return reply.send(Outgoing::answer(wire::written_result(&request.id, &written)));
                }
                let answer = methods::answer(&shared.host, &shared.caller, era, &request.method, &request.params);
                self.tell(request, era, answer, reply);
            }
            Err(refusal) => {
                drop(state);
                self.refuse(Envelope::of(&request), Some(era), refusal, reply);
            }
        }
    }

    /// Carries out a request that changes the session; none if it is not one.
    fn change(&self, state: &mut State, request: &Request) -> Option<Result<Value, Refusal>> {
        let agreed = state.agreed.as_mut()?;
        let changed = agreed.change(&self.0.host, &request.method, &request.params)?;
        if agreed.has_subscriptions() && state.watching.is_none() {
            let news = self.0.host.features.changes.listen();
            state.watching = Some(watch(Arc::downgrade(&self.0), news));
        }
        Some(changed)
    }

    fn tell(&self, request: Request, era: Era, result: Result<Value, Refusal>, reply: Reply) {
        match result {
            Ok(result) => reply.send(Outgoing::answer(wire::result(&request.id, &result))),
            Err(refusal) => self.refuse(Envelope::of(&request), Some(era), refusal, reply),
        }
    }

    /// Calls that run, requests that wait and questions that are open.
    #[cfg(test)]
    pub(super) fn left(&self) -> (usize, usize, usize) {
        let state = self.0.state();
        (state.calls.count(), state.open, self.0.questions.count())
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
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

    /// Ends a request that may have come to another process of this session.
    fn cancel_elsewhere(&self, id: &Id) {
        let Some(session) = self.0.link.session().filter(|_| self.0.link.lasts()) else {
            return;
        };
        let (shared, id) = (Arc::clone(&self.0), id.to_json());
        let found = shared.host.sessions.find(session);
        tokio::spawn(async move {
            let requests = match found.await {
                Ok(kept) => kept.map_or_else(Vec::new, |kept| kept.requests),
                Err(refusal) => return tracing::warn!(reason = refusal.message, "a request could not be cancelled"),
            };
            let meant = requests.into_iter().rev().find(|request| request.rpc_id == id);
            if let Some(command) = meant.and_then(|request| request.command) {
                let caller = shared.caller.clone();
                shared.host.service.cancel_command(caller, command).await;
            }
        });
    }

    /// The request of this session that a stream is about, from the store: it may have come to another process.
    pub(crate) async fn asked_before(&self, subject: Subject) -> Result<Option<KeptRequest>, Refusal> {
        let Some(session) = self.0.link.session() else {
            return Ok(None);
        };
        let kept = self.0.host.sessions.find(session).await?;
        let requests = kept.map_or_else(Vec::new, |kept| kept.requests);
        let is_meant = |request: &KeptRequest| Subject::kept(session, request) == subject;
        Ok(requests.into_iter().rev().find(is_meant))
    }

    /// Says what became of the command of such a request, once it is known. It is the first answer that this client
    /// reads.
    pub(crate) fn tell_end_of(&self, request: &KeptRequest, command: &RequestId, outlet: &Arc<dyn Outlet>) {
        let id = serde_json::from_str::<Value>(&request.rpc_id).ok().map(Id::try_from);
        let state = self.0.state();
        let era = state.agreed.as_ref().map(|agreed| agreed.client.era);
        let (Some(Ok(id)), Some(era)) = (id, era) else {
            return;
        };
        let reply = Reply::to(outlet);
        let occasion = Occasion::First;
        self.recall(state, id, era, command.clone(), Recipient { reply, occasion });
    }

    /// Answers a request that was made before with what the record has of it.
    fn recall(&self, mut state: MutexGuard<'_, State>, id: Id, era: Era, command: RequestId, to: Recipient) {
        let open = Open::count(&self.0, &mut state);
        drop(state);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _open = open;
            let recalled = shared
                .host
                .service
                .recall(shared.caller.clone(), command, Duration::MAX)
                .await;
            let outcome = recalled.map(job::Said::Answer);
            to.reply.send(shared.render(&id, era, &outcome, to.occasion));
        });
    }

    /// Answers with a refusal, once it is in the record.
    pub(super) fn refuse(&self, envelope: Envelope, era: Option<Era>, refusal: Refusal, reply: Reply) {
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

impl Shared {
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Shared {
    fn touched(&self, heard: &Heard) -> (Vec<String>, Option<Arc<dyn Outlet>>) {
        let state = self.state();
        let uris = state
            .agreed
            .as_ref()
            .map_or_else(Vec::new, |agreed| agreed.touched(heard));
        (uris, state.standing.as_ref().and_then(Weak::upgrade))
    }
}

pub(super) fn too_many() -> Refusal {
    let message = format!("{ANSWERS_AWAITED_MAX} requests of this client are waiting; let some end first");
    Refusal::new(ErrorCode::RateLimited, message)
}
