//! Where messages leave. A transport implements [`Outlet`]; a [`Reply`] is the right to answer one
//! request, once, there or as a part of a batch's answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The way back to a client.
pub(crate) trait Outlet: Send + Sync + 'static {
    /// Takes a message that must arrive.
    fn send(&self, message: Vec<u8>);

    /// Takes a message that may be dropped when the client reads too slowly. False if it was.
    fn offer(&self, message: Vec<u8>) -> bool;
}

/// The right to answer one request. Dropped unused, the request gets no answer, as a cancelled one
/// should not.
pub(crate) struct Reply(Destination);

enum Destination {
    Outlet(Arc<dyn Outlet>),
    Batch(BatchSeat),
}

impl Reply {
    pub(crate) fn to(outlet: &Arc<dyn Outlet>) -> Self {
        Self(Destination::Outlet(Arc::clone(outlet)))
    }

    pub(crate) fn send(self, message: Vec<u8>) {
        match self.0 {
            Destination::Outlet(outlet) => outlet.send(message),
            Destination::Batch(seat) => seat.take(message),
        }
    }
}

/// Answers that leave together, once every request of the batch is settled.
pub(crate) struct Batch(Arc<Gathering>);

struct Gathering {
    outlet: Arc<dyn Outlet>,
    answers: Mutex<Vec<Vec<u8>>>,
}

/// A member's part in the batch. The last seat to go sends what was gathered.
struct BatchSeat(Arc<Gathering>);

impl Batch {
    pub(crate) fn to(outlet: &Arc<dyn Outlet>) -> Self {
        Self(Arc::new(Gathering {
            outlet: Arc::clone(outlet),
            answers: Mutex::default(),
        }))
    }

    pub(crate) fn reply(&self) -> Reply {
        Reply(Destination::Batch(BatchSeat(Arc::clone(&self.0))))
    }
}

impl BatchSeat {
    fn take(self, message: Vec<u8>) {
        self.0.answers().push(message);
    }
}

impl Gathering {
    fn answers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gathering {
    /// Runs when the batch and all its seats are gone.
    fn drop(&mut self) {
        let answers = std::mem::take(&mut *self.answers());
        if answers.is_empty() {
            return;
        }
        let mut message = vec![b'['];
        message.append(&mut answers.join(&b','));
        message.push(b']');
        self.outlet.send(message);
    }
}
