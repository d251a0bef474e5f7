//! Calls that run. Each has a key of our own; a client's id only says who is waiting for it.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_gateway::service::CancelHandle;

use super::conversation::Conversation;
use super::following::Called;
use super::jsonrpc::Id;
use super::memory::Asked;
use super::outlet::Reply;
use super::revision::Era;
use super::wire::Occasion;

/// Names a call inside one connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct CallKey(u64);

pub(crate) struct Running {
    pub(crate) id: Id,
    /// What the session remembers it by; none for a request without a session.
    pub(crate) asked: Option<Asked>,
    pub(crate) era: Era,
    /// For the metrics; none for what is no tool call.
    pub(crate) called: Option<Called>,
    pub(crate) recipients: Vec<Recipient>,
    pub(crate) cancel: CancelHandle,
    pub(crate) conversation: Arc<Conversation>,
}

/// Someone who waits for the call's answer.
pub(crate) struct Recipient {
    pub(crate) reply: Reply,
    pub(crate) occasion: Occasion,
}

/// What a cancelled call held of its client. Letting go of it ends their streams.
pub(crate) struct Released {
    conversation: Arc<Conversation>,
    _recipients: Vec<Recipient>,
}

impl Drop for Released {
    fn drop(&mut self) {
        self.conversation.close();
    }
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

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.running.len()
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

    /// Cancels what runs under a client's id. Of several that share it nobody can tell which one is meant,
    /// and one that goes on although its client believes it ended is the worse mistake: all end. Who waited
    /// is not answered; what they held is handed back because letting go of it may send, which must not
    /// happen under a lock.
    pub(crate) fn cancel(&mut self, id: &Id) -> Vec<Released> {
        let mut released = Vec::new();
        for running in self.running.values_mut().filter(|running| running.id == *id) {
            running.cancel.cancel();
            self.awaited -= running.recipients.len();
            released.push(Released {
                conversation: Arc::clone(&running.conversation),
                _recipients: std::mem::take(&mut running.recipients),
            });
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
