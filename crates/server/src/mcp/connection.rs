//! One client on one transport: what was agreed with it, what it remembers and what runs for it, from its first
//! message to its end. What its messages mean is in [`dispatch`](super::dispatch).
//!
//! The lock is held for bookkeeping only; nothing is awaited, rendered or sent under it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::job::news::{JobTold, PROGRESS};
use countersign_gateway::session::Caller;
use countersign_gateway::session::lifetime::{ClientInfo, KeptSession, Session, SessionStep, Touched};
use serde_json::json;
use tokio::sync::Notify;

use super::call::Calls;
use super::changes::Heard;
use super::client::Capabilities;
use super::following::Open;
use super::host::{Host, Link};
use super::jsonrpc::{Id, Request};
use super::memory::Memory;
use super::methods::Opening;
use super::outlet::{Outgoing, Outlet, Reply};
use super::questions::Questions;
use super::refusing::Tally;
use super::revision::{Era, Legacy};
use super::session::{Agreed, Watcher, Watching};
use super::wire;

/// One client.
#[derive(Clone)]
pub(crate) struct Connection(pub(super) Arc<Shared>);

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
    pub(super) agreed: Option<Agreed>,
    /// Whether the session was ended; whatever comes then is too late.
    pub(super) has_ended: bool,
    pub(super) memory: Memory,
    pub(super) calls: Calls,
    /// Requests whose answers have not left yet; at least as many as calls run.
    pub(super) open: usize,
    /// Cancelled requests that are not here and wait to be looked for; none while nobody looks.
    pub(super) cancelled: Option<Vec<Id>>,
    /// Where to say what belongs to no request.
    pub(super) standing: Option<Weak<dyn Outlet>>,
    pub(super) watching: Option<Watching>,
    /// Refusals that are counted rather than written one by one.
    pub(super) tally: Tally,
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
                cancelled: None,
                standing: None,
                watching: None,
                tally: Tally::default(),
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

    /// Whether anything is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.state().open > 0
    }

    /// Enters the session into the store. The handshake is answered when it is there, except on
    /// pipes: that session ends with them, and a client may send more without waiting for the answer.
    pub(super) fn open_session(
        &self,
        mut state: MutexGuard<'_, State>,
        request: Request,
        opening: Opening,
        reply: Reply,
    ) {
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

    /// The session remembers from now on, beyond this process, that its client reuses ids.
    pub(super) fn note_reuse(&self) {
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

    #[cfg(test)]
    pub(super) fn cancels_waiting(&self) -> usize {
        self.0.state().cancelled.as_ref().map_or(0, Vec::len)
    }

    /// Calls that run, requests that wait and questions that are open.
    #[cfg(test)]
    pub(super) fn left(&self) -> (usize, usize, usize) {
        let state = self.0.state();
        (state.calls.count(), state.open, self.0.questions.count())
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
