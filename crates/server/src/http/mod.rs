//! The HTTP listener: whether we live, whether we can work, and a page that says what is running.
//!
//! It has no state of its own. Routes that act belong to modules beside this one and pass the same
//! guard.

mod guard;
mod page;
mod refusal;

use std::future::{Future, IntoFuture};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use axum::{Json, Router, middleware};
use countersign_gateway::audit::Pending;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use serde_json::json;
use tokio::net::TcpListener;

/// Port: can this server do its work now?
pub trait Readiness: Send + Sync + 'static {
    /// `Err` says in one sentence what is missing.
    fn check(&self) -> Pending<Result<(), String>>;
}

/// What the page says about this server.
#[derive(Clone, Debug)]
pub struct About {
    pub workspace: String,
    pub policy_mode: String,
    pub state_directory: String,
}

pub struct HttpOptions {
    pub about: About,
    pub readiness: Arc<dyn Readiness>,
    /// How long requests that are being answered may take once `shutdown` has resolved.
    pub shutdown_grace: Duration,
    pub ids: IdSource,
}

/// Why serving ended other than by the operator's wish.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot tell the listener's address")]
    Address(#[source] io::Error),
    #[error("cannot accept connections")]
    Accept(#[source] io::Error),
}

/// Serves until `shutdown` resolves.
pub async fn serve_http(listener: TcpListener, options: HttpOptions, shutdown: impl Future) -> Result<(), HttpError> {
    let loopback = listener.local_addr().map_err(HttpError::Address)?.ip().is_loopback();
    let grace = options.shutdown_grace;
    let listener = listener.tap_io(|connection| {
        // Answers are small and whole; waiting to fill a packet only delays them.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = axum::serve(listener, routes(options, loopback))
        .with_graceful_shutdown(async {
            // Told or dropped, both mean stop.
            let _ = stopped.await;
        })
        .into_future();
    let mut serving = pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        _ = shutdown => {
            drop(stop);
            tokio::time::timeout(grace, serving).await.unwrap_or(Ok(()))
        }
    };
    served.map_err(HttpError::Accept)
}

struct Server {
    options: HttpOptions,
    started: Instant,
}

fn routes(options: HttpOptions, loopback: bool) -> Router {
    let server = Arc::new(Server {
        options,
        started: Instant::now(),
    });
    let router = Router::new()
        .route("/", get(home))
        .route("/style.css", get(style))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method);
    let router = if loopback {
        router.layer(middleware::from_fn_with_state(
            Arc::clone(&server),
            guard::loopback_only,
        ))
    } else {
        router
    };
    router.layer(middleware::map_response(harden)).with_state(server)
}

async fn home(State(server): State<Arc<Server>>) -> Response {
    let html = page::render(&server.options.about, server.started.elapsed());
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], page::STYLE).into_response()
}

async fn health() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

async fn readiness(State(server): State<Arc<Server>>) -> Response {
    match server.options.readiness.check().await {
        Ok(()) => Json(json!({"status": "ready"})).into_response(),
        Err(reason) => {
            let body = Json(json!({"status": "unavailable", "reason": reason}));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn nothing_here(State(server): State<Arc<Server>>) -> Response {
    let refusal = Refusal::new(ErrorCode::NotFound, "there is nothing at this address");
    refusal::answer(StatusCode::NOT_FOUND, refusal, &server.options.ids)
}

async fn wrong_method(State(server): State<Arc<Server>>) -> Response {
    let refusal = Refusal::new(ErrorCode::MethodNotFound, "this address does not take this method");
    refusal::answer(StatusCode::METHOD_NOT_ALLOWED, refusal, &server.options.ids)
}

/// Headers that every answer carries.
async fn harden(mut response: Response) -> Response {
    const HEADERS: [(header::HeaderName, HeaderValue); 5] = [
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(
                "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            ),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    response.headers_mut().extend(HEADERS);
    response
}
