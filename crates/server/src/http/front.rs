//! Where every request comes in: the guard first, then the address.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::Transport;
use hyper::body::Incoming;
use tower_service::Service as _;

use crate::office::Visitor;
use crate::rest;

use super::auth::Peer;
use super::{Hold, Server, callback, guard, numbers, refusal, sse, streamable};

/// Where agents come in. Those of jobs run on this machine and need not trust our certificate: what they say
/// here never leaves the machine, so a listener with TLS takes it plainly too.
const AGENTS_DOOR: &str = "/mcp";

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
            path if path.starts_with("/api/") => Transport::Rest,
            _ => Transport::StreamableHttp,
        };
        let address = peer.address.ip();
        server.doorman.refused(&server.host, address, transport, &refusal).await;
        let response = if guard::speaks_rpc(request.uri().path()) {
            refusal::unrecorded(&server.host, StatusCode::FORBIDDEN, &refusal)
        } else {
            refusal::answer(StatusCode::FORBIDDEN, refusal, &server.host.ids)
        };
        return hardened(response);
    }
    if peer.speaks_plainly && request.uri().path() != AGENTS_DOOR {
        let message = "this listener speaks TLS; use an address that begins with `https://`";
        let refusal = Refusal::new(ErrorCode::Forbidden, message);
        return hardened(refusal::answer(StatusCode::FORBIDDEN, refusal, &server.host.ids));
    }
    match request.uri().path() {
        AGENTS_DOOR => {
            let (parts, body) = request.into_parts();
            plain(streamable::handle(server, peer, parts, body).await)
        }
        "/sse" => plain(sse::open(server, peer, request.into_parts().0).await),
        "/messages" => {
            let _underway = peer.wire.begin();
            let (parts, body) = request.into_parts();
            plain(sse::message(server, peer, parts, body).await)
        }
        "/metrics" => {
            let _underway = peer.wire.begin();
            hardened(numbers::page(server, peer, &request).await)
        }
        _ => {
            let hold = Hold::from(peer.wire.begin());
            let mut request = request;
            request.extensions_mut().insert(hold.clone());
            if callback::is_for(request.uri().path()) {
                // Their token is none of ours, and is not to be taken for one that was revoked.
                if let Err(response) = server.admit_callback(request.headers(), peer).await {
                    return hardened(*response);
                }
                return hardened(routed(server, peer, request, Transport::Rest).await);
            }
            if request.uri().path() == rest::webhooks::GITHUB {
                // They come with a signature, which only whoever reads the body can check.
                return hardened(routed(server, peer, request, Transport::Rest).await);
            }
            if request.uri().path().starts_with("/api/") {
                return hardened(api(server, peer, request).await);
            }
            if let Some(visitor) = server.visitor(&request, peer, Transport::Console).await {
                request.extensions_mut().insert(visitor);
            }
            hardened(routed(server, peer, request, Transport::Console).await)
        }
    }
}

/// A request of a person or of a program of theirs.
async fn api(server: &Arc<Server>, peer: &Peer, mut request: Request<Incoming>) -> Response {
    let visitor = server.visitor(&request, peer, Transport::Rest).await;
    if let Some(Visitor::Known(caller)) = &visitor
        && let Err((refusal, seconds)) = server.paced(caller, peer, Transport::Rest).await
    {
        server.host.metrics.refused(refusal.code);
        let response = refusal::answer(StatusCode::TOO_MANY_REQUESTS, refusal, &server.host.ids);
        return refusal::retry_after(response, seconds);
    }
    if let Some(visitor) = visitor {
        request.extensions_mut().insert(visitor);
    }
    routed(server, peer, request, Transport::Rest).await
}

/// The answer of a route. What a route refused is recorded like what is refused at the door.
async fn routed(server: &Arc<Server>, peer: &Peer, request: Request<Incoming>, transport: Transport) -> Response {
    let changes_something = !matches!(*request.method(), Method::GET | Method::HEAD);
    let answering = server.router.clone().call(request.map(Body::new));
    let Ok(mut response) = match changes_something {
        true => finished(answering).await,
        false => answering.await,
    };
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        server.turned_away(peer, transport, &refusal).await;
    }
    response
}

/// Goes on to the end when the client has gone: a change may take several steps, and one that was recorded and not made,
/// or made and told to nobody, is none that anybody asked for.
async fn finished(
    answering: impl Future<Output = Result<Response, Infallible>> + Send + 'static,
) -> Result<Response, Infallible> {
    match tokio::spawn(answering).await {
        Ok(answered) => answered,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The server is gone, and nobody reads this.
            Err(_) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                Ok(response)
            }
        },
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn what_changes_something_is_finished_when_its_client_has_gone() {
        let (go_on, is_done) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (let_go, done) = (go_on.clone(), is_done.clone());
        let answering = finished(async move {
            let_go.notified().await;
            done.store(true, Ordering::Relaxed);
            Ok(Response::new(Body::empty()))
        });
        tokio::select! {
            biased;
            _ = answering => unreachable!("it waits to be let go on"),
            () = tokio::task::yield_now() => {}
        }
        go_on.notify_one();
        tokio::task::yield_now().await;
        assert!(is_done.load(Ordering::Relaxed));
    }
}
