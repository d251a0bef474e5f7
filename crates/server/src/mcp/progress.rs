//! Progress of one call: numbers that only grow, and silence once the answer has left.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::service::Progress;

use super::jsonrpc::Id;
use super::outlet::Outlet;
use super::revision::Era;
use super::wire;

pub(crate) struct Reporter {
    token: Id,
    era: Era,
    outlet: Arc<dyn Outlet>,
    stage: Mutex<Stage>,
}

enum Stage {
    /// How many were sent.
    Open(u64),
    Closed,
}

impl Reporter {
    pub(crate) fn new(token: Id, era: Era, outlet: &Arc<dyn Outlet>) -> Self {
        Self {
            token,
            era,
            outlet: Arc::clone(outlet),
            stage: Mutex::new(Stage::Open(0)),
        }
    }

    /// Nothing is sent after this returns.
    pub(crate) fn close(&self) {
        *self.stage() = Stage::Closed;
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Reporter {
    fn report(&self, message: &str) {
        // Held while sending, so that no report from another thread comes after the answer.
        let mut stage = self.stage();
        let Stage::Open(sent) = *stage else {
            return;
        };
        let message = self.era.has_progress_messages().then_some(message);
        if self.outlet.offer(wire::progress(&self.token, sent + 1, message)) {
            *stage = Stage::Open(sent + 1);
        }
    }
}
