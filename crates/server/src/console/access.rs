//! Who may see a page: people who are logged in. Everybody else is sent to the login, with where they
//! wanted to go.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use countersign_gateway::approval::ballot::Decider;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::{Caller, Role};

use super::page;
use crate::office::Visitor;

/// A person who is logged in.
pub(super) struct Reader(pub(super) Caller);

impl Reader {
    pub(super) fn may_decide(&self) -> bool {
        Decider::of(&self.0).is_ok()
    }

    /// Whether they may change what policy says.
    pub(super) fn may_rule(&self) -> bool {
        match self.0.role {
            Role::Operator => true,
            Role::Approver | Role::Viewer | Role::Agent => false,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Reader {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let refusal = match parts.extensions.get::<Visitor>() {
            Some(visitor) => match visitor.reader() {
                Ok(caller) => return Ok(Self(caller.clone())),
                Err(refusal) => refusal,
            },
            None => Refusal::new(ErrorCode::Unauthenticated, "log in first"),
        };
        if refusal.code == ErrorCode::AuditUnavailable {
            return Err(page::trouble(StatusCode::SERVICE_UNAVAILABLE, &refusal.message));
        }
        if parts.method == Method::GET && !wants_pieces(parts) {
            return Err(Redirect::to(&login_for(&parts.uri)).into_response());
        }
        let status = match refusal.code {
            ErrorCode::Forbidden => StatusCode::FORBIDDEN,
            _ => StatusCode::UNAUTHORIZED,
        };
        Err(page::trouble(status, &refusal.message))
    }
}

/// Scripts ask for parts of pages, and cannot use a login page in their place.
fn wants_pieces(parts: &Parts) -> bool {
    let mode = parts.headers.get("sec-fetch-mode");
    mode.is_some_and(|mode| mode != "navigate")
}

fn login_for(uri: &Uri) -> String {
    let wanted = uri.path_and_query().map_or("/", |wanted| wanted.as_str());
    if wanted == "/" {
        return "/login".to_owned();
    }
    format!("/login?next={}", page::encoded(wanted))
}

/// Where to go after the login: a place of ours, whatever the address said.
pub(super) fn local(next: Option<&str>) -> &str {
    let next = next.unwrap_or("/");
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let is_ours = next.starts_with('/') && !next.starts_with("//") && next.len() <= 2_048 && next.bytes().all(plain);
    match is_ours && !next.starts_with("/login") {
        true => next,
        false => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_of_ours_are_gone_to_after_the_login() {
        for (next, expected) in [
            (Some("/record?status=ok"), "/record?status=ok"),
            (Some("//evil.example"), "/"),
            (Some("/\\evil.example"), "/"),
            (Some("https://evil.example"), "/"),
            (Some("/a\r\nSet-Cookie: x"), "/"),
            (Some("/login?next=/"), "/"),
            (Some(""), "/"),
            (None, "/"),
        ] {
            assert_eq!(local(next), expected, "{next:?}");
        }
    }

    #[test]
    fn the_login_remembers_where_to_go() {
        let uri = "/record?status=ok&text=a%20b".parse().unwrap();
        assert_eq!(login_for(&uri), "/login?next=/record%3Fstatus%3Dok%26text%3Da%2520b");
        assert_eq!(login_for(&"/".parse().unwrap()), "/login");
    }
}
