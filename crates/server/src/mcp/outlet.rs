//! Where messages leave. A transport implements [`Outlet`]; a [`Reply`] is the right to answer one
//! request, once, there or as a part of a batch's answer.
//!
//! An outlet that belongs to one request ends when the last reply to it is gone, sent or not: whoever
//! waits there then knows that nothing more will come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_gateway::error::ErrorCode;
use countersign_gateway::service::Room;

use super::subject::Subject;
use super::wire;
use crate::limits::BATCH_ANSWERS_BYTES_MAX;

/// A message for a client, with what a transport must know of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outgoing {
    /// The message, without a newline.
    pub(crate) bytes: Vec<u8>,
    pub(crate) kind: Kind,
    /// What a long answer takes of the room there is for those. Where one client is served it is held until the message
    /// has left; where there are many, one that does not read must not keep it from the others.
    pub(crate) room: Room,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The answer to a request; the code when it is a JSON-RPC error.
    Answer(Option<ErrorCode>),
    /// Something the client must answer.
    Question,
    Notification,
}

impl Outgoing {
    pub(crate) fn answer(bytes: Vec<u8>) -> Self {
        Self::new(bytes, Kind::Answer(None))
    }

    pub(crate) fn error(bytes: Vec<u8>, code: ErrorCode) -> Self {
        Self::new(bytes, Kind::Answer(Some(code)))
    }

    pub(crate) fn question(bytes: Vec<u8>) -> Self {
        Self::new(bytes, Kind::Question)
    }

    pub(crate) fn notification(bytes: Vec<u8>) -> Self {
        Self::new(bytes, Kind::Notification)
    }

    fn new(bytes: Vec<u8>, kind: Kind) -> Self {
        let room = Room::default();
        Self { bytes, kind, room }
    }

    pub(crate) fn in_room(self, room: Room) -> Self {
        Self { room, ..self }
    }
}

/// The way back to a client.
pub(crate) trait Outlet: Send + Sync + 'static {
    /// Takes a message that must arrive.
    fn send(&self, message: Outgoing);

    /// Takes a message that may be dropped when the client reads too slowly. False if it was.
    fn offer(&self, message: Outgoing) -> bool;

    /// Whether a question would reach the client: something but an answer is read there, now.
    fn carries_questions(&self) -> bool {
        true
    }

    /// Says which request of a session is answered here.
    fn is_about(&self, _subject: Subject) {}

    /// May end the stream a client reads now, where what follows can be fetched later.
    fn let_go(&self) {}
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

    pub(crate) fn send(self, message: Outgoing) {
        match self.0 {
            Destination::Outlet(outlet) => outlet.send(message),
            Destination::Batch(seat) => seat.take(message.bytes),
        }
    }
}

/// Answers that leave together, once every request of the batch is settled.
pub(crate) struct Batch(Arc<Gathering>);

struct Gathering {
    outlet: Arc<dyn Outlet>,
    answers: Mutex<Answers>,
}

#[derive(Default)]
struct Answers {
    written: Vec<Vec<u8>>,
    /// How long they are together.
    bytes: usize,
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
    /// What is one too many for the others is dropped: to keep the room that it took would have them wait for each other.
    fn take(self, message: Vec<u8>) {
        let mut answers = self.0.answers();
        let message = match answers.bytes + message.len() <= BATCH_ANSWERS_BYTES_MAX {
            true => message,
            false => wire::too_long_for_batch(&message),
        };
        answers.bytes += message.len();
        answers.written.push(message);
    }
}

impl Gathering {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gathering {
    /// Runs when the batch and all its seats are gone.
    fn drop(&mut self) {
        let answers = std::mem::take(&mut self.answers().written);
        if answers.is_empty() {
            return;
        }
        let mut message = vec![b'['];
        message.append(&mut answers.join(&b','));
        message.push(b']');
        self.outlet.send(Outgoing::answer(message));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use serde_json::{Value, json};

    use super::*;

    struct Sent(Mutex<mpsc::Sender<Vec<u8>>>);

    impl Outlet for Sent {
        fn send(&self, message: Outgoing) {
            self.0.lock().unwrap().send(message.bytes).unwrap();
        }

        fn offer(&self, _message: Outgoing) -> bool {
            false
        }
    }

    /// As a call answers whose output is as long as may be.
    fn long(id: &Value) -> Outgoing {
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"text": "\n".repeat(512 << 10)}});
        Outgoing::answer(serde_json::to_vec(&answer).unwrap())
    }

    #[test]
    fn the_answers_to_a_batch_are_bounded_and_each_request_has_one() {
        let (sender, sent) = mpsc::channel();
        let outlet: Arc<dyn Outlet> = Arc::new(Sent(Mutex::new(sender)));
        let batch = Batch::to(&outlet);
        let ids: Vec<Value> = (0..100)
            .map(|id| {
                if id % 2 == 0 {
                    json!(id)
                } else {
                    json!(format!("i{id}"))
                }
            })
            .collect();
        let replies: Vec<_> = ids.iter().map(|id| (id, batch.reply())).collect();
        drop(batch);
        for (id, reply) in replies {
            reply.send(long(id));
        }
        let answer = sent.try_recv().unwrap();
        assert!(answer.len() < BATCH_ANSWERS_BYTES_MAX + (64 << 10), "{}", answer.len());
        let answers: Vec<Value> = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            answers.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(),
            ids.iter().collect::<Vec<_>>()
        );
        let kept = answers.iter().filter(|answer| answer["result"].is_object()).count();
        assert!((1..100).contains(&kept), "{kept}");
        let refused = answers.last().unwrap();
        assert_eq!(refused["error"]["data"]["errorCode"], "LIMIT_EXCEEDED", "{refused}");
    }
}
