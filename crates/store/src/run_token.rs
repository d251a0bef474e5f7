//! Tokens of runs: they say themselves whose they are and until when, signed with a secret of this state
//! directory, or of all nodes that share a database (HS256, in the form of a JSON Web Token).
//!
//! The signature is no substitute for the store: a token counts only while its row is in force and its run has
//! not ended. It keeps whoever can write rows, and nothing else, from making tokens of runs.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::limits;
use countersign_gateway::run::state::Run;
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::{Credential, TokenName};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::rows::tokens;
use crate::sqlite::tokens::Made;

/// What the secret is derived for.
pub(crate) const PURPOSE: &str = "tokens of runs";

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// What a token says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// `run:<id>`.
    pub(crate) sub: String,
    pub(crate) run_id: String,
    pub(crate) correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) project_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) namespace: Option<String>,
    pub(crate) runtime_mode: String,
    /// Seconds since 1970.
    pub(crate) iat: i64,
    pub(crate) exp: i64,
    /// The id of its row.
    pub(crate) jti: String,
}

impl Claims {
    fn of(run: &Run, id: &CredentialId, now: Timestamp, expires: Timestamp) -> Self {
        Self {
            sub: format!("run:{}", run.id),
            run_id: run.id.as_str().to_owned(),
            correlation_id: run.correlation_id.as_str().to_owned(),
            project_id: run.project.clone(),
            namespace: run.namespace.clone(),
            runtime_mode: run.runtime.as_str().to_owned(),
            iat: now.as_millis().div_euclid(1_000),
            exp: expires.as_millis().div_euclid(1_000),
            jti: id.as_str().to_owned(),
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now.as_millis() >= self.exp.saturating_mul(1_000)
    }
}

/// A token for the agent of a run that is under way, made now and living so long.
pub(crate) fn make(
    key: &[u8; 32],
    run: &Run,
    name: &TokenName,
    (now, lives): (Timestamp, Duration),
    ids: &IdSource,
) -> Made {
    let expires = now.after(lives.min(limits::RUN_TOKEN_TIME_MAX));
    let credential = Credential {
        expires_at: Some(expires),
        run: Some(run.id.as_str().to_owned()),
        run_context: Some(Arc::new(run.context())),
        ..tokens::new(Role::Agent, name, now, ids)
    };
    let token = sign(key, &Claims::of(run, &credential.id, now, expires));
    Made { credential, token }
}

fn sign(key: &[u8; 32], claims: &Claims) -> String {
    let body = serde_json::to_string(claims).expect("claims are plain text and numbers");
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(body));
    let signature = mac(key, &signed).finalize().into_bytes();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// What a token says, if it is ours and not over. Any other header than our own is none of ours, so nobody
/// chooses how they are checked.
pub(crate) fn verify(key: &[u8; 32], token: &str, now: Timestamp) -> Option<Claims> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, body) = signed.split_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    mac(key, signed).verify_slice(&signature).ok()?;
    if URL_SAFE_NO_PAD.decode(header).ok()? != HEADER.as_bytes() {
        return None;
    }
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
    (!claims.is_over(now)).then_some(claims)
}

/// Whether a text has the form of such a token; all others are random.
pub(crate) fn is_signed(token: &str) -> bool {
    token.contains('.')
}

fn mac(key: &[u8; 32], text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a MAC takes keys of any length");
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            sub: "run:r1".to_owned(),
            run_id: "r1".to_owned(),
            correlation_id: "c1".to_owned(),
            project_id: None,
            namespace: None,
            runtime_mode: "code-only".to_owned(),
            iat: 100,
            exp: 200,
            jti: "tok_1".to_owned(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_token_is_believed_until_it_is_over_and_with_its_own_key_only() {
        let token = sign(&[7; 32], &claims());
        assert_eq!(verify(&[7; 32], &token, at(199)), Some(claims()));
        assert_eq!(verify(&[7; 32], &token, at(200)), None);
        assert_eq!(verify(&[8; 32], &token, at(199)), None);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let token = sign(&[7; 32], &claims());
        for place in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last character carries bits that say nothing.
            if place + 1 < token.len() {
                assert_eq!(verify(&[7; 32], &changed, at(150)), None, "byte {place}");
            }
        }
    }

    #[test]
    fn nobody_chooses_how_they_are_checked() {
        let body = URL_SAFE_NO_PAD.encode(serde_json::to_string(&claims()).unwrap());
        for header in [r#"{"alg":"none"}"#, r#"{"alg":"HS512","typ":"JWT"}"#] {
            let signed = format!("{}.{body}", URL_SAFE_NO_PAD.encode(header));
            let signature = mac(&[7; 32], &signed).finalize().into_bytes();
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
            assert_eq!(verify(&[7; 32], &token, at(150)), None, "{header}");
            assert_eq!(verify(&[7; 32], &format!("{signed}."), at(150)), None);
        }
    }
}
