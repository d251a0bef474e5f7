//! What a page's form sends, read within limits of size and time. A form that cannot be read is answered with
//! a page that says so.

use axum::Form;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::DeserializeOwned;

use super::page;
use crate::http::body;
use crate::limits::FORM_BYTES_MAX;

/// The fields of a form of at most so many bytes.
pub(super) struct Sent<T, const BYTES_MAX: usize = FORM_BYTES_MAX>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned, const BYTES_MAX: usize> FromRequest<S> for Sent<T, BYTES_MAX> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let read = body::read(&parts.headers, body, BYTES_MAX).await;
        let bytes = read.map_err(|(status, refusal)| page::trouble(status, &refusal.message))?;
        let whole = Request::from_parts(parts, Body::from(bytes));
        let form = Form::from_request(whole, state).await;
        form.map(|Form(fields)| Self(fields))
            .map_err(|_| page::trouble(StatusCode::BAD_REQUEST, "this is not what the form of this page sends"))
    }
}
