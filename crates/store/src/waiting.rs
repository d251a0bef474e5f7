//! Changes on their way to the thread that writes, in either kind of database, and the answers that callers wait for.

use std::sync::mpsc::TrySendError;

use countersign_gateway::audit::{Change, Committed, Pending, RecordError};
use tokio::sync::oneshot;

/// Changes that may wait for the writer.
pub(crate) const QUEUE_MAX: usize = 1_024;
/// Changes in one transaction.
pub(crate) const BATCH_MAX: usize = 256;

const WRITER_GONE: &str = "the record's writer has stopped";

pub(crate) type Outcome = Result<Committed, RecordError>;

/// A change that waits to be written.
pub(crate) struct Job {
    pub(crate) change: Change,
    /// One per event, made by the caller: the writer is the narrow place.
    pub(crate) timestamps: Vec<String>,
    answer: oneshot::Sender<Outcome>,
}

impl Job {
    pub(crate) fn new(change: Change) -> (Box<Self>, Answer) {
        let (answer, outcome) = oneshot::channel();
        let timestamps = change.events.iter().map(|draft| draft.timestamp.to_string()).collect();
        let job = Self {
            change,
            timestamps,
            answer,
        };
        (Box::new(job), Answer(outcome))
    }

    pub(crate) fn answer(self, outcome: Outcome) {
        // A caller that no longer waits is fine: the write went on without it.
        let _ = self.answer.send(outcome);
    }
}

/// What the writer will say of a change.
pub(crate) struct Answer(oneshot::Receiver<Outcome>);

impl Answer {
    /// Waits for it. Blocks.
    pub(crate) fn wait(self) -> Outcome {
        self.0.blocking_recv().unwrap_or_else(|_| Err(writer_gone()))
    }

    /// Waits for it where the change was sent at all.
    pub(crate) fn after(sent: Result<Self, RecordError>) -> Pending<Outcome> {
        Box::pin(async move { sent?.0.await.unwrap_or_else(|_| Err(writer_gone())) })
    }
}

/// Says why a queue did not take a change; there is none once the writer is stopped.
pub(crate) fn taken<T>(sent: Option<Result<(), TrySendError<T>>>) -> Result<(), RecordError> {
    match sent {
        Some(Ok(())) => Ok(()),
        Some(Err(TrySendError::Full(_))) => {
            let sentence = "too many changes wait to be written";
            Err(RecordError::Unavailable(sentence.to_owned()))
        }
        Some(Err(TrySendError::Disconnected(_))) | None => Err(writer_gone()),
    }
}

/// Waits for the ends that a sweeper sent; gives how many were written. Blocks.
pub(crate) fn count_swept(waiting: Vec<Answer>) -> Result<usize, RecordError> {
    let mut closed = 0;
    for answer in waiting {
        match answer.wait() {
            Ok(receipt) => closed += usize::from(receipt.last_event.is_some()),
            // Another sweeper was first, or somebody decided at this moment; the next sweep sees what it came to.
            Err(RecordError::SessionMoved | RecordError::ApprovalMoved) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(closed)
}

/// Work off the async threads, and what is said of it when it was stopped.
pub(crate) fn aside<T: Send + 'static>(
    stopped: &'static str,
    work: impl FnOnce() -> Result<T, RecordError> + Send + 'static,
) -> Pending<Result<T, RecordError>> {
    Box::pin(async move {
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|_| Err(RecordError::Unavailable(stopped.to_owned())))
    })
}

fn writer_gone() -> RecordError {
    RecordError::Unavailable(WRITER_GONE.to_owned())
}
