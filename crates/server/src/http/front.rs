//! Where every request comes in: the guard first, then the address.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::Transport;
use hyper::body::Incoming;
use tower_service::Service as _;

use crate::console;

use super::auth::Peer;
use super::gauges::Counted;
use super::line::Underway;
use super::{Server, guard, numbers, refusal, sse, streamable};

pub(super) async fn answer(server: &Arc<Server>, peer: &Peer, request: Request<Incoming>) -> Response {
    let response = guarded(server, peer, request).await;
    server.host.metrics.request_answered(response.status().as_u16());
    response
}

async fn guarded(server: &Arc<Server>, peer: &Peer, request: Request<Incoming>) -> Response {
    let place = if server.is_loopback {
        guard::Place::Loopback
    } else {
        guard::Place::Elsewhere
    };
    if let Err(message) = guard::check(place, request.uri(), request.headers()) {
        let refusal = Refusal::new(ErrorCode::Forbidden, message);
        let transport = match request.uri().path() {
            "/sse" | "/messages" => Transport::Sse,
            _ => Transport::StreamableHttp,
        };
        let address = peer.address.ip();
        server.doorman.refused(&server.host, address, transport, &refusal).await;
        let response = if speaks_rpc(request.uri().path()) {
            refusal::unrecorded(&server.host, StatusCode::FORBIDDEN, &refusal)
        } else {
            refusal::answer(StatusCode::FORBIDDEN, refusal, &server.host.ids)
        };
        return hardened(response);
    }
    match request.uri().path() {
        "/mcp" => {
            let (parts, body) = request.into_parts();
            plain(streamable::handle(server, peer, parts, body).await)
        }
        "/sse" => plain(sse::open(server, peer, request.into_parts().0).await),
        "/messages" => {
            let _underway = peer.wire.begin();
            let (parts, body) = request.into_parts();
            plain(sse::message(server, peer, parts, body).await)
        }
        "/metrics" => hardened(numbers::page(server, peer, &request).await),
        _ => {
            let underway = peer.wire.begin();
            let mut request = request;
            let transport = match request.uri().path() {
                path if path.starts_with("/api/") => Transport::Rest,
                _ => Transport::Console,
            };
            if let Some(visitor) = server.visitor(&request, peer, transport).await {
                request.extensions_mut().insert(visitor);
            }
            let Ok(mut response) = server.router.clone().call(request.map(Body::new)).await;
            if let Some(console::Refused(refusal)) = response.extensions_mut().remove() {
                server.turned_away(peer, transport, &refusal).await;
            }
            hardened(carried(server, response, underway))
        }
    }
}

/// A stream of events keeps its connection busy while it lasts, and ends with the server.
fn carried(server: &Server, response: Response, underway: Underway) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "text/event-stream") {
        return response;
    }
    let mut stopping = server.stopping.subscribe();
    let ending = Box::pin(async move {
        // Told or dropped, both mean stop.
        let _ = stopping.wait_for(|stop| *stop).await;
    });
    let counted = server.options.gauges.stream();
    response.map(|body| {
        Body::new(Carried {
            body,
            ending,
            _underway: underway,
            _counted: counted,
        })
    })
}

struct Carried {
    body: Body,
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
    _underway: Underway,
    _counted: Counted,
}

impl http_body::Body for Carried {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        if self.ending.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}

fn speaks_rpc(path: &str) -> bool {
    matches!(path, "/mcp" | "/sse" | "/messages")
}

/// What programs read needs less than what browsers show.
fn plain(mut response: Response) -> Response {
    const HEADERS: [(header::HeaderName, HeaderValue); 2] = [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    response.headers_mut().extend(HEADERS);
    response
}

/// Headers that every page carries, unless it brought stricter or more fitting ones of its own.
fn hardened(mut response: Response) -> Response {
    const HEADERS: [(header::HeaderName, HeaderValue); 5] = [
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}
