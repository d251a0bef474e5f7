//! `/sessions` and `/tokens`: who is here, and by what they are known.

use axum::Json;
use axum::response::{IntoResponse, Response};
use countersign_gateway::session::lifetime::SessionState;
use countersign_gateway::session::view;
use serde_json::{Value, json};

use super::asked::Asked;
use super::failure::Failure;
use crate::limits::LIST_DEFAULT;

pub(super) fn states() -> Vec<&'static str> {
    SessionState::ALL.iter().map(|state| state.as_str()).collect()
}

pub(super) async fn list(asked: Asked) -> Result<Response, Failure> {
    let state = asked.values.text("state").and_then(SessionState::parse);
    let limit = asked.values.whole("limit").map_or(LIST_DEFAULT, |limit| limit as usize);
    let found = asked.api.office.records.known_sessions(state, limit).await?;
    let ttl = asked.api.session_ttl;
    let items: Vec<Value> = found.iter().map(|session| view::session(session, ttl)).collect();
    Ok(Json(json!({ "items": items })).into_response())
}

pub(super) async fn tokens(asked: Asked) -> Result<Response, Failure> {
    let found = asked.api.office.records.known_tokens().await?;
    let items: Vec<Value> = found.iter().map(view::token).collect();
    Ok(Json(json!({ "items": items })).into_response())
}
