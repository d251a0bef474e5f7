//! What is said on the way back to one client: a queue between the calls that speak and the response
//! that carries it.
//!
//! The answer to a POST is *held* here until it is known what kind of response it becomes. It may then
//! be handed on to a session's replay log, which outlives the response.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use countersign_gateway::error::ErrorCode;
use countersign_gateway::service::Room;

use crate::limits::OUTBOX_BYTES_MAX;
use crate::mcp::outlet::{Kind, Outgoing, Outlet};
use crate::mcp::subject::Subject;

use super::line::Wire;
use super::live::Live;
use super::replay::StreamNumber;

pub(super) struct Exchange {
    state: Mutex<State>,
    /// The request that is answered here, where it is one of a session.
    subject: OnceLock<Subject>,
    /// What to do about a client that does not read.
    wire: Option<Arc<Wire>>,
}

enum State {
    /// Said, and not taken yet.
    Held(Held),
    /// Whatever is said goes into this session's log.
    Logged { live: Arc<Live>, stream: StreamNumber },
    /// Nobody listens any more.
    Gone,
}

#[derive(Default)]
struct Held {
    said: VecDeque<Outgoing>,
    bytes: usize,
    /// Nothing more will be said.
    ended: bool,
    /// The client may go, and fetch the rest later.
    let_go: bool,
    listener: Option<Waker>,
}

/// What a request led to first. It is still held.
pub(super) enum First {
    /// The answer; the code when it is an error.
    Answer(Option<ErrorCode>),
    Other,
    /// Nobody will ever answer.
    Nothing,
}

impl Exchange {
    pub(super) fn new() -> Arc<Self> {
        Self::with(None)
    }

    /// One that carries more than one answer. When too much waits there, its connection is cut.
    pub(super) fn on(wire: &Arc<Wire>) -> Arc<Self> {
        Self::with(Some(Arc::clone(wire)))
    }

    fn with(wire: Option<Arc<Wire>>) -> Arc<Self> {
        let state = Mutex::new(State::Held(Held::default()));
        Arc::new(Self {
            state,
            subject: OnceLock::new(),
            wire,
        })
    }

    /// The first request of a session that is answered here.
    pub(super) fn subject(&self) -> Option<Subject> {
        self.subject.get().copied()
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(*self.state(), State::Gone)
    }

    /// The way in for one request. When the last holder lets go of it, nothing more will be said. Where the
    /// client reads no stream, nothing but the answer reaches it.
    pub(super) fn outlet(self: &Arc<Self>, streams: bool) -> Arc<dyn Outlet> {
        Arc::new(OfOneRequest {
            exchange: Arc::clone(self),
            streams,
        })
    }

    /// The way in for as long as there is a stream.
    pub(super) fn lasting_outlet(self: &Arc<Self>) -> Arc<dyn Outlet> {
        Arc::new(OfStream(Arc::clone(self)))
    }

    /// Waits for the first thing said; with `answers_only` everything else is passed over.
    pub(super) fn poll_first(&self, answers_only: bool, context: &mut Context<'_>) -> Poll<First> {
        let mut state = self.state();
        let State::Held(held) = &mut *state else {
            return Poll::Ready(First::Nothing);
        };
        while let Some(first) = held.said.front() {
            match first.kind {
                Kind::Answer(code) => return Poll::Ready(First::Answer(code)),
                Kind::Question | Kind::Notification if answers_only => drop(held.take()),
                Kind::Question | Kind::Notification => return Poll::Ready(First::Other),
            }
        }
        if held.ended {
            return Poll::Ready(First::Nothing);
        }
        if held.let_go && !answers_only {
            return Poll::Ready(First::Other);
        }
        held.listener = Some(context.waker().clone());
        Poll::Pending
    }

    /// The answer, if it is the next thing that was said.
    pub(super) fn take_answer(&self) -> Option<Outgoing> {
        match &mut *self.state() {
            State::Held(held) => held.take(),
            State::Logged { .. } | State::Gone => None,
        }
    }

    /// The next thing said; none when that was all.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Outgoing>> {
        let mut state = self.state();
        let State::Held(held) = &mut *state else {
            return Poll::Ready(None);
        };
        match held.take() {
            Some(message) => Poll::Ready(Some(message)),
            None if held.ended => Poll::Ready(None),
            None => {
                held.listener = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Hands everything, said and still to be said, on to a session's log. The stream must have a reader
    /// that knows where to resume.
    pub(super) fn hand_on(&self, live: &Arc<Live>, stream: StreamNumber) {
        let mut state = self.state();
        let onward = State::Logged {
            live: Arc::clone(live),
            stream,
        };
        if let State::Held(held) = std::mem::replace(&mut *state, onward) {
            // Under the lock, so that nothing said meanwhile overtakes.
            for message in held.said {
                live.say(stream, &message);
            }
            if held.ended {
                live.end_stream(stream);
            }
            if held.let_go {
                live.let_go(stream);
            }
        }
    }

    /// The stream ends now; what is held is not delivered.
    pub(super) fn close(&self) {
        let before = std::mem::replace(&mut *self.state(), State::Gone);
        if let State::Held(held) = before {
            wake(held.listener);
        }
    }

    /// Nothing more is taken; what is held is still delivered.
    pub(super) fn end(&self) {
        let mut state = self.state();
        match &mut *state {
            State::Held(held) => {
                held.ended = true;
                wake(held.listener.take());
            }
            State::Logged { live, stream } => live.end_stream(*stream),
            State::Gone => {}
        }
    }

    fn send(&self, message: Outgoing) {
        let mut state = self.state();
        match &mut *state {
            // A client that does not read is not waited for: its stream ends.
            State::Held(held) if held.bytes > OUTBOX_BYTES_MAX => {
                let listener = held.listener.take();
                *state = State::Gone;
                wake(listener);
                if let Some(wire) = &self.wire {
                    wire.cut();
                }
            }
            State::Held(held) => held.push(message),
            State::Logged { live, stream } => {
                live.say(*stream, &message);
            }
            State::Gone => {}
        }
    }

    fn offer(&self, message: Outgoing) -> bool {
        let mut state = self.state();
        match &mut *state {
            State::Held(held) if held.bytes + message.bytes.len() > OUTBOX_BYTES_MAX => false,
            State::Held(held) => {
                held.push(message);
                true
            }
            State::Logged { live, stream } => live.say(*stream, &message),
            State::Gone => false,
        }
    }

    fn let_go(&self) {
        match &mut *self.state() {
            State::Held(held) => {
                held.let_go = true;
                wake(held.listener.take());
            }
            State::Logged { live, stream } => live.let_go(*stream),
            State::Gone => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn push(&mut self, message: Outgoing) {
        if self.ended {
            return;
        }
        self.bytes += message.bytes.len();
        self.said.push_back(message.in_room(Room::default()));
        wake(self.listener.take());
    }

    fn take(&mut self) -> Option<Outgoing> {
        let message = self.said.pop_front()?;
        self.bytes -= message.bytes.len();
        Some(message)
    }
}

fn wake(listener: Option<Waker>) {
    if let Some(listener) = listener {
        listener.wake();
    }
}

struct OfOneRequest {
    exchange: Arc<Exchange>,
    streams: bool,
}

impl Outlet for OfOneRequest {
    fn send(&self, message: Outgoing) {
        self.exchange.send(message);
    }

    fn offer(&self, message: Outgoing) -> bool {
        self.exchange.offer(message)
    }

    fn carries_questions(&self) -> bool {
        self.streams
    }

    fn is_about(&self, subject: Subject) {
        let _ = self.exchange.subject.set(subject);
    }

    fn let_go(&self) {
        self.exchange.let_go();
    }
}

impl Drop for OfOneRequest {
    fn drop(&mut self) {
        self.exchange.end();
    }
}

struct OfStream(Arc<Exchange>);

impl Outlet for OfStream {
    fn send(&self, message: Outgoing) {
        self.0.send(message);
    }

    fn offer(&self, message: Outgoing) -> bool {
        self.0.offer(message)
    }
}
