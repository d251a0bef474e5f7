//! Streamable HTTP: one address for both eras. Each POST brings its own way back, so a client's ids
//! decide nothing here.
//!
//! An answer is plain JSON when it is the first thing to be said; otherwise the response becomes a
//! stream of events, if the client reads those.

use std::future::poll_fn;
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::response::Response;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::{Caller, Transport};
use hyper::body::Incoming as HttpBody;
use serde_json::Value;

use crate::limits::STREAM_AFTER;
use crate::mcp::connection::Connection;
use crate::mcp::host::Link;
use crate::mcp::jsonrpc::{self, Incoming, Message};
use crate::mcp::outlet::Outgoing;
use crate::mcp::{methods, modern};

use super::auth::Peer;
use super::events::{self, Carrier, Source};
use super::exchange::{Exchange, First};
use super::headers::{self, Accepts};
use super::line::Wire;
use super::live::Live;
use super::refusal::{self, Refused};
use super::replay::{Log, Place, StreamNumber};
use super::{Server, body, resuming};

pub(super) async fn handle(server: &Arc<Server>, peer: &Peer, parts: Parts, body: HttpBody) -> Response {
    let carrier = Carrier::new(server, peer);
    let caller = match server.admit(&parts.headers, peer, Transport::StreamableHttp).await {
        Ok(caller) => caller,
        Err(refused) => return *refused,
    };
    let post = Post {
        server,
        carrier,
        caller,
        headers: parts.headers,
        // HTTP/1.0 has nothing that may stand before an answer.
        probed: (parts.version == Version::HTTP_11).then_some(&peer.wire),
    };
    if let Err(refusal) = headers::check_repeated(&post.headers) {
        return post.refuse(StatusCode::BAD_REQUEST, refusal).await;
    }
    match parts.method {
        Method::POST => post.take(body).await,
        Method::GET if !headers::says_modern(&post.headers) => post.listen().await,
        Method::DELETE if !headers::says_modern(&post.headers) => post.close().await,
        _ => post.wrong_method().await,
    }
}

/// A request by a known caller.
struct Post<'a> {
    server: &'a Arc<Server>,
    carrier: Carrier,
    caller: Caller,
    headers: HeaderMap,
    /// Where to find out whether the client is still there.
    probed: Option<&'a Arc<Wire>>,
}

impl Post<'_> {
    async fn take(self, body: HttpBody) -> Response {
        let accepts = Accepts::read(&self.headers);
        if !accepts.json && !accepts.events {
            let message = "answers are `application/json` or `text/event-stream`, and `Accept` names neither";
            let refusal = Refusal::new(ErrorCode::InvalidRequest, message);
            return self.refuse(StatusCode::NOT_ACCEPTABLE, refusal).await;
        }
        if !headers::is_json(&self.headers) {
            let refusal = Refusal::new(ErrorCode::InvalidRequest, "`Content-Type` must be `application/json`");
            return self.refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, refusal).await;
        }
        let bytes = match body::read(&self.headers, body, self.server.options.limits.body_bytes).await {
            Ok(bytes) => bytes,
            Err((status, refusal)) => return self.refuse(status, refusal).await,
        };
        let incoming = match jsonrpc::parse(&bytes, self.server.host.depth_max) {
            Ok(incoming) => incoming,
            Err(malformed) => {
                let refused = Refused::of(&self.caller).to(malformed.id);
                let status = refusal::status(malformed.refusal.code).max(StatusCode::BAD_REQUEST);
                return refused.answer(&self.server.host, status, *malformed.refusal).await;
            }
        };
        if self.is_modern(&incoming) {
            self.modern(incoming, accepts).await
        } else {
            self.legacy(incoming, accepts).await
        }
    }

    /// Whether there is no session to this. A handshake means one, whatever the header says.
    fn is_modern(&self, incoming: &Incoming) -> bool {
        match incoming {
            Incoming::One(Message::Request(request)) => {
                modern::is_modern(&request.method, &request.params)
                    || headers::says_modern(&self.headers) && request.method != "initialize"
            }
            Incoming::One(Message::Notification { .. } | Message::Response(_)) | Incoming::Batch(_) => {
                headers::says_modern(&self.headers)
            }
        }
    }

    async fn modern(mut self, incoming: Incoming, accepts: Accepts) -> Response {
        if let Incoming::One(Message::Request(request)) = &incoming {
            let checked = headers::check_modern(&self.headers, request).and_then(|()| {
                let Some(Value::String(name)) = request.params.get("name").filter(|_| request.method == "tools/call")
                else {
                    return Ok(());
                };
                match methods::input_schema(&self.server.host, &self.caller, name) {
                    Some(schema) => {
                        let arguments = request.params.get("arguments").and_then(Value::as_object);
                        headers::check_parameters(&self.headers, &schema, arguments)
                    }
                    None => Ok(()),
                }
            });
            if let Err(refusal) = checked {
                return self.refuse_message(StatusCode::BAD_REQUEST, refusal, incoming).await;
            }
        }
        let listens =
            matches!(&incoming, Incoming::One(Message::Request(request)) if request.method == "subscriptions/listen");
        if listens && let Err(refusal) = self.carrier.last(self.server) {
            let response = self
                .refuse_message(StatusCode::SERVICE_UNAVAILABLE, refusal, incoming)
                .await;
            return refusal::retry_after(response, 60);
        }
        let connection = Connection::new(&self.server.host, self.caller, Link::Stateless);
        let asks = asks(&incoming);
        let exchange = begin(&connection, incoming, accepts);
        let waiting = Waiting {
            exchange: &exchange,
            cancels: Some(&connection),
        };
        let probed = self.probed.map(Wire::probe);
        let first = first(&exchange, accepts, Patience::Short).await;
        drop(probed);
        waiting.end();
        if let Some(answer) = whole(&exchange, first, accepts, asks, modern_status) {
            return answer;
        }
        let source = Source::Request { exchange, connection };
        if listens {
            let stopping = self.server.stopping.subscribe();
            return events::response_until(stopping, source, self.carrier);
        }
        events::response(None, source, self.carrier)
    }

    async fn legacy(self, incoming: Incoming, accepts: Accepts) -> Response {
        if let Err(refusal) = headers::check_version(&self.headers) {
            return self.refuse_message(StatusCode::BAD_REQUEST, refusal, incoming).await;
        }
        let is_handshake = is_handshake(&incoming);
        let found = match self.session() {
            Some(id) => Some(self.server.registry.find(id, &self.caller).await),
            None => None,
        };
        let live = match found {
            Some(Ok(live)) => live,
            Some(Err(gone)) if is_handshake && refusal::status(gone.code) == StatusCode::NOT_FOUND => {
                return self.handshake(incoming, accepts).await;
            }
            None if is_handshake => return self.handshake(incoming, accepts).await,
            Some(Err(refusal)) => {
                let status = refusal::status(refusal.code).max(StatusCode::BAD_REQUEST);
                return self.refuse_message(status, refusal, incoming).await;
            }
            None => {
                return self
                    .refuse_message(StatusCode::BAD_REQUEST, no_session(), incoming)
                    .await;
            }
        };
        let asks = asks(&incoming);
        // The answers to a batch cannot be found one by one.
        let is_one = matches!(incoming, Incoming::One(_));
        let exchange = begin(&live.connection, incoming, accepts);
        let waiting = Waiting {
            exchange: &exchange,
            cancels: None,
        };
        let first = first(&exchange, accepts, Patience::Short).await;
        waiting.end();
        if let Some(answer) = whole(&exchange, first, accepts, asks, refusal::status) {
            return answer;
        }
        let subject = exchange.subject().filter(|_| is_one);
        stream(self.carrier, &live, |log| log.begin(subject), Some(&exchange))
    }

    /// Begins a session. It is known once the answer says so.
    async fn handshake(self, incoming: Incoming, accepts: Accepts) -> Response {
        let _room = match self.server.registry.room() {
            Ok(room) => room,
            Err(refusal) => {
                let response = self
                    .refuse_message(StatusCode::SERVICE_UNAVAILABLE, refusal, incoming)
                    .await;
                return refusal::retry_after(response, 60);
            }
        };
        let live = self.server.registry.begin(self.caller);
        let exchange = begin(&live.connection, incoming, accepts);
        let first = first(&exchange, accepts, Patience::Long).await;
        let began = matches!(first, Some(First::Answer(None)));
        let json = Accepts { json: true, ..accepts };
        let Some(mut response) = whole(&exchange, first, json, Asks::Request, refusal::status) else {
            return empty(StatusCode::INTERNAL_SERVER_ERROR);
        };
        if began && let Ok(id) = HeaderValue::from_str(live.id.as_str()) {
            self.server.registry.enter(&live);
            response.headers_mut().insert(headers::SESSION, id);
        }
        response
    }

    /// The stream beside all requests, or one that was cut.
    async fn listen(mut self) -> Response {
        if !Accepts::stream(&self.headers) {
            let message = "this is a `text/event-stream`, and `Accept` does not name it";
            let refusal = Refusal::new(ErrorCode::InvalidRequest, message);
            return self.refuse(StatusCode::NOT_ACCEPTABLE, refusal).await;
        }
        let live = match self.known_session().await {
            Ok(live) => live,
            Err(refused) => return *refused,
        };
        if let Err(refusal) = self.carrier.last(self.server) {
            let response = self.refuse(StatusCode::SERVICE_UNAVAILABLE, refusal).await;
            return refusal::retry_after(response, 60);
        }
        let Some(last) = self.headers.get(headers::LAST_EVENT) else {
            return stream(self.carrier, &live, Log::standalone, None);
        };
        // Bytes that are no text are no id of ours either.
        match resuming::take_up(&live, last.to_str().unwrap_or_default()).await {
            Ok((place, ticket)) => {
                let source = Source::Log { live, place, ticket };
                events::response(None, source, self.carrier)
            }
            Err(refusal) => {
                let status = refusal::status(refusal.code).max(StatusCode::BAD_REQUEST);
                self.refuse(status, refusal).await
            }
        }
    }

    /// Ends a session and everything that runs in it. Who waits for an answer still hears how it ended.
    async fn close(self) -> Response {
        let live = match self.known_session().await {
            Ok(live) => live,
            Err(refused) => return *refused,
        };
        // Carried through also when the client hangs up meanwhile: half closed, a session would keep its place, and the
        // store would call it open.
        let server = Arc::clone(self.server);
        let closed = tokio::spawn(async move { server.registry.close(&live).await }).await;
        empty(match closed {
            Ok(()) => StatusCode::NO_CONTENT,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        })
    }

    /// The session a request without a body names.
    async fn known_session(&self) -> Result<Arc<Live>, Box<Response>> {
        let refused = match (headers::check_version(&self.headers), self.session()) {
            (Err(refusal), _) => (StatusCode::BAD_REQUEST, refusal),
            (Ok(()), None) => (StatusCode::BAD_REQUEST, no_session()),
            (Ok(()), Some(id)) => match self.server.registry.find(id, &self.caller).await {
                Ok(live) => return Ok(live),
                Err(refusal) => (refusal::status(refusal.code).max(StatusCode::BAD_REQUEST), refusal),
            },
        };
        Err(Box::new(self.refuse(refused.0, refused.1).await))
    }

    fn session(&self) -> Option<&str> {
        // Bytes that are no text name no session of ours either.
        let id = self.headers.get(headers::SESSION)?;
        Some(id.to_str().unwrap_or_default())
    }

    async fn wrong_method(self) -> Response {
        let allowed = match headers::says_modern(&self.headers) {
            true => "POST",
            false => "POST, GET, DELETE",
        };
        let message = format!("this address takes {allowed}");
        let refusal = Refusal::new(ErrorCode::MethodNotFound, message);
        let mut response = self.refuse(StatusCode::METHOD_NOT_ALLOWED, refusal).await;
        let allowed = HeaderValue::from_static(allowed);
        response.headers_mut().insert(header::ALLOW, allowed);
        response
    }

    async fn refuse(&self, status: StatusCode, refusal: Refusal) -> Response {
        Refused::of(&self.caller)
            .answer(&self.server.host, status, refusal)
            .await
    }

    async fn refuse_message(&self, status: StatusCode, refusal: Refusal, incoming: Incoming) -> Response {
        let refused = Refused::of(&self.caller).said(incoming);
        refused.answer(&self.server.host, status, refusal).await
    }
}

/// Whether anything in a message wants an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Request,
    Nothing,
}

fn asks(incoming: &Incoming) -> Asks {
    match incoming {
        Incoming::One(Message::Request(_)) => Asks::Request,
        Incoming::Batch(members) if members.is_empty() || members.iter().any(wants_answer) => Asks::Request,
        Incoming::One(Message::Notification { .. } | Message::Response(_)) | Incoming::Batch(_) => Asks::Nothing,
    }
}

/// Whether a batch's member is neither a notification nor a response; what is none of the three is
/// answered as well, with an error.
fn wants_answer(member: &Value) -> bool {
    let has = |name| member.get(name).is_some();
    let notifies = has("method") && !has("id");
    let responds = !has("method") && (has("result") || has("error"));
    !notifies && !responds
}

fn is_handshake(incoming: &Incoming) -> bool {
    matches!(incoming, Incoming::One(Message::Request(request)) if request.method == "initialize")
}

fn begin(connection: &Connection, incoming: Incoming, accepts: Accepts) -> Arc<Exchange> {
    let exchange = Exchange::new();
    let outlet = exchange.outlet(accepts.events);
    connection.take(incoming, &outlet);
    exchange
}

enum Patience {
    /// Until a stream would tell the client more than silence does.
    Short,
    Long,
}

/// What a request led to first; none when that takes long.
async fn first(exchange: &Exchange, accepts: Accepts, patience: Patience) -> Option<First> {
    let can_stream = accepts.events && matches!(patience, Patience::Short);
    let first = poll_fn(|context| exchange.poll_first(!can_stream, context));
    if can_stream {
        tokio::time::timeout(STREAM_AFTER, first).await.ok()
    } else {
        Some(first.await)
    }
}

/// The response, if it is not a stream.
fn whole(
    exchange: &Exchange,
    first: Option<First>,
    accepts: Accepts,
    asks: Asks,
    status: fn(ErrorCode) -> StatusCode,
) -> Option<Response> {
    match first? {
        First::Answer(code) => {
            let status = code.map_or(StatusCode::OK, status);
            if !accepts.json && status.is_success() {
                return None;
            }
            let Outgoing { bytes, .. } = exchange.take_answer()?;
            let response = refusal::json_bytes(status, bytes);
            Some(match status {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => refusal::retry_after(response, 1),
                _ => response,
            })
        }
        First::Other => None,
        // A cancelled request has no answer; where a stream can say so by ending, it does.
        First::Nothing if asks == Asks::Request && accepts.events => None,
        First::Nothing => Some(empty(StatusCode::ACCEPTED)),
    }
}

fn modern_status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::MethodNotFound => StatusCode::NOT_FOUND,
        ErrorCode::InvalidParams => StatusCode::BAD_REQUEST,
        _ => refusal::status(code),
    }
}

/// Carries a stream of the session, a new one or the one beside all requests.
fn stream(
    carrier: Carrier,
    live: &Arc<Live>,
    choose: impl FnOnce(&mut Log) -> StreamNumber,
    exchange: Option<&Arc<Exchange>>,
) -> Response {
    let Some(mut log) = live.log() else {
        return empty(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let stream = choose(&mut log);
    let opening = live.has_primers().then(|| log.prime(stream)).flatten();
    let seen = log.end_of(stream);
    let ticket = log.attach(stream);
    drop(log);
    if let Some(exchange) = exchange {
        exchange.hand_on(live, stream);
    }
    let source = Source::Log {
        live: Arc::clone(live),
        place: Place { stream, seen },
        ticket,
    };
    let opening = opening.map(|id| events::priming(&id));
    events::response(opening, source, carrier)
}

/// A client that waits for the first word. Dropped while it waits, the client has gone.
struct Waiting<'a> {
    exchange: &'a Exchange,
    /// A modern client that goes cancels what it asked for.
    cancels: Option<&'a Connection>,
}

impl Waiting<'_> {
    /// The client is there and gets its response.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.exchange.close();
        if let Some(connection) = self.cancels {
            connection.cancel_all();
        }
    }
}

fn no_session() -> Refusal {
    let message = "the header `Mcp-Session-Id` is missing; send `initialize` first and repeat the id it answers with";
    Refusal::new(ErrorCode::SessionNotInitialized, message)
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
