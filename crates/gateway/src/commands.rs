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
    /// Enters a command that is about to run. Whoever enters one, or finds it entered, attends it and must
    /// leave it.
    pub fn enter(&self, owner: &CredentialId, live: &Arc<Live>) -> Result<(), NotEntered> {
        let key = (owner.clone(), live.request_id.clone());
        let mut inner = self.lock();
        if let Some(known) = inner.running.get(&key).or_else(|| inner.ended.get(&key)) {
            known.attend();
            return Err(NotEntered::Known(known.clone()));
        }
        if inner.closing {
            return Err(NotEntered::Closing);
        }
        if inner.running.len() >= limits::CALLS_IN_FLIGHT_MAX {
            return Err(NotEntered::Full);
        }
        live.attend();
        inner.running.insert(key, live.clone());
        Ok(())
    }

    /// Lets go of a command that waits in the store for an answer, unless a caller came to wait for it.
    pub fn park(&self, owner: &CredentialId, live: &Arc<Live>) -> bool {
        let mut inner = self.lock();
        if live.is_attended() && !inner.closing {
            return false;
        }
        inner.running.remove(&(owner.clone(), live.request_id.clone()));
        true
    }

    /// Forgets a command that ended in no way worth telling again.
    pub fn forget(&self, owner: &CredentialId, live: &Arc<Live>) {
        let key = (owner.clone(), live.request_id.clone());
        let mut inner = self.lock();
        // Another life of the same request may have taken its place.
        if inner.running.get(&key).is_some_and(|known| Arc::ptr_eq(known, live)) {
            inner.running.remove(&key);
        }
    }

    /// A command of this content that waits for an answer; attended from now on.
    pub fn waiting(&self, owner: &CredentialId, digest: &str) -> Option<Arc<Live>> {
        let inner = self.lock();
        let mut running = inner.running.iter().filter(|((of, _), _)| of == owner);
        let found = running.find(|(_, live)| live.digest == digest && live.question().is_some());
        let (_, live) = found?;
        live.attend();
        Some(live.clone())
    }

    /// What an owner has at work here.
    pub fn of(&self, owner: &CredentialId) -> Vec<Arc<Live>> {
        let inner = self.lock();
        let running = inner.running.iter().filter(|((of, _), _)| of == owner);
        running.map(|(_, live)| live.clone()).collect()
    }

    /// Everybody who has something at work here.
    pub fn owners(&self) -> Vec<CredentialId> {
        let inner = self.lock();
        inner.running.keys().map(|(owner, _)| owner.clone()).collect()
    }

    pub fn is_closing(&self) -> bool {
        self.lock().closing
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

    /// Whether those who only wait should make room.
    pub fn is_crowded(&self) -> bool {
        self.lock().running.len() > limits::CALLS_IN_FLIGHT_MAX / 2
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
