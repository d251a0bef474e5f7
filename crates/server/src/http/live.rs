//! A session in memory: its connection, its streams, when it was last used. Which sessions there are, the
//! [registry](super::registry) knows.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, SessionId};
use countersign_gateway::session::{Caller, Transport};
use tokio::time::Instant;

use crate::mcp::connection::Connection;
use crate::mcp::outlet::{Outgoing, Outlet};
use crate::mcp::revision::Legacy;
use crate::metrics::Counted;

use super::exchange::Exchange;
use super::replay::{Log, Place, STANDALONE, StreamNumber, Ticket};

/// A session in memory.
pub(super) struct Live {
    pub(super) id: SessionId,
    pub(super) connection: Connection,
    pub(super) credential: CredentialId,
    /// When it was last used, and up to when the store knows.
    used: AtomicI64,
    noted: AtomicI64,
    /// Up to which use it was made sure that it is still open.
    looked_at: AtomicI64,
    pub(super) back: Back,
    _counted: Counted,
}

/// The way back to its client.
pub(super) enum Back {
    /// Streamable HTTP: any number of streams.
    Streams(Mutex<Log>),
    /// HTTP+SSE: one stream for everything.
    Stream {
        exchange: Arc<Exchange>,
        outlet: Arc<dyn Outlet>,
    },
}

impl Live {
    /// A session that is used now.
    pub(super) fn new(
        id: SessionId,
        credential: CredentialId,
        connection: Connection,
        back: Back,
        now: Timestamp,
        counted: Counted,
    ) -> Arc<Self> {
        let now = now.as_millis();
        let live = Arc::new(Self {
            id,
            connection,
            credential,
            used: AtomicI64::new(now),
            noted: AtomicI64::new(now),
            looked_at: AtomicI64::new(now),
            back,
            _counted: counted,
        });
        let standing = match &live.back {
            Back::Streams(_) => Arc::clone(&live) as Arc<dyn Outlet>,
            Back::Stream { outlet, .. } => Arc::clone(outlet),
        };
        live.connection.stand_on(&standing);
        live
    }

    /// The store knows of no later use than this.
    pub(super) fn was_noted_at(&self, used: Timestamp) {
        self.noted.store(used.as_millis(), Ordering::Relaxed);
    }

    /// Whether it was begun without a token.
    pub(super) fn is_anonymous(&self) -> bool {
        self.credential == Caller::anonymous_agent(Transport::StreamableHttp).credential
    }

    /// Whether a call runs or a stream is open. A busy session does not expire.
    pub(super) fn is_busy(&self) -> bool {
        self.connection.is_busy()
            || match &self.back {
                Back::Streams(log) => locked(log).readers() > 0,
                Back::Stream { .. } => true,
            }
    }

    pub(super) fn use_at(&self, now: Timestamp) {
        self.used.fetch_max(now.as_millis(), Ordering::Relaxed);
    }

    pub(super) fn idle_for(&self, now: Timestamp) -> Duration {
        let idle = now.as_millis() - self.used.load(Ordering::Relaxed);
        Duration::from_millis(idle.try_into().unwrap_or(0))
    }

    /// When it was last used, if the store does not know yet. The store is told next.
    pub(super) fn news(&self) -> Option<Timestamp> {
        let used = self.used.load(Ordering::Relaxed);
        (self.noted.swap(used, Ordering::Relaxed) < used).then(|| Timestamp::from_millis(used))
    }

    /// Whether it was used since this was last asked.
    pub(super) fn was_used(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        self.looked_at.swap(used, Ordering::Relaxed) < used
    }

    /// Forgets old events. True if there is nothing left that only memory holds.
    pub(super) fn prune(&self) -> bool {
        match &self.back {
            Back::Streams(log) => locked(log).prune(Instant::now()),
            Back::Stream { .. } => false,
        }
    }

    /// Ends every stream.
    pub(super) fn close(&self) {
        match &self.back {
            Back::Streams(log) => locked(log).close(),
            Back::Stream { exchange, .. } => exchange.close(),
        }
    }

    /// Ends the streams that no answer waits for.
    pub(super) fn close_idle_streams(&self) {
        match &self.back {
            Back::Streams(log) => locked(log).hang_up(STANDALONE),
            Back::Stream { exchange, .. } => exchange.end(),
        }
    }

    /// What a session of Streamable HTTP keeps of its streams.
    pub(super) fn log(&self) -> Option<MutexGuard<'_, Log>> {
        match &self.back {
            Back::Streams(log) => Some(locked(log)),
            Back::Stream { .. } => None,
        }
    }

    /// False if nobody will see it.
    pub(super) fn say(&self, stream: StreamNumber, message: &Outgoing) -> bool {
        self.log()
            .is_some_and(|mut log| log.say(stream, message, Instant::now()))
    }

    pub(super) fn end_stream(&self, stream: StreamNumber) {
        if let Some(mut log) = self.log() {
            log.end(stream, Instant::now());
        }
    }

    /// Ends the response that carries a stream, if its client knows how to come back.
    pub(super) fn let_go(&self, stream: StreamNumber) {
        if self.has_primers()
            && let Some(mut log) = self.log()
        {
            log.hang_up(stream);
        }
    }

    /// Whether a stream begins with an event to resume from.
    pub(super) fn has_primers(&self) -> bool {
        self.connection.revision() >= Some(Legacy::R2025_11_25)
    }

    pub(super) fn detach(&self, stream: StreamNumber, ticket: Ticket) {
        if let Some(mut log) = self.log() {
            log.detach(stream, ticket);
        }
    }

    pub(super) fn poll_next(
        &self,
        place: &mut Place,
        ticket: Ticket,
        context: &mut Context<'_>,
    ) -> Poll<Option<Bytes>> {
        match self.log() {
            Some(mut log) => log.poll_next(place, ticket, context),
            None => Poll::Ready(None),
        }
    }
}

/// What belongs to no request is said on the stream beside them, while somebody listens there.
impl Outlet for Live {
    fn send(&self, message: Outgoing) {
        self.offer(message);
    }

    fn offer(&self, message: Outgoing) -> bool {
        self.log()
            .is_some_and(|mut log| log.is_read(STANDALONE) && log.say(STANDALONE, &message, Instant::now()))
    }

    fn carries_questions(&self) -> bool {
        self.log().is_some_and(|log| log.is_read(STANDALONE))
    }
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
