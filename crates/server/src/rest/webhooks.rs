//! `/api/v1/webhooks/github`: what GitHub delivers.
//!
//! Whoever sends here shows by a signature over the whole body that they know the secret; nothing of the body
//! is looked at before. What is taken is written down before it is answered, and worked off later.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::github::reception::{Incoming, NotReceived, Received, Reception};
use countersign_gateway::ids::IdSource;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::failure::Failure;
use crate::http::body::{self, Unread};

pub(crate) const GITHUB: &str = "/api/v1/webhooks/github";

const SIGNATURE: &str = "x-hub-signature-256";
const DELIVERY: &str = "x-github-delivery";
const EVENT: &str = "x-github-event";
/// Characters of a delivery's id, and of the name of its event.
const ID_CHARS_MAX: usize = 128;
const EVENT_CHARS_MAX: usize = 64;

/// Takes deliveries for whoever works them off.
#[derive(Clone)]
pub struct Webhooks {
    pub secret: WebhookSecret,
    pub reception: Arc<Reception>,
}

/// What GitHub signs deliveries with.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

/// An empty secret would let everybody deliver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the webhook secret is empty")]
pub struct EmptySecret;

impl WebhookSecret {
    pub fn new(secret: &str) -> Result<Self, EmptySecret> {
        if secret.trim().is_empty() {
            return Err(EmptySecret);
        }
        Ok(Self(secret.as_bytes().to_vec()))
    }

    /// Whether a signature is that of this body. It takes the same time wherever they differ.
    fn signed(&self, body: &[u8], signature: &str) -> bool {
        let Some(digest) = signature.strip_prefix("sha256=").and_then(bytes) else {
            return false;
        };
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length of key will do");
        mac.chain_update(body).verify_slice(&digest).is_ok()
    }
}

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret(hidden)")
    }
}

/// 32 bytes from their digits.
fn bytes(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

struct Desk {
    webhooks: Webhooks,
    ids: IdSource,
    body_bytes: usize,
}

/// The route, for a server that has a webhook secret.
pub(crate) fn routes(webhooks: Webhooks, ids: IdSource, body_bytes: usize) -> Router {
    Router::new()
        .route(GITHUB, post(take))
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::new(Desk {
            webhooks,
            ids,
            body_bytes,
        }))
}

async fn wrong_method(State(desk): State<Arc<Desk>>) -> Response {
    let refusal = Refusal::new(ErrorCode::MethodNotFound, "deliveries are posted here");
    Failure::from(refusal).answer(&desk.ids)
}

async fn take(State(desk): State<Arc<Desk>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // Anybody may begin to send here, so nobody is waited for for ever.
    let body = body::read(&parts.headers, body, desk.body_bytes).await;
    match desk.take(&parts.headers, body).await {
        Ok((received, id)) => {
            let status = match received {
                Received::Accepted => StatusCode::ACCEPTED,
                Received::Duplicate | Received::Ignored(_) => StatusCode::OK,
            };
            let mut answer = json!({"status": received.word(), "delivery_id": id});
            if let Received::Ignored(reason) = received {
                answer["reason"] = json!(reason);
            }
            (status, axum::Json(answer)).into_response()
        }
        Err(failure) => failure.answer(&desk.ids),
    }
}

impl Desk {
    async fn take(&self, headers: &HeaderMap, body: Result<Bytes, Unread>) -> Result<(Received, String), Failure> {
        let reception = &self.webhooks.reception;
        let id = one(headers, DELIVERY).filter(|id| is_name(id, ID_CHARS_MAX));
        let refused = |status, code, message: &'static str| async move {
            reception.refused(id, message).await?;
            Err(Failure::of(status, Refusal::new(code, message)))
        };
        let body = match body {
            Ok(body) => body,
            Err((status @ StatusCode::PAYLOAD_TOO_LARGE, _)) => {
                let message = "the delivery is longer than `limits.body_bytes`";
                return refused(status, ErrorCode::LimitExceeded, message).await;
            }
            Err((status, refusal)) => {
                reception.refused(id, &refusal.message).await?;
                return Err(Failure::of(status, refusal));
            }
        };
        let signature = one(headers, SIGNATURE).unwrap_or_default();
        if !self.webhooks.secret.signed(&body, signature) {
            let message = "`X-Hub-Signature-256` is not this body's; sign it with `github.webhook_secret`";
            return refused(StatusCode::UNAUTHORIZED, ErrorCode::Unauthenticated, message).await;
        }
        let event = one(headers, EVENT).filter(|event| is_name(event, EVENT_CHARS_MAX));
        let (Some(id), Some(event)) = (id, event) else {
            let message = "a delivery names itself in `X-GitHub-Delivery` and `X-GitHub-Event`";
            return refused(StatusCode::BAD_REQUEST, ErrorCode::InvalidArguments, message).await;
        };
        let kind = one(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
        let payload = serde_json::from_slice::<Value>(&body);
        let payload = payload
            .ok()
            .filter(|payload| payload.is_object() && kind.starts_with("application/json"));
        let Some(payload) = payload else {
            let message = "a delivery is a JSON object; choose `application/json` in the webhook's settings";
            return refused(StatusCode::BAD_REQUEST, ErrorCode::InvalidArguments, message).await;
        };
        let incoming = Incoming {
            id,
            event,
            payload: &payload,
        };
        match reception.take(incoming).await {
            Ok(received) => Ok((received, id.to_owned())),
            Err(error @ NotReceived::Malformed(_)) => Err(Failure::malformed(error.to_string())),
            Err(NotReceived::Record(error)) => Err(error.into()),
        }
    }
}

/// A header that is there once.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn is_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of GitHub's documentation.
    const SIGNED: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn only_the_signature_of_this_very_body_is_one() {
        let secret = WebhookSecret::new("It's a Secret to Everybody").unwrap();
        assert!(secret.signed(b"Hello, World!", SIGNED));
        assert!(secret.signed(b"Hello, World!", &SIGNED.to_uppercase().replace("SHA256", "sha256")));
        assert!(!secret.signed(b"Hello, World?", SIGNED));
        let other = WebhookSecret::new("another").unwrap();
        assert!(!other.signed(b"Hello, World!", SIGNED));
        for wrong in [
            "",
            "sha256=",
            &SIGNED[..70],
            &SIGNED.replace("sha256", "sha1"),
            &format!("{SIGNED}00"),
            &SIGNED.replace('7', "g"),
            &SIGNED.replace("75", "é"),
        ] {
            assert!(!secret.signed(b"Hello, World!", wrong), "{wrong}");
        }
    }

    #[test]
    fn an_empty_webhook_secret_is_none_and_no_secret_is_printed() {
        assert_eq!(WebhookSecret::new(" ").unwrap_err(), EmptySecret);
        let secret = WebhookSecret::new("s3cret").unwrap();
        assert_eq!(format!("{secret:?}"), "WebhookSecret(hidden)");
    }
}
