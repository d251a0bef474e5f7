//! HTTP+SSE, the transport of 2024-11-05: one stream for everything the server says, and an address
//! for what the client says. The stream is the session; commands go on without it.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::{Caller, Transport};
use hyper::body::Incoming as HttpBody;

use crate::mcp::jsonrpc;

use super::auth::Peer;
use super::events::{self, Carrier, Source};
use super::exchange::Exchange;
use super::headers::{self, Accepts};
use super::refusal::{self, Refused};
use super::{Server, body};

/// Opens the stream.
pub(super) async fn open(server: &Arc<Server>, peer: &Peer, parts: Parts) -> Response {
    let mut carrier = Carrier::new(server, peer);
    let caller = match server.admit(&parts.headers, peer, Transport::Sse).await {
        Ok(caller) => caller,
        Err(refused) => return *refused,
    };
    if parts.method != Method::GET {
        return wrong_method(server, &caller, "GET").await;
    }
    if !Accepts::stream(&parts.headers) {
        let message = "this is a `text/event-stream`, and `Accept` does not name it";
        let refusal = Refusal::new(ErrorCode::InvalidRequest, message);
        return refuse(server, &caller, StatusCode::NOT_ACCEPTABLE, refusal).await;
    }
    let _room = match server.registry.room() {
        Ok(room) => room,
        Err(refusal) => {
            let response = refuse(server, &caller, StatusCode::SERVICE_UNAVAILABLE, refusal).await;
            return refusal::retry_after(response, 60);
        }
    };
    if let Err(refusal) = carrier.last(server) {
        let response = refuse(server, &caller, StatusCode::SERVICE_UNAVAILABLE, refusal).await;
        return refusal::retry_after(response, 60);
    }
    let exchange = Exchange::on(&peer.wire);
    let live = match server.registry.begin_stream(caller.clone(), &exchange).await {
        Ok(live) => live,
        Err(refusal) => {
            let status = refusal::status(refusal.code).max(StatusCode::SERVICE_UNAVAILABLE);
            return refuse(server, &caller, status, refusal).await;
        }
    };
    let opening = events::endpoint(&format!("/messages?sessionId={}", live.id));
    let source = Source::Session {
        exchange,
        live,
        registry: Arc::clone(&server.registry),
    };
    events::response(Some(opening), source, carrier)
}

/// Takes a message for a stream. Its answer goes there.
pub(super) async fn message(server: &Arc<Server>, peer: &Peer, parts: Parts, body: HttpBody) -> Response {
    let caller = match server.admit(&parts.headers, peer, Transport::Sse).await {
        Ok(caller) => caller,
        Err(refused) => return *refused,
    };
    if parts.method != Method::POST {
        return wrong_method(server, &caller, "POST").await;
    }
    let Some(id) = session_id(parts.uri.query()) else {
        let message = "`sessionId` is missing; open `/sse` and send messages to the address it names";
        let refusal = Refusal::new(ErrorCode::SessionNotInitialized, message);
        return refuse(server, &caller, StatusCode::BAD_REQUEST, refusal).await;
    };
    let (live, outlet) = match server.registry.find_stream(id, &caller) {
        Ok(found) => found,
        Err(refusal) => return refuse(server, &caller, StatusCode::NOT_FOUND, refusal).await,
    };
    if !headers::is_json(&parts.headers) {
        let refusal = Refusal::new(ErrorCode::InvalidRequest, "`Content-Type` must be `application/json`");
        return refuse(server, &caller, StatusCode::UNSUPPORTED_MEDIA_TYPE, refusal).await;
    }
    let bytes = match body::read(&parts.headers, body, server.options.limits.body_bytes).await {
        Ok(bytes) => bytes,
        Err((status, refusal)) => return refuse(server, &caller, status, refusal).await,
    };
    match jsonrpc::parse(&bytes, server.host.depth_max) {
        Ok(incoming) => live.connection.take(incoming, &outlet),
        Err(malformed) => {
            // Without an id the stream could not say which message was meant; this response can.
            let refused = Refused {
                session: Some(live.id.clone()),
                ..Refused::of(&caller).to(malformed.id)
            };
            let status = StatusCode::BAD_REQUEST;
            return refused.answer(&server.host, status, *malformed.refusal).await;
        }
    }
    let mut response = Response::new(Body::from("Accepted"));
    *response.status_mut() = StatusCode::ACCEPTED;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn session_id(query: Option<&str>) -> Option<&str> {
    let pairs = query?.split('&');
    let mut ids = pairs.filter_map(|pair| pair.strip_prefix("sessionId="));
    let first = ids.next().filter(|id| !id.is_empty())?;
    // Two sessions are none.
    ids.all(|other| other == first).then_some(first)
}

async fn wrong_method(server: &Server, caller: &Caller, allowed: &'static str) -> Response {
    let refusal = Refusal::new(ErrorCode::MethodNotFound, format!("this address takes {allowed}"));
    let mut response = refuse(server, caller, StatusCode::METHOD_NOT_ALLOWED, refusal).await;
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

async fn refuse(server: &Server, caller: &Caller, status: StatusCode, refusal: Refusal) -> Response {
    Refused::of(caller).answer(&server.host, status, refusal).await
}
