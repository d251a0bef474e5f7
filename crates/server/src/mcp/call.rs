//! Calls that run. Each has a key of our own; a client's id only says who is waiting for it.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_gateway::error::Refusal;
use countersign_gateway::service::{Answer, CancelHandle};

use super::jsonrpc::Id;
use super::outlet::Reply;
use super::progress::Reporter;
use super::revision::Era;
use super::wire::Occasion;

/// How a call ended.
pub(crate) type Outcome = Result<Answer, Refusal>;

/// Names a call inside one connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallKey(u64);

pub(crate) struct Running {
    pub(crate) id: Id,
    pub(crate) era: Era,
    pub(crate) recipients: Vec<Recipient>,
    pub(crate) cancel: CancelHandle,
    pub(crate) progress: Option<Arc<Reporter>>,
}

/// Someone who waits for the call's answer.
pub(crate) struct Recipient {
    pub(crate) reply: Reply,
    pub(crate) occasion: Occasion,
}

/// The calls of one connection that have not ended.
#[derive(Default)]
pub(crate) struct Calls {
    running: HashMap<CallKey, Running>,
    last_key: u64,
    // INVARIANT: the number of recipients in `running`.
    awaited: usize,
}

impl Calls {
    /// Answers that clients wait for.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited
    }

    pub(crate) fn start(&mut self, running: Running) -> CallKey {
        self.last_key += 1;
        let key = CallKey(self.last_key);
        self.awaited += running.recipients.len();
        self.running.insert(key, running);
        key
    }

    /// Adds one who waits; gives it back when the call is not running.
    pub(crate) fn join(&mut self, key: CallKey, recipient: Recipient) -> Result<(), Recipient> {
        match self.running.get_mut(&key) {
            Some(running) => {
                running.recipients.push(recipient);
                self.awaited += 1;
                Ok(())
            }
            None => Err(recipient),
        }
    }

    pub(crate) fn end(&mut self, key: CallKey) -> Option<Running> {
        let running = self.running.remove(&key)?;
        self.awaited -= running.recipients.len();
        Some(running)
    }

    /// Cancels what runs under a client's id. Who waited is not answered; the recipients are handed
    /// back because letting go of them may send a batch, which must not happen under a lock.
    pub(crate) fn cancel(&mut self, id: &Id) -> Vec<Recipient> {
        let mut released = Vec::new();
        for running in self.running.values_mut().filter(|running| running.id == *id) {
            if let Some(progress) = &running.progress {
                progress.close();
            }
            running.cancel.cancel();
            self.awaited -= running.recipients.len();
            released.append(&mut running.recipients);
        }
        released
    }

    /// Cancels everything. Who waits still hears how the call ended.
    pub(crate) fn cancel_all(&self) {
        for running in self.running.values() {
            running.cancel.cancel();
        }
    }
}
