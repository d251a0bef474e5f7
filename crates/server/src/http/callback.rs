//! Who calls back: holders of one shared token, which is not a credential of this server and opens nothing
//! but the callback routes.

use axum::http::{HeaderMap, HeaderName, header};
use countersign_gateway::error::{ErrorCode, Refusal};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::auth::bearer;
use crate::rest::callbacks;

/// The header that adapters of the platform send it in.
const TOKEN: HeaderName = HeaderName::from_static("x-codex-mcp-token");

/// The token in a form that can only be compared, and always in the same time: what is held against what
/// was sent are two digests under a key that nobody outside knows.
#[derive(Clone)]
pub struct CallbackToken {
    key: [u8; 32],
    digest: [u8; 32],
}

/// An empty token would let everybody in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the callback token is empty")]
pub struct EmptyToken;

impl CallbackToken {
    pub fn new(token: &str) -> Result<Self, EmptyToken> {
        if token.trim().is_empty() {
            return Err(EmptyToken);
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system has randomness");
        let digest = mac(&key, token).finalize().into_bytes().into();
        Ok(Self { key, digest })
    }

    fn is(&self, presented: &str) -> bool {
        mac(&self.key, presented).verify_slice(&self.digest).is_ok()
    }

    /// Whether a request carries the token.
    pub(super) fn admits(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let refused = |message| Err(Refusal::new(ErrorCode::Unauthenticated, message));
        let mut own = headers.get_all(&TOKEN).iter();
        let mut usual = headers.get_all(header::AUTHORIZATION).iter();
        let presented = match (own.next(), own.next(), usual.next(), usual.next()) {
            (Some(token), None, _, _) => token.to_str().ok(),
            (None, None, Some(value), None) => value.to_str().ok().and_then(bearer),
            (None, None, None, _) => {
                return refused("a callback needs the callback token, in `X-Codex-MCP-Token` or as a bearer");
            }
            (_, Some(_), _, _) | (None, None, Some(_), Some(_)) => None,
        };
        match presented {
            Some(token) if self.is(token) => Ok(()),
            Some(_) | None => refused("this is not the callback token"),
        }
    }
}

impl std::fmt::Debug for CallbackToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallbackToken(hidden)")
    }
}

fn mac(key: &[u8; 32], token: &str) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("any length of key will do");
    mac.chain_update(token)
}

/// Whether this address is one that programs call back at.
pub(super) fn is_for(path: &str) -> bool {
    path == callbacks::APPROVER || path == callbacks::EXECUTOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn an_empty_callback_token_is_none() {
        assert_eq!(CallbackToken::new("").unwrap_err(), EmptyToken);
        assert_eq!(CallbackToken::new(" \n").unwrap_err(), EmptyToken);
    }

    #[test]
    fn a_callback_token_is_compared_whole_by_digests_and_never_printed() {
        let token = CallbackToken::new("s3cret").unwrap();
        for (presented, is) in [
            ("s3cret", true),
            ("", false),
            ("s3cre", false),
            ("s3cret ", false),
            ("s3crets", false),
            ("S3CRET", false),
        ] {
            assert_eq!(token.is(presented), is, "{presented}");
        }
        let again = CallbackToken::new("s3cret").unwrap();
        assert_ne!(token.digest, again.digest, "nobody outside can tell what is compared");
        assert_eq!(format!("{token:?}"), "CallbackToken(hidden)");
    }

    #[test]
    fn the_token_comes_in_one_of_two_headers_and_once() {
        let token = CallbackToken::new("t").unwrap();
        for (headers, admitted) in [
            (&[("x-codex-mcp-token", "t")][..], true),
            (&[("authorization", "Bearer t")][..], true),
            (
                &[("x-codex-mcp-token", "t"), ("authorization", "Bearer other")][..],
                true,
            ),
            (
                &[("x-codex-mcp-token", "other"), ("authorization", "Bearer t")][..],
                false,
            ),
            (&[("x-codex-mcp-token", "t"), ("x-codex-mcp-token", "t")][..], false),
            (
                &[("authorization", "Bearer t"), ("authorization", "Bearer t")][..],
                false,
            ),
            (&[("authorization", "Basic t")][..], false),
            (&[("x-codex-mcp-token", "")][..], false),
            (&[][..], false),
        ] {
            assert_eq!(token.admits(&sent(headers)).is_ok(), admitted, "{headers:?}");
        }
    }
}
