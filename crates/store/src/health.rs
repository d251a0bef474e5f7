//! How writing goes in this process: what went wrong last, and by when everything must be over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_gateway::audit::RecordError;

/// How long trouble counts that nothing has contradicted since.
const TROUBLE_COUNTS_FOR: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Default)]
struct State {
    trouble: Option<(Instant, RecordError)>,
    stop_at: Option<Instant>,
}

impl Health {
    /// A change could not be written.
    pub(crate) fn failed(&self, error: &RecordError) {
        self.state().trouble = Some((Instant::now(), error.clone()));
    }

    /// A change was written.
    pub(crate) fn wrote(&self) {
        self.state().trouble = None;
    }

    /// What went wrong lately, if nothing was written since.
    pub(crate) fn trouble(&self) -> Result<(), RecordError> {
        match &self.state().trouble {
            Some((since, error)) if since.elapsed() < TROUBLE_COUNTS_FOR => Err(error.clone()),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn stop_within(&self, grace: Duration) {
        self.state().stop_at = Some(Instant::now() + grace);
    }

    /// When somebody who begins to wait now must give up, whose own patience ends at `deadline`.
    pub(crate) fn bounded(&self, deadline: Instant) -> Instant {
        let stop_at = self.state().stop_at;
        stop_at.map_or(deadline, |stop_at| deadline.min(stop_at))
    }

    /// How long somebody with this patience may wait.
    pub(crate) fn patience(&self, own: Duration) -> Duration {
        let now = Instant::now();
        self.bounded(now + own).saturating_duration_since(now)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
