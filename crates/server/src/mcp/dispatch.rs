//! What a message means. A [`Connection`] takes messages, answers what can be answered at once, and follows each
//! tool call in a task of its own. What it refuses is in the record before the client hears of it.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use countersign_gateway::error::{ErrorCode, Refusal, brief};
use countersign_gateway::ids::RequestId;
use countersign_gateway::session::lifetime::KeptRequest;
use serde_json::{Map, Value};

use super::call::{CallKey, Recipient};
use super::client::Client;
use super::connection::{Connection, Shared, State};
use super::following::{Beginning, Open, room_of};
use super::host::Link;
use super::jsonrpc::{self, Id, Incoming, Malformed, Message, Request, Response};
use super::memory::{self, Asked, Judgement};
use super::outlet::{Batch, Outgoing, Outlet, Reply};
use super::refusing::Envelope;
use super::revision::Era;
use super::session::{Agreed, watch};
use super::subject::Subject;
use super::wire::{self, Occasion};
use super::{job, methods, modern};
use crate::limits::{ANSWERS_AWAITED_MAX, BATCH_MAX, IDS_REMEMBERED};
use crate::logged::logged;

/// A command whose end is told again, and the tool that was called for it, where that is known.
struct Told {
    command: RequestId,
    tool: Option<String>,
}

impl Connection {
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
        if !method.starts_with("notifications/") {
            return self.refuse_unnamed(method, params);
        }
        if method != "notifications/cancelled" {
            return;
        }
        if let Some(Ok(id)) = params.remove("requestId").map(Id::try_from) {
            let reason = params.get("reason").and_then(Value::as_str).unwrap_or_default();
            tracing::debug!(
                id = logged(&id.to_json()),
                reason = logged(reason),
                "the client cancelled a request"
            );
            let released = self.0.state().calls.cancel(&id);
            if released.is_empty() {
                self.cancel_elsewhere(id);
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
        let content = memory::digest(&request.method, &request.params);
        let mut asked = Asked {
            id: request.id.clone(),
            digest: self.0.host.features.seal.known_by(&content),
        };
        let mut state = self.0.state();
        state.memory.recognise(&mut asked, content);
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
            // A command may go on for long, and who waits for it here goes on waiting when its client has gone.
            Judgement::Recall(_) if state.open >= ANSWERS_AWAITED_MAX => too_many(),
            Judgement::Recall(command) => {
                let occasion = Occasion::Duplicate;
                let tool = request.params.get("name").and_then(Value::as_str).map(str::to_owned);
                let told = Told { command, tool };
                return self.recall(state, request.id, era, told, Recipient { reply, occasion });
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

    fn join(&self, mut state: MutexGuard<'_, State>, key: CallKey, request: Request, era: Era, reply: Reply) {
        let occasion = Occasion::Duplicate;
        if state.calls.awaited() >= ANSWERS_AWAITED_MAX {
            drop(state);
            return self.refuse(Envelope::of(&request), Some(era), too_many(), reply);
        }
        let joined = state.calls.join(key, Recipient { reply, occasion });
        debug_assert!(joined.is_ok(), "the memory says running, the calls say not");
    }

    /// Ends a request that may have come to another process of this session. One look at the store is for all that were
    /// cancelled until then; more than the session remembers are none of its own.
    fn cancel_elsewhere(&self, id: Id) {
        let Some(session) = self.0.link.session().filter(|_| self.0.link.lasts()).cloned() else {
            return;
        };
        let mut state = self.0.state();
        match &mut state.cancelled {
            Some(waiting) if waiting.len() < IDS_REMEMBERED => return waiting.push(id),
            Some(_) => return,
            nobody_looks => *nobody_looks = Some(vec![id]),
        }
        drop(state);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Some(ids) = shared.cancelled() {
                let requests = match shared.host.sessions.find(&session).await {
                    Ok(kept) => kept.map_or_else(Vec::new, |kept| kept.requests),
                    Err(refusal) => {
                        tracing::warn!(reason = refusal.message, "a request could not be cancelled");
                        continue;
                    }
                };
                for id in ids {
                    let id = id.to_json();
                    let meant = requests.iter().rev().find(|request| request.rpc_id == id);
                    if let Some(command) = meant.and_then(|request| request.command.clone()) {
                        tokio::spawn(shared.host.service.cancel_command(shared.caller.clone(), command));
                    }
                }
            }
        });
    }

    /// The command of this session that a stream is about, from the store: it may have come to another process.
    pub(crate) async fn asked_before(&self, subject: Subject) -> Result<Option<KeptRequest>, Refusal> {
        let Some(session) = self.0.link.session() else {
            return Ok(None);
        };
        let kept = self.0.host.sessions.find(session).await?;
        let requests = kept.map_or_else(Vec::new, |kept| kept.requests);
        // Of another act only the same request, made again, can be told what it came to.
        let is_meant = |request: &KeptRequest| request.command.is_some() && Subject::kept(session, request) == subject;
        Ok(requests.into_iter().rev().find(is_meant))
    }

    /// Says what became of such a request, once it is known. It is the first answer that this client reads.
    pub(crate) fn tell_end_of(&self, request: &KeptRequest, outlet: &Arc<dyn Outlet>) {
        let id = serde_json::from_str::<Value>(&request.rpc_id).ok().map(Id::try_from);
        let state = self.0.state();
        let era = state.agreed.as_ref().map(|agreed| agreed.client.era);
        let (Some(Ok(id)), Some(era), Some(command)) = (id, era, request.command.clone()) else {
            return;
        };
        let reply = Reply::to(outlet);
        let occasion = Occasion::First;
        let told = Told { command, tool: None };
        self.recall(state, id, era, told, Recipient { reply, occasion });
    }

    /// Answers a request that was made before with what the record has of it.
    fn recall(&self, mut state: MutexGuard<'_, State>, id: Id, era: Era, told: Told, to: Recipient) {
        let open = Open::count(&self.0, &mut state);
        drop(state);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _open = open;
            let recalled = shared
                .host
                .service
                .recall(shared.caller.clone(), told.command, told.tool, Duration::MAX)
                .await;
            let mut outcome = recalled.map(job::Said::Answer);
            let room = room_of(&mut outcome);
            let message = shared.render(&id, era, &outcome, to.occasion);
            to.reply.send(message.in_room(room));
        });
    }
}

impl Shared {
    /// What was cancelled since the last look; none where nothing was, and then nobody looks any more.
    fn cancelled(&self) -> Option<Vec<Id>> {
        let mut state = self.state();
        let ids = state
            .cancelled
            .as_mut()
            .map(std::mem::take)
            .filter(|ids| !ids.is_empty());
        if ids.is_none() {
            state.cancelled = None;
        }
        ids
    }
}

pub(super) fn too_many() -> Refusal {
    let message = format!("{ANSWERS_AWAITED_MAX} requests of this client are waiting; let some end first");
    Refusal::new(ErrorCode::RateLimited, message)
}
