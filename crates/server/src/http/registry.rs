//! The sessions this process holds. A session lives in the store; here is what a live one needs beside
//! that: its connection, its streams, when it was last used.
//!
//! A session that is not here is looked for in the store, so that sessions outlive a restart and idle
//! ones can be put away. Whoever asks must hold the credential that made it; to anybody else it does
//! not exist.
//!
//! Several processes may serve one session, each with a copy of its own: the store says whether it is
//! open and when it was last used, and `upkeep` asks it. What only memory holds (streams, results to
//! replay, which requests run) each process knows of its own part.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_gateway::clock::Timestamp;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{CredentialId, SessionId};
use countersign_gateway::session::lifetime::{Session, SessionState};
use countersign_gateway::session::{Caller, Transport};

use crate::limits::SESSION_ID_CHARS_MAX;
use crate::mcp::connection::Connection;
use crate::mcp::host::{Host, Link};
use crate::mcp::outlet::Outlet;
use crate::mcp::subject::Subject;
use crate::metrics::Gauges;

use super::exchange::Exchange;
use super::live::{Back, Live};
use super::replay::{Budget, Log};

pub(super) struct Registry {
    pub(super) host: Arc<Host>,
    pub(super) ttl: Duration,
    sessions_max: usize,
    slots: Mutex<HashMap<String, Slot>>,
    /// Sessions that are about to begin, and open ones that only the store knows of.
    beginning: Arc<AtomicUsize>,
    elsewhere: AtomicUsize,
    budget: Arc<Budget>,
    gauges: Arc<Gauges>,
}

enum Slot {
    Live(Arc<Live>),
    /// Open, and only in the store.
    Away,
    /// Being ended: the store may still call it open.
    Ending,
}

/// A place kept for a session that is about to begin.
pub(super) struct Room(Arc<AtomicUsize>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Registry {
    pub(super) fn new(host: Arc<Host>, ttl: Duration, sessions_max: usize, gauges: Arc<Gauges>) -> Self {
        Self {
            host,
            ttl,
            sessions_max,
            slots: Mutex::default(),
            beginning: Arc::default(),
            elsewhere: AtomicUsize::new(0),
            budget: Arc::default(),
            gauges,
        }
    }

    /// Room for one more session; refused when there are as many as there may be.
    pub(super) fn room(&self) -> Result<Room, Refusal> {
        let slots = self.slots();
        let here = slots.len() + self.beginning.load(Ordering::Relaxed);
        let open = here + self.elsewhere.load(Ordering::Relaxed);
        if open < self.sessions_max {
            self.beginning.fetch_add(1, Ordering::Relaxed);
            return Ok(Room(Arc::clone(&self.beginning)));
        }
        drop(slots);
        let message = format!("{open} sessions are open, and no more are allowed; try again later, or close some");
        Err(Refusal::new(ErrorCode::RateLimited, message))
    }

    /// Takes stock of the sessions that are open in the store alone.
    pub(super) async fn take_stock(&self) {
        match self.host.sessions.count().await {
            Ok(counts) => {
                let open = counts.into_iter().filter(|(state, _)| state.is_open());
                let open: usize = open.map(|(_, count)| count).sum();
                self.elsewhere
                    .store(open.saturating_sub(self.slots().len()), Ordering::Relaxed);
            }
            Err(refusal) => tracing::warn!(reason = refusal.message, "sessions could not be counted"),
        }
    }

    /// A session that is about to begin. It is found once it is [entered](Self::enter).
    pub(super) fn begin(&self, caller: Caller) -> Arc<Live> {
        let id = self.host.ids.session();
        let link = Link::Streamable(id.clone());
        let connection = Connection::new(&self.host, caller.clone(), link);
        self.live(id, caller.credential, connection)
    }

    /// A session whose only way back is a stream. It is `created` now.
    pub(super) async fn begin_stream(&self, caller: Caller, exchange: &Arc<Exchange>) -> Result<Arc<Live>, Refusal> {
        let now = self.host.clock.now();
        let session = Session::new(self.host.ids.session(), &caller, now);
        let id = session.id.clone();
        self.host.sessions.open(session).await?;
        let connection = Connection::new(&self.host, caller.clone(), Link::Sse(id.clone()));
        let outlet = exchange.lasting_outlet();
        let back = Back::Stream {
            exchange: Arc::clone(exchange),
            outlet,
        };
        let live = Live::new(id, caller.credential, connection, back, now, self.gauges.session());
        self.enter(&live);
        Ok(live)
    }

    pub(super) fn enter(&self, live: &Arc<Live>) {
        let slot = Slot::Live(Arc::clone(live));
        let mut slots = self.slots();
        slots.insert(live.id.as_str().to_owned(), slot);
        self.gauges.set_sessions_open(slots.len());
    }

    /// The session of a Streamable HTTP request.
    pub(super) async fn find(&self, id: &str, caller: &Caller) -> Result<Arc<Live>, Refusal> {
        let here = match self.slots().get(id) {
            Some(Slot::Live(live)) => Some(Arc::clone(live)),
            Some(Slot::Ending) => return Err(not_found()),
            Some(Slot::Away) | None => None,
        };
        let Some(live) = here else {
            return self.restore(id, caller).await;
        };
        if live.credential != caller.credential || !matches!(live.back, Back::Streams(_)) {
            return Err(not_found());
        }
        let now = self.host.clock.now();
        if self.is_stale(&live, now) {
            // Another process may have served it meanwhile; the store knows.
            self.end(&live);
            return self.restore(id, caller).await;
        }
        live.use_at(now);
        Ok(live)
    }

    /// The session of a message for an HTTP+SSE stream.
    pub(super) fn find_stream(&self, id: &str, caller: &Caller) -> Result<(Arc<Live>, Arc<dyn Outlet>), Refusal> {
        match self.slots().get(id) {
            Some(Slot::Live(live)) if live.credential == caller.credential => match &live.back {
                Back::Stream { exchange, .. } if exchange.is_gone() => Err(no_stream()),
                Back::Stream { outlet, .. } => {
                    live.use_at(self.host.clock.now());
                    Ok((Arc::clone(live), Arc::clone(outlet)))
                }
                Back::Streams(_) => Err(no_stream()),
            },
            Some(Slot::Live(_) | Slot::Away | Slot::Ending) | None => Err(no_stream()),
        }
    }

    /// A session that this process did not see begin, or had put away.
    async fn restore(&self, id: &str, caller: &Caller) -> Result<Arc<Live>, Refusal> {
        let is_text = |id: &str| id.bytes().all(|byte| byte.is_ascii_graphic());
        if id.is_empty() || id.len() > SESSION_ID_CHARS_MAX || !is_text(id) {
            return Err(not_found());
        }
        let id = SessionId::trusted(id);
        let kept = self.host.sessions.find(&id).await?.ok_or_else(not_found)?;
        let session = &kept.session;
        if !session.belongs_to(caller) || session.transport != Transport::StreamableHttp {
            return Err(not_found());
        }
        let now = self.host.clock.now();
        match session.state() {
            SessionState::Expired => return Err(expired()),
            SessionState::Created | SessionState::Closed => return Err(not_found()),
            SessionState::Initialized if session.has_expired(self.ttl, now) => return Err(expired()),
            SessionState::Initialized => {}
        }
        let noted = session.last_activity_at;
        let link = Link::Streamable(id.clone());
        let connection = Connection::restored(&self.host, caller.clone(), link, kept);
        let live = self.live(id, caller.credential.clone(), connection);
        // The store does not know of this use yet.
        live.was_noted_at(noted);
        let mut slots = self.slots();
        // Another request may have been faster; there must not be two of one session.
        let live = match slots.entry(live.id.as_str().to_owned()) {
            Entry::Occupied(mut slot) => match slot.get() {
                Slot::Live(first) => Arc::clone(first),
                Slot::Ending => return Err(not_found()),
                Slot::Away => {
                    slot.insert(Slot::Live(Arc::clone(&live)));
                    live
                }
            },
            Entry::Vacant(slot) => {
                slot.insert(Slot::Live(Arc::clone(&live)));
                live
            }
        };
        self.gauges.set_sessions_open(slots.len());
        drop(slots);
        live.use_at(now);
        Ok(live)
    }

    /// Ends a session for good: nothing finds it from now on, and the store hears of it.
    pub(super) async fn close(&self, live: &Arc<Live>) {
        self.slots().insert(live.id.as_str().to_owned(), Slot::Ending);
        live.connection.end();
        live.close_idle_streams();
        live.connection.close_session().await;
        self.forget(live.id.as_str());
    }

    /// Takes a session away, with its streams. What runs in it goes on.
    pub(super) fn end(&self, live: &Live) {
        self.forget(live.id.as_str());
        live.close();
    }

    pub(super) fn forget(&self, id: &str) {
        let mut slots = self.slots();
        slots.remove(id);
        self.gauges.set_sessions_open(slots.len());
    }

    /// The store ended this session.
    pub(super) fn expired(&self, id: &str) {
        let mut slots = self.slots();
        let ended = slots.remove(id);
        self.gauges.set_sessions_open(slots.len());
        drop(slots);
        if let Some(Slot::Live(live)) = ended {
            live.close();
        }
    }

    /// Another process ended this session. What runs of it here ends too, and who waits for that still
    /// hears how it ended.
    pub(super) fn ended_elsewhere(&self, live: &Live) {
        self.forget(live.id.as_str());
        live.connection.end();
        live.close_idle_streams();
    }

    /// The stream of an HTTP+SSE session is gone, and with it the session. Its commands go on.
    pub(super) fn stream_closed(&self, live: &Arc<Live>) {
        self.forget(live.id.as_str());
        live.connection.hang_up();
        let connection = live.connection.clone();
        // Streams are dropped by their tasks, so there is a runtime; at its very end there is none,
        // and the session expires instead.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { connection.close_session().await });
        }
    }

    /// Keeps an idle session in the store only. False if it was used meanwhile.
    pub(super) fn put_away(&self, live: &Arc<Live>) -> bool {
        let mut slots = self.slots();
        // The map and we hold it; anybody else is using it.
        if Arc::strong_count(live) > 2 {
            return false;
        }
        if let Some(slot) = slots.get_mut(live.id.as_str()) {
            *slot = Slot::Away;
        }
        self.gauges.set_sessions_open(slots.len());
        true
    }

    /// Every session in memory.
    pub(super) fn all(&self) -> Vec<Arc<Live>> {
        let slots = self.slots();
        let live = |slot: &Slot| match slot {
            Slot::Live(live) => Some(Arc::clone(live)),
            Slot::Away | Slot::Ending => None,
        };
        slots.values().filter_map(live).collect()
    }

    pub(super) fn is_stale(&self, live: &Live, now: Timestamp) -> bool {
        live.idle_for(now) >= self.ttl && !live.is_busy()
    }

    fn live(&self, id: SessionId, credential: CredentialId, connection: Connection) -> Arc<Live> {
        let now = self.host.clock.now();
        let epoch = now.as_millis().unsigned_abs();
        let log = Log::new(epoch, Subject::session(&id), &self.budget);
        let back = Back::Streams(Mutex::new(log));
        Live::new(id, credential, connection, back, now, self.gauges.session())
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found() -> Refusal {
    let message = "there is no such session, or it is not yours; send `initialize` without `Mcp-Session-Id`";
    Refusal::new(ErrorCode::SessionNotFound, message)
}

fn no_stream() -> Refusal {
    let message = "there is no such session, or it is not yours; open `/sse` for another";
    Refusal::new(ErrorCode::SessionNotFound, message)
}

fn expired() -> Refusal {
    let message = "this session was idle for too long and has ended; send `initialize` to begin a new one";
    Refusal::new(ErrorCode::SessionExpired, message)
}
