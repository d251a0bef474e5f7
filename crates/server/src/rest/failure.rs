//! A refusal as a REST answer.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use countersign_gateway::approval::board::{DecideError, NamingError};
use countersign_gateway::audit::RecordError;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::ids::IdSource;
use serde_json::Value;

use crate::http::refusal;

/// Why a request was not answered as asked.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    refusal: Box<Refusal>,
    /// What a command came to that was refused.
    result: Option<Box<Value>>,
}

impl Failure {
    pub(crate) fn of(status: StatusCode, refusal: Refusal) -> Self {
        Self {
            status,
            refusal: Box::new(refusal),
            result: None,
        }
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Refusal::new(ErrorCode::InvalidArguments, message).into()
    }

    pub(super) fn with_result(self, result: Value) -> Self {
        let result = Some(Box::new(result));
        Self { result, ..self }
    }

    pub(crate) fn answer(self, ids: &IdSource) -> Response {
        let told = Refusal::clone(&self.refusal);
        let mut response = refusal::answer_with(self.status, *self.refusal, self.result.map(|result| *result), ids);
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"countersign\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if matches!(
            self.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // For the front door, which records what somebody tried that may not.
        if told.code == ErrorCode::Forbidden {
            response.extensions_mut().insert(told);
        }
        response
    }
}

/// The status that a code of the table answers with.
pub(super) fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::ParseError
        | ErrorCode::InvalidRequest
        | ErrorCode::InvalidParams
        | ErrorCode::InvalidArguments
        | ErrorCode::LimitExceeded
        | ErrorCode::CwdNotFound
        | ErrorCode::SessionNotInitialized
        | ErrorCode::HeaderMismatch
        | ErrorCode::MissingClientCapability
        | ErrorCode::UnsupportedProtocolVersion => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden
        | ErrorCode::CommandNotAllowed
        | ErrorCode::WorkspaceIsolationViolation
        | ErrorCode::CwdNotAllowed
        | ErrorCode::PolicyDenied
        | ErrorCode::ApprovalDenied
        | ErrorCode::ApprovalExpired => StatusCode::FORBIDDEN,
        ErrorCode::NotFound
        | ErrorCode::UnknownTool
        | ErrorCode::ResourceNotFound
        | ErrorCode::SessionNotFound
        | ErrorCode::SessionExpired => StatusCode::NOT_FOUND,
        ErrorCode::MethodNotFound => StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::Conflict | ErrorCode::DuplicateRequest => StatusCode::CONFLICT,
        ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::QueueFull | ErrorCode::AuditUnavailable | ErrorCode::SandboxUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorCode::UpstreamError => StatusCode::BAD_GATEWAY,
        ErrorCode::InternalError | ErrorCode::ConfigurationError => StatusCode::INTERNAL_SERVER_ERROR,
        // What ran and did not end well is an answer, as is what has not ended.
        ErrorCode::CommandTimeout
        | ErrorCode::CommandExitNonZero
        | ErrorCode::CommandExecutionFailed
        | ErrorCode::MemoryLimitExceeded
        | ErrorCode::ProcessLimitExceeded
        | ErrorCode::CpuLimitExceeded
        | ErrorCode::Cancelled
        | ErrorCode::Abandoned => StatusCode::OK,
        ErrorCode::ApprovalPending => StatusCode::ACCEPTED,
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::of(status(refusal.code), refusal)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Refusal::new(ErrorCode::AuditUnavailable, error.to_string()).into()
    }
}

impl From<NamingError> for Failure {
    fn from(error: NamingError) -> Self {
        match error {
            NamingError::Record(error) => error.into(),
            NamingError::Unknown(_) => Refusal::new(ErrorCode::NotFound, error.to_string()).into(),
            NamingError::Ambiguous { .. } => Self::malformed(error.to_string()),
        }
    }
}

impl From<DecideError> for Failure {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Record(error) => error.into(),
            DecideError::Unknown(_) => Refusal::new(ErrorCode::NotFound, error.to_string()).into(),
            DecideError::Answer(_) => Self::malformed(error.to_string()),
            DecideError::OwnRequest | DecideError::AnothersRequest | DecideError::OwnersOnly => {
                Refusal::new(ErrorCode::Forbidden, error.to_string()).into()
            }
        }
    }
}
