//! Ends that could not be written when they came.
//!
//! They are written in the order in which they came, by one task, for as long as this process lives: nobody else closes
//! what a living process opened. Until the last of them is written nothing new begins, since its end would only join
//! them, and a server that stops tries once more before it goes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::Gateway;
use crate::audit::{Change, Committed, Record, RecordError};
use crate::limits::RECORD_CLOSE_PATIENCE;

/// The first pause before another attempt, and the least one; each is twice the one before, up to the patience that a
/// caller has.
const RETRY: Duration = Duration::from_millis(50);

type Written = Result<Committed, RecordError>;

#[derive(Default)]
pub(super) struct Unclosed {
    queue: Mutex<Queue>,
    /// Somebody wants another attempt now.
    wanted: Notify,
    /// Why the last attempt failed; none once everything is written.
    standing: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether the task that empties it is there.
    is_worked_on: bool,
}

struct Waiting {
    change: Change,
    told: oneshot::Sender<Written>,
}

impl Gateway {
    /// Writes an end, for as long as its caller has patience. What is not written by then is written later.
    pub(super) async fn commit_patiently(&self, change: Change) -> Written {
        let failed = match self.commit(change.clone()).await {
            Err(failed @ RecordError::Unavailable(_)) => failed,
            written => return written,
        };
        let written = self.close_later(change);
        match tokio::time::timeout(RECORD_CLOSE_PATIENCE, written).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) | Err(_) => Err(failed),
        }
    }

    /// Writes what lets something begin. Nothing does while an end waits to be written.
    pub(super) async fn commit_opening(&self, change: Change) -> Written {
        self.unclosed.written().await?;
        self.commit(change).await
    }

    /// Leaves an end to be written when it can be.
    pub(super) fn close_later(&self, change: Change) -> oneshot::Receiver<Written> {
        let (told, written) = oneshot::channel();
        let mut queue = self.unclosed.queue();
        queue.waiting.push_back(Waiting { change, told });
        if !std::mem::replace(&mut queue.is_worked_on, true) {
            let (unclosed, record) = (self.unclosed.clone(), self.ports.record.clone());
            tokio::spawn(async move { unclosed.write_all(&*record).await });
        }
        written
    }

    /// Tries to write what waits before this process goes; what cannot be written is closed by the next one, which does
    /// not know how it ended.
    pub(super) async fn ends_written(&self, deadline: Instant) {
        let written = async { while self.unclosed.written().await.is_err() {} };
        if tokio::time::timeout_at(deadline, written).await.is_err() {
            tracing::warn!("ends could not be written before the stop; the next start closes them as abandoned");
        }
    }
}

impl Unclosed {
    /// Resolves at once where nothing waits, else with what the next attempt comes to.
    async fn written(&self) -> Result<(), RecordError> {
        let mut standing = {
            let queue = self.queue();
            if queue.waiting.is_empty() {
                return Ok(());
            }
            self.wanted.notify_one();
            self.standing.subscribe()
        };
        // The sender lives as long as `self`, so this cannot fail while we wait.
        let _ = standing.changed().await;
        let standing = standing.borrow_and_update();
        match &*standing {
            Some(reason) => Err(RecordError::Unavailable(reason.clone())),
            None => Ok(()),
        }
    }

    async fn write_all(&self, record: &dyn Record) {
        let mut pause = RETRY;
        while let Some(change) = self.first() {
            match record.commit(change).await {
                Err(RecordError::Unavailable(reason)) => {
                    let reason = format!("the end of an earlier call cannot be written: {reason}");
                    if self.standing.send_replace(Some(reason.clone())).as_ref() != Some(&reason) {
                        tracing::warn!(reason, "nothing begins until it is; trying again");
                    }
                    tokio::time::sleep(RETRY).await;
                    let _ = tokio::time::timeout(pause - RETRY, self.wanted.notified()).await;
                    pause = RECORD_CLOSE_PATIENCE.min(2 * pause);
                }
                written => {
                    pause = RETRY;
                    self.settle(written);
                }
            }
        }
    }

    /// The oldest; none once there is none, and then nobody works on it any more.
    fn first(&self) -> Option<Change> {
        let mut queue = self.queue();
        let first = queue.waiting.front().map(|first| first.change.clone());
        if first.is_none() {
            queue.is_worked_on = false;
            // Said before another can come that this is not true of.
            self.standing.send_replace(None);
        }
        first
    }

    fn settle(&self, written: Written) {
        let Some(Waiting { told, .. }) = self.queue().waiting.pop_front() else {
            return;
        };
        if let Err(Err(error)) = told.send(written) {
            tracing::warn!(%error, "an end that was left to be written was not");
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
