//! How a browser comes in, and goes: by a code that works once, or by a token.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use countersign_gateway::audit::RecordError;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::login::Entered;
use countersign_gateway::session::{Caller, Role, Transport};
use serde::Deserialize;

use super::access::{Reader, local};
use super::sent::Sent;
use super::{Console, page};
use crate::limits::{LOGIN_BYTES_MAX, LOGIN_PAUSE, TOKEN_CHARS_MAX};
use crate::office::{self, Visitor};

#[derive(Template)]
#[template(path = "login.html")]
struct Login<'a> {
    next: &'a str,
    /// Why the last try failed.
    problem: Option<&'a str>,
    /// Whoever is logged in already.
    name: Option<&'a str>,
    version: &'static str,
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    next: Option<String>,
}

pub(super) async fn page(visitor: Option<Extension<Visitor>>, Query(wanted): Query<Wanted>) -> Response {
    let caller = visitor.as_ref().and_then(|visitor| visitor.reader().ok());
    shown(StatusCode::OK, local(wanted.next.as_deref()), None, caller)
}

#[derive(Deserialize)]
pub(super) struct Key {
    token: String,
    next: Option<String>,
}

pub(super) async fn enter(
    State(console): State<Arc<Console>>,
    method: Method,
    headers: HeaderMap,
    Sent(key): Sent<Key, LOGIN_BYTES_MAX>,
) -> Response {
    let next = local(key.next.as_deref());
    let entered = match office::forged(&method, &headers) {
        true => Err(Refusal::new(
            ErrorCode::Forbidden,
            "log in on the page of this very server",
        )),
        false => admit(&console, key.token.trim()).await,
    };
    match entered {
        Ok(entered) => {
            let mut response = Redirect::to(next).into_response();
            let cookie = cookie(&entered.secret, console.is_secure, "");
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Err(refusal) => {
            // Guessing takes for ever already; this keeps it from being cheap as well.
            tokio::time::sleep(LOGIN_PAUSE).await;
            let status = match refusal.code {
                ErrorCode::Forbidden => StatusCode::FORBIDDEN,
                ErrorCode::AuditUnavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::UNAUTHORIZED,
            };
            let mut response = shown(status, next, Some(&refusal.message), None);
            // For the record of what was refused at the door.
            response.extensions_mut().insert(refusal);
            response
        }
    }
}

async fn admit(console: &Console, key: &str) -> Result<Entered, Refusal> {
    let refused = |message| Err(Refusal::new(ErrorCode::Unauthenticated, message));
    let away = |error: RecordError| Refusal::new(ErrorCode::AuditUnavailable, error.to_string());
    if key.is_empty() || key.len() > TOKEN_CHARS_MAX {
        return refused("paste a token, or open the address that `countersign tokens login` prints");
    }
    if key.starts_with("cs_login_") {
        return match console.office.logins.redeem(key).await.map_err(away)? {
            Some(entered) => Ok(entered),
            None => refused(
                "this login code was used before, or is too old: each works once, for a few minutes. \
                 `countersign tokens login` prints a new one",
            ),
        };
    }
    let Some(credential) = console.credentials.authenticate(key) else {
        return refused("this token is not in force; it was revoked, or is not one of ours");
    };
    match credential.caller(Transport::Console).role {
        Role::Operator | Role::Approver | Role::Viewer => {}
        Role::Agent => {
            let message = "this is an agent's token, and the console is for people: \
                 use a token of role operator, approver or viewer";
            return Err(Refusal::new(ErrorCode::Forbidden, message));
        }
    }
    console.office.logins.enter(&credential).await.map_err(away)
}

pub(super) async fn leave(State(console): State<Arc<Console>>, _: Reader, headers: HeaderMap) -> Response {
    for secret in office::cookies(&headers) {
        if let Err(error) = console.office.logins.leave(secret).await {
            return page::trouble(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
        }
    }
    let mut response = Redirect::to("/login").into_response();
    let cookie = cookie("", console.is_secure, "; Max-Age=0");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

fn cookie(secret: &str, is_secure: bool, more: &str) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!(
        "{}={secret}; HttpOnly; SameSite=Strict; Path=/{secure}{more}",
        office::COOKIE
    );
    HeaderValue::try_from(text).expect("secrets are letters, digits and underscores")
}

fn shown(status: StatusCode, next: &str, problem: Option<&str>, caller: Option<&Caller>) -> Response {
    let name = caller.map(|caller| caller.actor.id.as_str());
    let version = env!("CARGO_PKG_VERSION");
    page::html(
        status,
        &Login {
            next,
            problem,
            name,
            version,
        },
    )
}
