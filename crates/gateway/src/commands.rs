//! The commands of this process: those that run, and the last ones that ended. What is older, or
//! belongs to another process, is asked of the record.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::execution::live::Live;
use crate::ids::{CredentialId, RequestId};
use crate::limits;

type Key = (CredentialId, RequestId);

/// The table of commands, by owner and request id.
#[derive(Default)]
pub struct Commands {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    running: HashMap<Key, Arc<Live>>,
    ended: HashMap<Key, Arc<Live>>,
    /// Ended ones, oldest first.
    order: VecDeque<Key>,
    closing: bool,
}

/// Why a command was not entered.
#[derive(Debug)]
pub enum NotEntered {
    /// The owner's earlier command of this id.
    Known(Arc<Live>),
    Full,
    /// The server is stopping.
    Closing,
}

impl Commands {
    /// Enters a command that is about to run.
    pub fn enter(&self, owner: &CredentialId, live: &Arc<Live>) -> Result<(), NotEntered> {
        let key = (owner.clone(), live.request_id.clone());
        let mut inner = self.lock();
        if let Some(known) = inner.running.get(&key).or_else(|| inner.ended.get(&key)) {
            return Err(NotEntered::Known(known.clone()));
        }
        if inner.closing {
            return Err(NotEntered::Closing);
        }
        if inner.running.len() >= limits::CALLS_IN_FLIGHT_MAX {
            return Err(NotEntered::Full);
        }
        inner.running.insert(key, live.clone());
        Ok(())
    }

    /// Moves a command to those that ended; the oldest of them is forgotten here.
    pub fn ended(&self, owner: &CredentialId, live: &Arc<Live>) {
        let key = (owner.clone(), live.request_id.clone());
        let mut inner = self.lock();
        inner.running.remove(&key);
        inner.ended.insert(key.clone(), live.clone());
        inner.order.push_back(key);
        if inner.order.len() > limits::ENDED_COMMANDS_KEPT
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.ended.remove(&oldest);
        }
    }

    /// Whether a call may take its time without keeping another one waiting.
    pub fn has_one_at_most(&self) -> bool {
        self.lock().running.len() <= 1
    }

    pub fn find(&self, owner: &CredentialId, request_id: &RequestId) -> Option<Arc<Live>> {
        let key = (owner.clone(), request_id.clone());
        let inner = self.lock();
        inner.running.get(&key).or_else(|| inner.ended.get(&key)).cloned()
    }

    /// Lets nothing in any more and tells what still runs.
    pub fn close(&self) -> Vec<Arc<Live>> {
        let mut inner = self.lock();
        inner.closing = true;
        inner.running.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({})", self.request_id)
    }
}
