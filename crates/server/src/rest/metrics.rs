//! `/metrics/summary`: S1's MetricsSummary.

use axum::Json;
use axum::response::{IntoResponse, Response};

use super::asked::Asked;
use super::failure::Failure;

pub(super) async fn summary(asked: Asked) -> Result<Response, Failure> {
    let period = asked.values.period()?;
    let summary = asked.api.office.records.summary(period).await?;
    Ok(Json(summary.to_json()).into_response())
}
