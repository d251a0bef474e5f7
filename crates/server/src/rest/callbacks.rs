//! `/api/v1/mcp/{approver,executor}/callback`: what services that were asked send back.
//!
//! Whoever gets here holds the callback token. Both routes take the same body, in either vocabulary; an
//! executor may besides say `status` and `result`, for acts that were given to it.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use countersign_gateway::approval::callback::{Callback, CallbackError, Meant, Route, Word};
use countersign_gateway::approval::question::Given;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::delegation::Delegation;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{ApprovalId, CorrelationId, DelegationId};
use countersign_gateway::limits::{ACTOR_CHARS_MAX, NAME_CHARS_ECHOED};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::Api;
use super::asked::object;
use super::failure::Failure;
use crate::http::body;
use crate::limits::CALLBACK_BYTES_MAX;

pub const APPROVER: &str = "/api/v1/mcp/approver/callback";
pub const EXECUTOR: &str = "/api/v1/mcp/executor/callback";

/// The routes, for a server that has a callback token.
pub(crate) fn routes(api: Arc<Api>) -> Router {
    Router::new()
        .route(APPROVER, post(approver))
        .route(EXECUTOR, post(executor))
        .method_not_allowed_fallback(super::wrong_method)
        .with_state(api)
}

async fn approver(State(api): State<Arc<Api>>, request: Request) -> Response {
    take(&api, Route::Approver, request).await
}

async fn executor(State(api): State<Arc<Api>>, request: Request) -> Response {
    take(&api, Route::Executor, request).await
}

/// What the address that an approver was given says, besides what it is for.
#[derive(Deserialize)]
struct Address {
    approval_request_id: Option<String>,
    /// Of an act that was given to an executor.
    request_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    approval_request_id: Option<String>,
    correlation_id: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    actor_id: Option<String>,
    tool: Option<String>,
    metadata: Option<Value>,
    request_id: Option<String>,
    status: Option<String>,
    result: Option<Value>,
    selected_option: Option<String>,
    custom: Option<String>,
}

/// The fields of [`Said`], for whoever sent others.
pub(super) const FIELDS: &str = "approval_request_id, correlation_id, decision, reason, actor_id, tool, metadata, request_id, \
    status, result, selected_option and custom";

async fn take(api: &Api, route: Route, request: Request) -> Response {
    let board = &api.office.board;
    let taken = async {
        let (parts, body) = request.into_parts();
        let body = match body::read(&parts.headers, body, CALLBACK_BYTES_MAX).await {
            Ok(body) => body,
            Err((status, refusal)) => {
                board.misread_callback(route, &refusal.message).await?;
                return Err(Failure::of(status, refusal));
            }
        };
        let address = Query::try_from_uri(&parts.uri)
            .map_err(|_| "what follows the `?` cannot be read, or names something twice".to_owned());
        let callback = match address.and_then(|Query(address)| read(route, address, &body)) {
            Ok(callback) => callback,
            Err(message) => {
                board.misread_callback(route, &message).await?;
                return Err(Failure::malformed(message));
            }
        };
        let callback = match &api.office.delegations {
            None => callback,
            Some(desk) => {
                let callback = desk.heard(callback).await.map_err(CallbackError::from)?;
                if let Some(delegation) = desk.called_back(&callback).await? {
                    return Ok(shown_act(&delegation));
                }
                callback
            }
        };
        Ok(shown(board.called_back(callback).await?.approval()))
    };
    match taken.await {
        Ok(answer) => Json(answer).into_response(),
        Err(failure) => failure.answer(&api.ids),
    }
}

fn shown(approval: &ApprovalRequest) -> Value {
    let mut shown = json!({
        "id": approval.id.as_str(),
        "correlation_id": approval.correlation_id.as_str(),
        "tool_name": approval.tool,
        "action": approval.kind.as_str(),
        "approval_state": approval.state().as_str(),
    });
    if let Some(run) = &approval.run_id {
        shown["run_id"] = json!(run);
    }
    shown
}

fn shown_act(delegation: &Delegation) -> Value {
    json!({
        "id": delegation.id.as_str(),
        "correlation_id": delegation.correlation_id.as_str(),
        "tool_name": delegation.tool,
        "action": "tool-call",
        "approval_state": delegation.state(),
    })
}

fn read(route: Route, address: Address, body: &[u8]) -> Result<Callback, String> {
    // What is wrong with it goes into the record, so it must not repeat what a service may not tell.
    let said: Said = object(body).map_err(|wrong| match serde_json::from_slice::<IgnoredAny>(body) {
        Ok(_) if body.trim_ascii_start().starts_with(b"{") => {
            format!(
                "the body has a field that no callback has, one twice, or one of another type; it may have {FIELDS}"
            )
        }
        Ok(_) | Err(_) => wrong,
    })?;
    let word = word(route, &said)?;
    let id = match (address.approval_request_id, said.approval_request_id) {
        (Some(address), Some(body)) if address != body => {
            return Err("`approval_request_id` is one in the address and another in the body".to_owned());
        }
        (address, body) => address.or(body),
    };
    for (field, text, most) in [
        ("approval_request_id", &id, NAME_CHARS_ECHOED),
        ("correlation_id", &said.correlation_id, NAME_CHARS_ECHOED),
        ("tool", &said.tool, NAME_CHARS_ECHOED),
        ("request_id", &said.request_id, NAME_CHARS_ECHOED),
        ("request_id", &address.request_id, NAME_CHARS_ECHOED),
        ("actor_id", &said.actor_id, ACTOR_CHARS_MAX),
    ] {
        named(field, text.as_deref(), most)?;
    }
    let correlation_id = said.correlation_id.map(CorrelationId::trusted);
    // An executor may have a name of its own for the work, so the one in the address comes first, and the
    // one in the body counts only where nothing else says what is meant.
    let alone = id.is_none() && correlation_id.is_none() && route == Route::Executor;
    let act = address.request_id.or_else(|| said.request_id.clone().filter(|_| alone));
    let meant = match (
        id.map(ApprovalId::trusted),
        act.map(DelegationId::trusted),
        correlation_id,
    ) {
        (Some(id), _, correlation_id) => Meant::Question { id, correlation_id },
        (None, Some(id), correlation_id) => Meant::Act { id, correlation_id },
        (None, None, Some(correlation_id)) => Meant::Call(correlation_id),
        (None, None, None) => return Err("name the question by `approval_request_id` or `correlation_id`".to_owned()),
    };
    let answer = answer(said.selected_option, said.custom, said.result.as_ref())?;
    Ok(Callback {
        route,
        meant,
        word,
        reason: said.reason,
        actor_id: said.actor_id,
        tool: said.tool,
        request_id: said.request_id,
        metadata: said.metadata.or_else(|| said.result.clone()),
        answer,
        result: said.result,
    })
}

/// What a question is answered with, in the body itself or in an executor's result.
fn answer(option: Option<String>, custom: Option<String>, result: Option<&Value>) -> Result<Option<Given>, String> {
    let within = |name: &str| result.and_then(|result| result.get(name)?.as_str()).map(str::to_owned);
    let (option, custom) = match (option, custom) {
        (None, None) => (within("selected_option"), within("custom")),
        given => given,
    };
    match (option, custom) {
        (Some(_), Some(_)) => Err("give `selected_option` or `custom`, not both".to_owned()),
        (Some(option), None) => Ok(Some(Given::Option(option))),
        (None, Some(custom)) => Ok(Some(Given::Custom(custom))),
        (None, None) => Ok(None),
    }
}

fn word(route: Route, said: &Said) -> Result<Word, String> {
    let status = said.status.as_deref();
    if route == Route::Approver && (status.is_some() || said.result.is_some()) {
        return Err("`status` and `result` are an executor's words; an approver says `decision`".to_owned());
    }
    match (said.decision.as_deref(), status) {
        (Some("pending"), None) | (None, Some("pending")) => {
            Err("`pending` is no answer; call back when there is one".to_owned())
        }
        (Some(word), None) => Word::parse(word).ok_or_else(|| {
            let known: Vec<&str> = Word::WORDS.iter().map(|(word, _)| *word).collect();
            format!("`decision` is one of {}", known.join(", "))
        }),
        (None, Some("success")) => Ok(Word::Applied),
        (None, Some("error")) => Ok(Word::Failed),
        (None, Some(_)) => Err("`status` is `success` or `error`".to_owned()),
        (None, None) => Err("`decision` is missing".to_owned()),
        (Some(_), Some(_)) => Err("say either `decision` or `status`".to_owned()),
    }
}

/// A name that can stand in the record and in an answer.
fn named(field: &str, text: Option<&str>, most: usize) -> Result<(), String> {
    let Some(text) = text else { return Ok(()) };
    let fits = !text.trim().is_empty() && text.chars().count() <= most && !text.chars().any(char::is_control);
    fits.then_some(())
        .ok_or_else(|| format!("`{field}` must be 1 to {most} characters on one line"))
}

impl From<CallbackError> for Failure {
    fn from(error: CallbackError) -> Self {
        let code = match error {
            CallbackError::Decide(error) => return error.into(),
            CallbackError::Unknown(_) => ErrorCode::NotFound,
            CallbackError::Ambiguous(_) | CallbackError::NotDelegated => ErrorCode::Conflict,
            CallbackError::Another { .. } => ErrorCode::InvalidArguments,
        };
        Refusal::new(code, error.to_string()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(route: Route, query: Option<&str>, body: &str) -> Result<Callback, String> {
        let address = Address {
            approval_request_id: query.map(str::to_owned),
            request_id: None,
        };
        read(route, address, body.as_bytes())
    }

    #[test]
    fn the_bodies_of_platform_and_adapters_are_read() {
        let platform = r#"{"approval_request_id": "q", "decision": "approved", "reason": "r", "actor_id": "ana"}"#;
        let platform = reading(Route::Approver, None, platform).unwrap();
        assert_eq!((platform.word, platform.actor().id.as_str()), (Word::Approved, "ana"));
        let adapter =
            r#"{"correlation_id": "c", "decision": "deny", "tool": "t", "metadata": {"chat": 1}, "request_id": "x"}"#;
        let alone = reading(Route::Approver, None, adapter).unwrap();
        assert_eq!(alone.meant, Meant::Call(CorrelationId::trusted("c")));
        assert_eq!(alone.actor().id, "mcp-callback");
        let addressed = reading(Route::Approver, Some("q"), adapter).unwrap();
        assert_eq!(
            addressed.meant,
            Meant::Question {
                id: ApprovalId::trusted("q"),
                correlation_id: Some(CorrelationId::trusted("c"))
            }
        );
        let done = r#"{"correlation_id": "c", "status": "success", "result": {"a": 1}}"#;
        assert_eq!(reading(Route::Executor, None, done).unwrap().word, Word::Applied);
    }

    #[test]
    fn malformed_callbacks_are_told_what_is_wrong() {
        let long = format!(r#"{{"correlation_id": "{}", "decision": "deny"}}"#, "c".repeat(300));
        for (body, said) in [
            ("", "the body"),
            ("[]", "the body"),
            (r#"{"decision": "approve"}"#, "name the question"),
            (r#"{"correlation_id": "c"}"#, "`decision` is missing"),
            (r#"{"correlation_id": "c", "decision": "pending"}"#, "no answer"),
            (r#"{"correlation_id": "c", "decision": "yes"}"#, "is one of"),
            (
                r#"{"correlation_id": "c", "decision": "deny", "extra": 1}"#,
                "a field that no callback has",
            ),
            (r#"{"approval_request_id": 7, "decision": "deny"}"#, "the body"),
            (r#"{"correlation_id": "", "decision": "deny"}"#, "`correlation_id` must"),
            (long.as_str(), "`correlation_id` must"),
            (
                r#"{"correlation_id": "c", "decision": "deny", "actor_id": "a\nb"}"#,
                "`actor_id` must",
            ),
            (
                r#"{"correlation_id": "c", "decision": "deny", "decision": "approve"}"#,
                "one twice",
            ),
            (r#"{"correlation_id": "c", "status": "success"}"#, "an executor's words"),
        ] {
            let error = reading(Route::Approver, None, body).unwrap_err();
            assert!(error.contains(said), "{body}: {error}");
        }
        let two = r#"{"approval_request_id": "q", "decision": "deny"}"#;
        assert!(reading(Route::Approver, Some("other"), two).is_err());
    }
}
