//! One row of the table, and what happens to a request before its handler sees it: who may, what is
//! named in path and query, the body.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::RawPathParams;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use axum::routing::MethodFilter;
use countersign_gateway::approval::ballot::Decider;
use countersign_gateway::audit::Pending;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::{Caller, Role};

use super::Api;
use super::asked::{Asked, Parameter, Place, Values};
use super::failure::Failure;
use crate::http::body;
use crate::office::Visitor;

pub(super) const BASE: &str = "/api/v1";

/// What a route is.
pub(super) struct Endpoint {
    pub(super) method: Method,
    /// Behind [`BASE`], with `{name}` for what differs.
    pub(super) path: &'static str,
    /// Names the operation in the document.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) parameters: &'static [Parameter],
    /// The schema of its body, by name; none where it takes none.
    pub(super) body: Option<&'static str>,
    /// Beside refusals, which all have the same form.
    pub(super) answers: &'static [(u16, Answer)],
    pub(super) handler: fn(Asked) -> Pending<Result<Response, Failure>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Get,
    Post,
}

/// Who may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Whoever comes in at all.
    Everybody,
    /// People: operators, approvers and viewers.
    Readers,
    /// Operators and approvers.
    Deciders,
    /// Agents and operators.
    Callers,
    Operators,
}

/// What is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// By the name of its schema.
    Json(&'static str),
    /// `{items, next?}` of these.
    ListOf(&'static str),
    /// One JSON object a line.
    Lines,
    /// Server-sent events, each an event of the record.
    Events,
    /// A list of these or, for whoever accepts that, server-sent events.
    ListOrEvents(&'static str),
    Nothing,
}

impl Method {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }

    /// A GET answers HEAD as well.
    pub(super) fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
        }
    }
}

impl Access {
    pub(super) const fn roles(self) -> &'static [Role] {
        match self {
            Self::Everybody => &Role::ALL,
            Self::Readers => &[Role::Operator, Role::Approver, Role::Viewer],
            Self::Deciders => &[Role::Operator, Role::Approver],
            Self::Callers => &[Role::Agent, Role::Operator],
            Self::Operators => &[Role::Operator],
        }
    }

    fn check(self, visitor: &Visitor) -> Result<Caller, Refusal> {
        let caller = visitor.caller()?;
        if self.roles().contains(&caller.role) {
            return Ok(caller.clone());
        }
        match self {
            Self::Everybody | Self::Callers | Self::Operators => {}
            Self::Readers => drop(visitor.reader()?),
            Self::Deciders => drop(Decider::of(caller)?),
        }
        let roles: Vec<_> = self.roles().iter().map(|role| role.as_str()).collect();
        let message = format!(
            "a token of role `{}` may not do this; it takes one of {}",
            caller.role.as_str(),
            roles.join(", ")
        );
        Err(Refusal::new(ErrorCode::Forbidden, message))
    }
}

impl Endpoint {
    pub(super) fn address(&self) -> String {
        format!("{BASE}{}", self.path)
    }

    pub(super) async fn serve(&'static self, api: Arc<Api>, path: &RawPathParams, request: Request<Body>) -> Response {
        let ids = api.ids.clone();
        match self.answer(api, path, request).await {
            Ok(response) => response,
            Err(failure) => failure.answer(&ids),
        }
    }

    async fn answer(&self, api: Arc<Api>, path: &RawPathParams, request: Request<Body>) -> Result<Response, Failure> {
        let (mut parts, body) = request.into_parts();
        let visitor = parts.extensions.remove::<Visitor>();
        let nobody = || Refusal::new(ErrorCode::Unauthenticated, "it is not known who sends this");
        let caller = self.access.check(&visitor.ok_or_else(nobody)?)?;
        let mut values = Values::default();
        for (name, value) in path {
            values.read(self.parameters, Place::Path, name, value, &api.clock)?;
        }
        values.read_query(self.parameters, &parts.uri, &api.clock)?;
        values.read_headers(self.parameters, &parts.headers, &api.clock)?;
        let body = match self.body {
            Some(_) => read(&api, &parts.headers, body).await?,
            None => axum::body::Bytes::new(),
        };
        let asked = Asked {
            api,
            caller,
            values,
            body,
            headers: parts.headers,
            extensions: parts.extensions,
        };
        (self.handler)(asked).await
    }
}

async fn read(api: &Api, headers: &HeaderMap, body: Body) -> Result<axum::body::Bytes, Failure> {
    // A form that a page of another site may send without asking is not JSON.
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map(|kind| kind.to_str().unwrap_or_default());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("application/json")) {
        let message = "the body must be JSON; send it with `Content-Type: application/json`";
        let refusal = Refusal::new(ErrorCode::InvalidRequest, message);
        return Err(Failure::of(StatusCode::UNSUPPORTED_MEDIA_TYPE, refusal));
    }
    let read = body::read(headers, body, api.body_bytes).await;
    read.map_err(|(status, refusal)| Failure::of(status, refusal))
}
