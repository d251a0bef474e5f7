//! A refusal as a REST answer.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::board::{DecideError, NamingError};
use countersign_gateway::audit::RecordError;
use countersign_gateway::error::{ErrorCode, Refusal};

use super::Api;
use crate::http::refusal;

/// Why a request was not answered as asked.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    refusal: Refusal,
}

impl Failure {
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Refusal::new(ErrorCode::InvalidArguments, message).into()
    }

    pub(crate) fn answer(self, api: &Api) -> Response {
        refusal::answer(self.status, self.refusal, &api.ids).into_response()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code {
            ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorCode::Forbidden => StatusCode::FORBIDDEN,
            ErrorCode::NotFound => StatusCode::NOT_FOUND,
            ErrorCode::Conflict => StatusCode::CONFLICT,
            ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            ErrorCode::AuditUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self { status, refusal }
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
            DecideError::OwnRequest | DecideError::AnothersRequest => {
                Refusal::new(ErrorCode::Forbidden, error.to_string()).into()
            }
        }
    }
}
