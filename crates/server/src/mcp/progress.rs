//! Progress of one call: numbers that only grow, and silence once the answer has left.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::service::Progress;

use super::jsonrpc::Id;
use super::outlet::{Outgoing, Outlet};
use super::revision::Era;
use super::wire;

pub(crate) struct Reporter {
    token: Id,
    era: Era,
    stage: Mutex<Stage>,
}

enum Stage {
    Open {
        sent: u64,
        /// Let go of when the answer leaves: a command may go on, and keep its reporter, long after.
        outlet: Arc<dyn Outlet>,
    },
    Closed,
}

impl Reporter {
    pub(crate) fn new(token: Id, era: Era, outlet: &Arc<dyn Outlet>) -> Self {
        Self {
            token,
            era,
            stage: Mutex::new(Stage::Open {
                sent: 0,
                outlet: Arc::clone(outlet),
            }),
        }
    }

    /// Nothing is sent after this returns.
    pub(crate) fn close(&self) {
        let before = std::mem::replace(&mut *self.stage(), Stage::Closed);
        drop(before);
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Reporter {
    fn report(&self, message: &str) {
        // Held while sending, so that no report from another thread comes after the answer.
        let mut stage = self.stage();
        let Stage::Open { sent, outlet } = &mut *stage else {
            return;
        };
        let message = self.era.has_progress_messages().then_some(message);
        let notification = wire::progress(&self.token, *sent + 1, message);
        if outlet.offer(Outgoing::notification(notification)) {
            *sent += 1;
        }
    }
}
