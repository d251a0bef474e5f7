//! The REST routes under `/api/v1`: approvals, and what else people and their programs ask for.
//!
//! Lists are `{items: []}`, refusals `{error: {errorCode, message, details, correlation_id}}`.

mod approvals;
pub(crate) mod callbacks;
mod failure;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use countersign_gateway::ids::IdSource;

use crate::office::Office;

/// What the routes are made of.
pub(crate) struct Api {
    pub(crate) office: Office,
    pub(crate) ids: IdSource,
}

pub(crate) fn routes(api: Arc<Api>) -> Router {
    Router::new()
        .route("/api/v1/approvals", get(approvals::list))
        .route("/api/v1/approvals/{id}", get(approvals::show))
        .route("/api/v1/approvals/{id}/decision", post(approvals::decide))
        .with_state(api)
}
