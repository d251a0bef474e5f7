//! What a session's streams have said, for as long as a client may ask for it again.
//!
//! Every event of a session is in one bounded log, and whoever carries a stream reads from there: a
//! response that is cut and one that resumes it see the same events, each once. Event ids name the log,
//! the stream and the place in it, so an id of another session or of an earlier life of this one fits
//! nowhere here. They also say what the stream is about, so that another process can find the answer in
//! the record ([`resuming`](super::resuming)).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use axum::body::Bytes;
use tokio::time::Instant;

use crate::limits::{REPLAY_AGE_MAX, REPLAY_BYTES_ALL_MAX, REPLAY_BYTES_MAX, REPLAY_EVENTS_MAX};
use crate::mcp::outlet::{Kind, Outgoing};
use crate::mcp::subject::Subject;

use super::events;

/// Names a stream of one session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct StreamNumber(u32);

/// The stream that belongs to no request.
pub(super) const STANDALONE: StreamNumber = StreamNumber(0);

/// A stream that no log has any more: whoever reads it is done.
pub(super) const ENDED: StreamNumber = StreamNumber(u32::MAX);

/// Ends the id of an answer.
const ANSWERED: &str = "a";

/// A place in a stream: the last event that was seen there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) stream: StreamNumber,
    pub(super) seen: u32,
}

/// Bytes that all sessions keep for replay.
#[derive(Debug, Default)]
pub(super) struct Budget(AtomicUsize);

pub(super) struct Log {
    /// Tells this log from others the session had before, or has elsewhere.
    epoch: u64,
    /// What the stream beside all requests is about.
    session: Subject,
    events: VecDeque<Event>,
    bytes: usize,
    streams: BTreeMap<StreamNumber, Stream>,
    last_stream: u32,
    last_ticket: u64,
    closed: bool,
    budget: Arc<Budget>,
}

struct Event {
    stream: StreamNumber,
    number: u32,
    frame: Bytes,
    /// May be lost without a word.
    optional: bool,
    at: Instant,
}

#[derive(Default)]
struct Stream {
    /// The request it answers; none where it answers several.
    subject: Option<Subject>,
    /// Whether that request was not heard on this stream, but on one of another log.
    is_taken_up: bool,
    /// Number of the last event, and of the answer.
    last: u32,
    answer: Option<u32>,
    /// Number of the newest event that had to arrive and is no longer here.
    lost: u32,
    ended_at: Option<Instant>,
    reader: Option<Reader>,
}

struct Reader {
    ticket: Ticket,
    waker: Option<Waker>,
}

/// The right to read a stream. A newer one ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

impl Log {
    pub(super) fn new(epoch: u64, session: Subject, budget: &Arc<Budget>) -> Self {
        Self {
            epoch,
            session,
            events: VecDeque::new(),
            bytes: 0,
            streams: BTreeMap::new(),
            last_stream: 0,
            last_ticket: 0,
            closed: false,
            budget: Arc::clone(budget),
        }
    }

    /// A new stream, for one request or several.
    pub(super) fn begin(&mut self, subject: Option<Subject>) -> StreamNumber {
        self.enter(Stream {
            subject,
            ..Stream::default()
        })
    }

    /// The stream on which the answer to a request of another log is told, and whether it is a new one.
    pub(super) fn take_up(&mut self, subject: Subject) -> (StreamNumber, bool) {
        let is_it = |stream: &Stream| stream.is_taken_up && stream.subject == Some(subject);
        if let Some((number, _)) = self.streams.iter().find(|(_, stream)| is_it(stream)) {
            return (*number, false);
        }
        let number = self.enter(Stream {
            subject: Some(subject),
            is_taken_up: true,
            ..Stream::default()
        });
        (number, true)
    }

    fn enter(&mut self, stream: Stream) -> StreamNumber {
        self.last_stream += 1;
        let number = StreamNumber(self.last_stream);
        self.streams.insert(number, stream);
        number
    }

    /// The stream beside all requests.
    pub(super) fn standalone(&mut self) -> StreamNumber {
        self.streams.entry(STANDALONE).or_insert_with(|| Stream {
            subject: Some(self.session),
            ..Stream::default()
        });
        STANDALONE
    }

    /// An event id that stands for the beginning of what a reader of this stream will see.
    pub(super) fn prime(&mut self, stream: StreamNumber) -> Option<String> {
        let entry = self.streams.get_mut(&stream)?;
        entry.last += 1;
        let number = entry.last;
        Some(entry.id(self.epoch, stream, number))
    }

    /// How far a stream has come; what comes later is new.
    pub(super) fn end_of(&self, stream: StreamNumber) -> u32 {
        self.streams.get(&stream).map_or(0, |stream| stream.last)
    }

    /// The place an event id names, if everything after it is still here.
    pub(super) fn locate(&self, event_id: &str) -> Option<Place> {
        let mut parts = event_id.split('-').skip(1);
        let stream = StreamNumber(parts.next()?.parse().ok()?);
        let seen = parts.next()?.parse().ok()?;
        let known = self.streams.get(&stream)?;
        let whole = seen <= known.last && seen >= known.lost;
        // Only the id as we wrote it is ours.
        (whole && known.id(self.epoch, stream, seen) == event_id).then_some(Place { stream, seen })
    }

    /// Lets one reader in, and the reader before it go.
    pub(super) fn attach(&mut self, stream: StreamNumber) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        if let Some(stream) = self.streams.get_mut(&stream) {
            let waker = None;
            let before = stream.reader.replace(Reader { ticket, waker });
            wake(before);
        }
        ticket
    }

    pub(super) fn detach(&mut self, stream: StreamNumber, ticket: Ticket) {
        if let Some(stream) = self.streams.get_mut(&stream)
            && stream.reader.as_ref().is_some_and(|reader| reader.ticket == ticket)
        {
            stream.reader = None;
        }
    }

    /// Ends the response that carries a stream; the stream goes on and may be resumed.
    pub(super) fn hang_up(&mut self, stream: StreamNumber) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            wake(stream.reader.take());
        }
    }

    pub(super) fn is_read(&self, stream: StreamNumber) -> bool {
        self.streams.get(&stream).is_some_and(|stream| stream.reader.is_some())
    }

    pub(super) fn readers(&self) -> usize {
        self.streams.values().filter(|stream| stream.reader.is_some()).count()
    }

    /// Adds an event. False if nobody will see it.
    pub(super) fn say(&mut self, stream: StreamNumber, message: &Outgoing, now: Instant) -> bool {
        let Some(entry) = self.streams.get_mut(&stream).filter(|_| !self.closed) else {
            return false;
        };
        if entry.ended_at.is_some() {
            return false;
        }
        entry.last += 1;
        let number = entry.last;
        let optional = message.kind == Kind::Notification;
        if let Kind::Answer(_) = message.kind {
            entry.answer = Some(number);
        }
        if entry.reader.is_none() && self.budget.is_spent() {
            // There is no room to keep it, and nobody to give it to.
            if !optional {
                entry.lost = number;
            }
            return false;
        }
        let frame = events::frame(Some(&entry.id(self.epoch, stream, number)), &message.bytes);
        self.bytes += frame.len();
        self.budget.add(frame.len());
        self.events.push_back(Event {
            stream,
            number,
            frame,
            optional,
            at: now,
        });
        self.shrink();
        if let Some(reader) = self.streams.get_mut(&stream).and_then(|stream| stream.reader.as_mut())
            && let Some(waker) = reader.waker.take()
        {
            waker.wake();
        }
        true
    }

    /// Nothing more will be said there.
    pub(super) fn end(&mut self, stream: StreamNumber, now: Instant) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.ended_at = Some(now);
            if let Some(waker) = stream.reader.as_mut().and_then(|reader| reader.waker.take()) {
                waker.wake();
            }
        }
    }

    /// Ends every stream at once.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for stream in self.streams.values_mut() {
            wake(stream.reader.take());
        }
    }

    /// The next event behind `place`, which moves on; none when this reader is to stop.
    pub(super) fn poll_next(
        &mut self,
        place: &mut Place,
        ticket: Ticket,
        context: &mut Context<'_>,
    ) -> Poll<Option<Bytes>> {
        let Some(stream) = self.streams.get_mut(&place.stream) else {
            return Poll::Ready(None);
        };
        let Some(reader) = stream.reader.as_mut().filter(|reader| reader.ticket == ticket) else {
            return Poll::Ready(None);
        };
        if stream.lost > place.seen {
            // Something that had to arrive was too much for a client that reads so slowly.
            return Poll::Ready(None);
        }
        let next = |event: &Event| event.stream == place.stream && event.number > place.seen;
        if let Some(index) = self.events.iter().position(next) {
            let event = &self.events[index];
            let frame = event.frame.clone();
            place.seen = event.number;
            if self.budget.is_spent() {
                self.forget(index);
            }
            return Poll::Ready(Some(frame));
        }
        if stream.ended_at.is_some() {
            return Poll::Ready(None);
        }
        reader.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Forgets what is too old. True if nothing is left.
    pub(super) fn prune(&mut self, now: Instant) -> bool {
        let old = |at: Instant| now.duration_since(at) >= REPLAY_AGE_MAX;
        while self.events.front().is_some_and(|event| old(event.at)) {
            self.forget(0);
        }
        self.streams
            .retain(|_, stream| stream.reader.is_some() || !stream.ended_at.is_some_and(old));
        if self.events.is_empty() {
            self.events.shrink_to_fit();
        }
        self.events.is_empty() && self.streams.keys().all(|stream| *stream == STANDALONE)
    }

    /// Makes room: first what may be lost, then the oldest, never the newest.
    fn shrink(&mut self) {
        while self.events.len() > 1 && (self.events.len() > REPLAY_EVENTS_MAX || self.bytes > REPLAY_BYTES_MAX) {
            let older = self.events.len() - 1;
            let optional = self.events.iter().take(older).position(|event| event.optional);
            self.forget(optional.unwrap_or(0));
        }
        while self.streams.len() > REPLAY_EVENTS_MAX {
            let ended = |stream: &Stream| stream.ended_at.is_some() && stream.reader.is_none();
            let Some(oldest) = self.streams.iter().find(|(_, stream)| ended(stream)) else {
                break;
            };
            let oldest = *oldest.0;
            self.streams.remove(&oldest);
        }
    }

    fn forget(&mut self, index: usize) {
        let Some(event) = self.events.remove(index) else {
            return;
        };
        self.bytes -= event.frame.len();
        self.budget.give_back(event.frame.len());
        if let Some(stream) = self.streams.get_mut(&event.stream).filter(|_| !event.optional) {
            stream.lost = stream.lost.max(event.number);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= REPLAY_BYTES_ALL_MAX
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Stream {
    /// What an event of this stream goes by: `log-stream-number-subject`, and whether it was the answer.
    fn id(&self, epoch: u64, stream: StreamNumber, number: u32) -> String {
        let place = format!("{epoch:x}-{}-{number}", stream.0);
        match self.subject {
            Some(subject) if self.answer == Some(number) => format!("{place}-{subject}-{ANSWERED}"),
            Some(subject) => format!("{place}-{subject}"),
            None => place,
        }
    }
}

/// An event id of a log that is not here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Foreign {
    pub(super) subject: Subject,
    pub(super) is_standalone: bool,
    /// Whether the answer had been read when the stream was cut.
    pub(super) is_answered: bool,
}

impl Foreign {
    pub(super) fn read(event_id: &str) -> Option<Self> {
        let mut parts = event_id.split('-');
        u64::from_str_radix(parts.next()?, 16).ok()?;
        let stream = StreamNumber(parts.next()?.parse().ok()?);
        let _: u32 = parts.next()?.parse().ok()?;
        let subject = Subject::parse(parts.next()?)?;
        let is_answered = match (parts.next(), parts.next()) {
            (None, _) => false,
            (Some(ANSWERED), None) => true,
            (Some(_), _) => return None,
        };
        Some(Self {
            subject,
            is_standalone: stream == STANDALONE,
            is_answered,
        })
    }
}

fn wake(reader: Option<Reader>) {
    if let Some(waker) = reader.and_then(|reader| reader.waker) {
        waker.wake();
    }
}
