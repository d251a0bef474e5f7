//! `/metrics/summary`: S1's MetricsSummary.

use axum::Json;
use axum::response::{IntoResponse, Response};
use countersign_gateway::audit::summary::Period;

use super::asked::Asked;
use super::failure::Failure;

pub(super) async fn summary(asked: Asked) -> Result<Response, Failure> {
    let period = Period {
        from: asked.values.moment("from"),
        to: asked.values.moment("to"),
    };
    let summary = asked.api.office.records.summary(period).await?;
    Ok(Json(summary.to_json()).into_response())
}
