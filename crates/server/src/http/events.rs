//! Server-sent events: how a message stands in a stream, and the body of a response that is one.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use countersign_gateway::error::{ErrorCode, Refusal};
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, Sleep};

use crate::limits::{KEEP_ALIVE_EVERY, PROBE_EVERY, RETRY_AFTER};
use crate::mcp::connection::Connection;
use crate::metrics::{Counted, Gauges};

use super::Server;
use super::auth::Peer;
use super::exchange::Exchange;
use super::line::Underway;
use super::live::Live;
use super::registry::Registry;
use super::replay::{Place, Ticket};

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Where a stream's events come from, and what its end means.
pub(super) enum Source {
    /// A session's log: the stream may be taken up again.
    Log {
        live: Arc<Live>,
        place: Place,
        ticket: Ticket,
    },
    /// A modern request: the stream is the request, and its end a cancel.
    Request {
        exchange: Arc<Exchange>,
        connection: Connection,
    },
    /// The one stream of an HTTP+SSE session, which ends with it.
    Session {
        exchange: Arc<Exchange>,
        live: Arc<Live>,
        registry: Arc<Registry>,
    },
}

type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a stream needs of its connection and of the server.
pub(super) struct Carrier {
    underway: Underway,
    gauges: Arc<Gauges>,
    /// Held by a stream that only its client ends.
    lasting: Option<OwnedSemaphorePermit>,
}

impl Carrier {
    pub(super) fn new(server: &Server, peer: &Peer) -> Self {
        Self {
            underway: peer.wire.begin(),
            gauges: Arc::clone(&server.options.gauges),
            lasting: None,
        }
    }

    /// Takes a place for a stream that only its client ends. There are fewer of those than of connections, so that
    /// whoever opens them all keeps nobody from deciding.
    pub(super) fn last(&mut self, server: &Server) -> Result<(), Refusal> {
        let Ok(place) = Arc::clone(&server.lasting).try_acquire_owned() else {
            let message =
                "too many streams are open; close those that nobody reads, or come again as `Retry-After` says";
            return Err(Refusal::new(ErrorCode::QueueFull, message));
        };
        self.lasting = Some(place);
        Ok(())
    }
}

struct EventStream {
    /// Sent before anything else.
    opening: Option<Bytes>,
    source: Source,
    /// What ends it beside its source.
    ending: Option<Ending>,
    silence: Pin<Box<Sleep>>,
    /// Whether signs of life also find out if the client is there.
    probes: bool,
    underway: Underway,
    _counted: Counted,
    _lasting: Option<OwnedSemaphorePermit>,
}

/// A response that streams what `source` says.
pub(super) fn response(opening: Option<Bytes>, source: Source, carrier: Carrier) -> Response {
    carried(opening, source, None, carrier)
}

/// One that would never end by itself, and ends with the server.
pub(super) fn response_until(mut stopping: watch::Receiver<bool>, source: Source, carrier: Carrier) -> Response {
    let ending: Ending = Box::pin(async move {
        // Told or dropped, both mean stop.
        let _ = stopping.wait_for(|stop| *stop).await;
    });
    carried(None, source, Some(ending), carrier)
}

fn carried(opening: Option<Bytes>, source: Source, ending: Option<Ending>, carrier: Carrier) -> Response {
    let body = Body::new(EventStream {
        opening,
        source,
        ending,
        silence: Box::pin(tokio::time::sleep(KEEP_ALIVE_EVERY)),
        probes: false,
        underway: carrier.underway,
        _counted: carrier.gauges.stream(),
        _lasting: carrier.lasting,
    });
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that collect answers before they pass them on would keep the client waiting.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// One message as an event.
pub(super) fn frame(id: Option<&str>, message: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(message.len() + 80);
    frame.extend_from_slice(b"event: message\n");
    if let Some(id) = id {
        frame.extend_from_slice(b"id: ");
        frame.extend_from_slice(id.as_bytes());
        frame.push(b'\n');
    }
    // JSON as we write it has no line breaks.
    frame.extend_from_slice(b"data: ");
    frame.extend_from_slice(message);
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

/// The first event of a stream that can be taken up again: an id to resume from, before there is
/// anything to say.
pub(super) fn priming(id: &str) -> Bytes {
    format!("id: {id}\nretry: {}\ndata: \n\n", RETRY_AFTER.as_millis()).into()
}

/// Where an HTTP+SSE client sends its messages.
pub(super) fn endpoint(address: &str) -> Bytes {
    format!("event: endpoint\ndata: {address}\n\n").into()
}

impl http_body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = &mut *self;
        let next = match stream.opening.take() {
            Some(opening) => Poll::Ready(Some(opening)),
            None => stream.source.poll_next(context),
        };
        let next = match next {
            Poll::Ready(next) => next,
            Poll::Pending => {
                if let Some(ending) = &mut stream.ending
                    && ending.as_mut().poll(context).is_ready()
                {
                    stream.ending = None;
                    return Poll::Ready(None);
                }
                if !stream.probes && stream.underway.has_ended() {
                    stream.probes = true;
                    stream.silence.as_mut().reset(Instant::now());
                }
                if stream.silence.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                Some(Bytes::from_static(KEEP_ALIVE))
            }
        };
        let every = if stream.probes { PROBE_EVERY } else { KEEP_ALIVE_EVERY };
        stream.silence.as_mut().reset(Instant::now() + every);
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl Source {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Log { live, place, ticket } => live.poll_next(place, *ticket, context),
            Self::Request { exchange, .. } | Self::Session { exchange, .. } => exchange
                .poll_next(context)
                .map(|next| next.map(|message| frame(None, &message.bytes))),
        }
    }
}

impl Drop for EventStream {
    /// The client has gone, or everything was said.
    fn drop(&mut self) {
        match &self.source {
            Source::Log { live, place, ticket } => live.detach(place.stream, *ticket),
            Source::Request { exchange, connection } => {
                exchange.close();
                connection.cancel_all();
            }
            Source::Session {
                exchange,
                live,
                registry,
            } => {
                exchange.close();
                registry.stream_closed(live);
            }
        }
    }
}
