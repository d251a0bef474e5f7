//! A refusal as an HTTP answer: in the form of our REST routes, or as a JSON-RPC error where the client
//! speaks that. What is refused there is in the record first.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::{IdSource, SessionId};
use countersign_gateway::service::RefusedEnvelope;
use countersign_gateway::session::{Caller, Transport};
use serde_json::{Value, json};

use crate::logged::logged;
use crate::mcp::host::Host;
use crate::mcp::jsonrpc::{Id, Incoming, Message};
use crate::mcp::wire;

pub(crate) fn answer(status: StatusCode, refusal: Refusal, ids: &IdSource) -> Response {
    answer_with(status, refusal, None, ids)
}

/// With the result of the command that was refused, where it was one.
pub(crate) fn answer_with(status: StatusCode, refusal: Refusal, result: Option<Value>, ids: &IdSource) -> Response {
    // Under the name that the record has for it, where it has one.
    let correlation = refusal.correlation_id.map_or_else(|| ids.correlation(), |id| *id);
    tracing::debug!(%correlation, code = refusal.code.name(), reason = logged(&refusal.message), "refused");
    let mut body = json!({"error": {
        "errorCode": refusal.code.name(),
        "message": refusal.message,
        "details": refusal.details,
        "correlation_id": correlation.as_str(),
    }});
    if let Some(result) = result {
        body["result"] = result;
    }
    (status, Json(body)).into_response()
}

/// What is known of a request that goes no further.
pub(super) struct Refused<'a> {
    pub(super) caller: Option<&'a Caller>,
    pub(super) transport: Transport,
    pub(super) session: Option<SessionId>,
    pub(super) incoming: Option<Incoming>,
    /// The id to answer with, where there is no message to take it from.
    pub(super) id: Option<Id>,
}

impl<'a> Refused<'a> {
    pub(super) fn of(caller: &'a Caller) -> Self {
        Self {
            caller: Some(caller),
            transport: caller.transport,
            session: None,
            incoming: None,
            id: None,
        }
    }

    pub(super) fn said(self, incoming: Incoming) -> Self {
        let incoming = Some(incoming);
        Self { incoming, ..self }
    }

    pub(super) fn to(self, id: Option<Id>) -> Self {
        Self { id, ..self }
    }

    /// Records it and makes the answer.
    pub(super) async fn answer(self, host: &Host, status: StatusCode, refusal: Refusal) -> Response {
        host.metrics.refused(refusal.code);
        let correlation = host.ids.correlation();
        let (id, method, params) = match self.incoming {
            Some(Incoming::One(Message::Request(request))) => (Some(request.id), request.method, Some(request.params)),
            Some(Incoming::One(Message::Notification { method, params })) => (None, method, Some(params)),
            Some(Incoming::One(Message::Response(_)) | Incoming::Batch(_)) | None => (self.id, String::new(), None),
        };
        let body = wire::error(id.as_ref(), refusal.code.json_rpc(), &refusal, &correlation);
        tracing::debug!(%correlation, code = refusal.code.name(), reason = logged(&refusal.message), "refused");
        let written = host.service.refused(RefusedEnvelope {
            caller: self.caller.cloned(),
            transport: self.transport,
            session: self.session,
            rpc_id: id.as_ref().map(Id::to_json),
            method,
            params,
            received_at: host.clock.now(),
            code: refusal.code,
            message: refusal.message,
            correlation_id: correlation,
        });
        written.await;
        json_bytes(status, body)
    }
}

/// A JSON-RPC error that is counted rather than recorded one by one.
pub(super) fn unrecorded(host: &Host, status: StatusCode, refusal: &Refusal) -> Response {
    host.metrics.refused(refusal.code);
    let body = wire::error(None, refusal.code.json_rpc(), refusal, &host.ids.correlation());
    json_bytes(status, body)
}

/// A response of JSON that is written already.
pub(super) fn json_bytes(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Tells a client when to come again.
pub(super) fn retry_after(mut response: Response, seconds: u64) -> Response {
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, seconds.max(1).into());
    response
}

/// The status of an answer that is a JSON-RPC error, where no rule of an era says otherwise.
pub(super) fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::ParseError | ErrorCode::InvalidRequest | ErrorCode::SessionNotInitialized => StatusCode::BAD_REQUEST,
        ErrorCode::HeaderMismatch | ErrorCode::MissingClientCapability | ErrorCode::UnsupportedProtocolVersion => {
            StatusCode::BAD_REQUEST
        }
        ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::SessionNotFound | ErrorCode::SessionExpired => StatusCode::NOT_FOUND,
        ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::AuditUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        // To the transport everything else is an answer like any other.
        _ => StatusCode::OK,
    }
}
