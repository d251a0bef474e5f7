//! A refusal as an HTTP answer.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_gateway::error::Refusal;
use countersign_gateway::ids::IdSource;
use serde_json::json;

pub(super) fn answer(status: StatusCode, refusal: Refusal, ids: &IdSource) -> Response {
    let correlation = ids.correlation();
    tracing::debug!(%correlation, code = refusal.code.name(), message = refusal.message, "refused");
    let body = json!({"error": {
        "errorCode": refusal.code.name(),
        "message": refusal.message,
        "details": refusal.details,
        "correlation_id": correlation.as_str(),
    }});
    (status, Json(body)).into_response()
}
