//! Which addresses there are besides those of MCP: whether we live and can work, what this server is, REST, the
//! console, callbacks and webhooks.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::{HttpOptions, Readiness, describe, refusal};
use crate::console::{self, Console};
use crate::limits::LIVE_PAGES_MAX;
use crate::mcp::host::Host;
use crate::mcp::methods;
use crate::mcp::revision::Era;
use crate::rest;

/// What the pages know.
struct Site {
    readiness: Arc<dyn Readiness>,
    ids: IdSource,
    capabilities: Value,
    scheme: &'static str,
}

pub(super) fn routes(options: &HttpOptions, host: &Arc<Host>, stopping: watch::Receiver<bool>) -> Router {
    let site = Arc::new(Site {
        readiness: Arc::clone(&options.readiness),
        ids: options.ids.clone(),
        capabilities: methods::capabilities(host, Era::Modern),
        scheme: if options.tls.is_some() { "https" } else { "http" },
    });
    let pages = Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/.well-known/mcp", get(description))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .with_state(site);
    let Some(office) = &options.office else {
        return pages;
    };
    let api = Arc::new(rest::Api {
        office: office.clone(),
        service: Arc::clone(&options.service),
        metrics: Arc::clone(&host.metrics),
        credentials: Arc::clone(&options.credentials),
        ids: options.ids.clone(),
        clock: options.clock.clone(),
        session_ttl: options.session_ttl,
        body_bytes: options.limits.body_bytes,
        takes_callbacks: options.callbacks.is_some(),
        takes_webhooks: options.webhooks.is_some(),
        stopping: stopping.clone(),
        shared: rest::Shared::default(),
    });
    let pages = pages.merge(console::routes(Arc::new(Console {
        office: office.clone(),
        service: Arc::clone(&options.service),
        credentials: Arc::clone(&options.credentials),
        about: options.about.clone(),
        clock: options.clock.clone(),
        is_secure: options.tls.is_some(),
        stopping,
        pages: Arc::new(Semaphore::new(LIVE_PAGES_MAX)),
        walking: tokio::sync::Mutex::default(),
    })));
    let pages = match &options.callbacks {
        Some(_) => pages.merge(rest::callbacks::routes(api.clone())),
        None => pages,
    };
    let pages = match &options.webhooks {
        Some(webhooks) => {
            let body_bytes = options.limits.body_bytes;
            pages.merge(rest::webhooks::routes(
                webhooks.clone(),
                options.ids.clone(),
                body_bytes,
            ))
        }
        None => pages,
    };
    pages.merge(rest::routes(api))
}

async fn health() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

async fn readiness(State(site): State<Arc<Site>>) -> Response {
    match site.readiness.check().await {
        Ok(()) => Json(json!({"status": "ready"})).into_response(),
        Err(reason) => {
            let body = Json(json!({"status": "unavailable", "reason": reason}));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn nothing_here(State(site): State<Arc<Site>>) -> Response {
    let refusal = Refusal::new(ErrorCode::NotFound, "there is nothing at this address");
    refusal::answer(StatusCode::NOT_FOUND, refusal, &site.ids)
}

async fn wrong_method(State(site): State<Arc<Site>>) -> Response {
    let refusal = Refusal::new(ErrorCode::MethodNotFound, "this address does not take this method");
    refusal::answer(StatusCode::METHOD_NOT_ALLOWED, refusal, &site.ids)
}

async fn description(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    Json(describe::server(site.scheme, &headers, &site.capabilities)).into_response()
}
