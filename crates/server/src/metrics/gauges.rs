//! What a listener counts as it goes. The page of metrics shows these very numbers.

use countersign_gateway::error::ErrorCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::CodeLabels;

/// Numbers of this moment, and refusals since the start.
#[derive(Debug, Default)]
pub struct Gauges {
    pub(super) connections: Gauge,
    pub(super) streams: Gauge,
    pub(super) refused: Family<CodeLabels, Counter>,
    sessions_open: Gauge,
    sessions_live: Gauge,
}

impl Gauges {
    /// Open HTTP connections.
    pub fn connections(&self) -> usize {
        read(&self.connections)
    }

    /// Responses that are streams of events.
    pub fn streams(&self) -> usize {
        read(&self.streams)
    }

    /// Open sessions that this process began or took up.
    pub fn sessions_open(&self) -> usize {
        read(&self.sessions_open)
    }

    /// Those of them that are in memory; the store alone holds the others.
    pub fn sessions_live(&self) -> usize {
        read(&self.sessions_live)
    }

    /// Messages and requests refused with a code, since the start.
    pub fn refused(&self, code: ErrorCode) -> u64 {
        self.refused.get_or_create(&CodeLabels::of(code)).get()
    }

    pub(crate) fn connection(&self) -> Counted {
        Counted::new(&self.connections)
    }

    pub(crate) fn stream(&self) -> Counted {
        Counted::new(&self.streams)
    }

    pub(crate) fn session(&self) -> Counted {
        Counted::new(&self.sessions_live)
    }

    pub(crate) fn set_sessions_open(&self, open: usize) {
        super::set(&self.sessions_open, open);
    }
}

fn read(gauge: &Gauge) -> usize {
    usize::try_from(gauge.get()).unwrap_or(0)
}

/// Counts until it is dropped.
pub(crate) struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
