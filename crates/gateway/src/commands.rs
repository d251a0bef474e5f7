//! The commands of this process: those that run, and the last ones that ended, as far as there is room. What is
//! older, or belongs to another process, is asked of the record.

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
    /// Ended ones, oldest first, and the bytes that each takes.
    order: VecDeque<(Key, usize)>,
    // INVARIANT: the sum of the bytes in `order`.
    ended_bytes: usize,
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

    /// Moves a command to those that ended; the oldest of them are forgotten here once there are too many, or too
    /// much. Whoever waits for this one holds it, so one that would take all the room is not kept at all.
    pub fn ended(&self, owner: &CredentialId, live: &Arc<Live>) {
        let key = (owner.clone(), live.request_id.clone());
        let remains = live.remains();
        let bytes = remains.bytes();
        let mut inner = self.lock();
        inner.running.remove(&key);
        if bytes > limits::ENDED_BYTES_KEPT {
            return;
        }
        inner.ended.insert(key.clone(), remains);
        inner.order.push_back((key, bytes));
        inner.ended_bytes += bytes;
        while inner.order.len() > limits::ENDED_COMMANDS_KEPT || inner.ended_bytes > limits::ENDED_BYTES_KEPT {
            let Some((oldest, bytes)) = inner.order.pop_front() else {
                break;
            };
            inner.ended.remove(&oldest);
            inner.ended_bytes -= bytes;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::{Config, Redactor};
    use crate::clock::Timestamp;
    use crate::error::{ErrorCode, Refusal};
    use crate::ids::CorrelationId;
    use crate::service::Origin;
    use crate::tools::exec::request::Stream;
    use crate::tools::exec::result::CommandResult;

    fn live(id: &str, output: usize) -> Live {
        let (began, limit) = (Timestamp::from_millis(0), 64 << 20);
        let correlation = CorrelationId::trusted("c");
        let id = RequestId::trusted(id);
        let live = Live::new(id, String::new(), began, limit, None, Origin::default(), correlation);
        live.push(Stream::Stdout, &vec![b'a'; output]);
        live
    }

    /// Which of some commands, given in the order in which they ended, are still here.
    fn kept(lives: Vec<Live>) -> Vec<String> {
        let (commands, owner) = (Commands::default(), CredentialId::trusted("o"));
        let mut ids = Vec::new();
        for live in lives.into_iter().map(Arc::new) {
            commands.enter(&owner, &live).unwrap();
            let refusal = Refusal::new(ErrorCode::Cancelled, "over");
            live.finish(CommandResult::refused(
                live.request_id.clone(),
                live.started_at,
                refusal,
            ));
            commands.ended(&owner, &live);
            ids.push(live.request_id.clone());
        }
        ids.retain(|id| commands.find(&owner, id).is_some());
        ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ended_commands_are_kept_up_to_a_number() {
        let many = limits::ENDED_COMMANDS_KEPT + 2;
        let kept = kept((0..many).map(|at| live(&format!("{at}"), 1)).collect());
        assert_eq!((kept.len(), kept[0].as_str()), (limits::ENDED_COMMANDS_KEPT, "2"));
    }

    #[test]
    fn ended_commands_are_kept_up_to_a_number_of_bytes() {
        let third = limits::ENDED_BYTES_KEPT / 3;
        let ended = ["a", "b", "c", "d", "e"].map(|id| live(id, third));
        assert_eq!(kept(ended.into()), ["c", "d", "e"]);
    }

    #[test]
    fn one_that_would_take_all_the_room_is_not_kept_and_drives_nobody_out() {
        let ended = [live("a", 1), live("b", limits::ENDED_BYTES_KEPT + 1), live("c", 1)];
        assert_eq!(kept(ended.into()), ["a", "c"]);
    }

    #[test]
    fn the_secrets_of_a_call_are_not_kept_behind_its_end() {
        let redactor = Redactor::new(Config::default()).hiding(["hunter2222"]);
        let ended = Arc::new(live("a", 1).redacted_by(redactor));
        let usual = Redactor::new(Config::default());
        assert_eq!(ended.redactor(&usual).redact_text("hunter2222"), "[redacted]");
        let remains = ended.remains();
        assert_eq!(remains.redactor(&usual).redact_text("hunter2222"), "hunter2222");
        assert_eq!(remains.streams(), ended.streams());
    }
}
