//! How much is going on, for whoever draws the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Numbers of this moment.
#[derive(Debug, Default)]
pub struct Gauges {
    connections: AtomicUsize,
    streams: AtomicUsize,
    sessions_open: AtomicUsize,
    sessions_live: AtomicUsize,
    rate_limited: AtomicUsize,
    unauthenticated: AtomicUsize,
}

impl Gauges {
    /// Open HTTP connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Responses that are streams of events.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Open sessions that this process began or took up.
    pub fn sessions_open(&self) -> usize {
        self.sessions_open.load(Ordering::Relaxed)
    }

    /// Those of them that are in memory; the store alone holds the others.
    pub fn sessions_live(&self) -> usize {
        self.sessions_live.load(Ordering::Relaxed)
    }

    /// Requests refused for their rate, since the start.
    pub fn rate_limited(&self) -> usize {
        self.rate_limited.load(Ordering::Relaxed)
    }

    /// Requests refused for their credentials, since the start.
    pub fn unauthenticated(&self) -> usize {
        self.unauthenticated.load(Ordering::Relaxed)
    }

    pub(super) fn connection(self: &Arc<Self>) -> Counted {
        Counted::new(self, |gauges| &gauges.connections)
    }

    pub(super) fn stream(self: &Arc<Self>) -> Counted {
        Counted::new(self, |gauges| &gauges.streams)
    }

    pub(super) fn session(self: &Arc<Self>) -> Counted {
        Counted::new(self, |gauges| &gauges.sessions_live)
    }

    pub(super) fn set_sessions_open(&self, open: usize) {
        self.sessions_open.store(open, Ordering::Relaxed);
    }

    pub(super) fn count_rate_limited(&self) {
        self.rate_limited.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_unauthenticated(&self) {
        self.unauthenticated.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts until it is dropped.
pub(super) struct Counted {
    gauges: Arc<Gauges>,
    which: fn(&Gauges) -> &AtomicUsize,
}

impl Counted {
    fn new(gauges: &Arc<Gauges>, which: fn(&Gauges) -> &AtomicUsize) -> Self {
        which(gauges).fetch_add(1, Ordering::Relaxed);
        let gauges = Arc::clone(gauges);
        Self { gauges, which }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.gauges).fetch_sub(1, Ordering::Relaxed);
    }
}
