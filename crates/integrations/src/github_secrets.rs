//! Secrets of repositories and environments at GitHub, sealed for the key that GitHub names.
//!
//! The client is made when the first secret is put: until then nothing of it is in memory.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_gateway::audit::Pending;
use countersign_gateway::tools::secrets::keeping::{GithubScope, KeeperError, SecretKeeper, SecretValue, SyncTarget};
use crypto_box::PublicKey;
use crypto_box::aead::OsRng;
use http_body_util::{BodyExt as _, Limited};
use octocrab::Octocrab;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::http::ANSWER_BYTES_MAX;
use crate::keeper;

/// Characters of GitHub's own words that an error repeats.
const WORDS_MAX: usize = 200;

/// GitHub, as far as it keeps secrets.
pub struct GithubSecrets {
    inner: Arc<Inner>,
}

struct Inner {
    api_url: String,
    token: String,
    client: OnceCell<Octocrab>,
}

impl GithubSecrets {
    pub fn new(api_url: &str, token: &str) -> Self {
        Self {
            inner: Arc::new(Inner {
                api_url: api_url.trim_end_matches('/').to_owned(),
                token: token.to_owned(),
                client: OnceCell::new(),
            }),
        }
    }
}

impl SecretKeeper for GithubSecrets {
    fn put(&self, target: &SyncTarget, value: SecretValue) -> Pending<Result<(), KeeperError>> {
        let (inner, target) = (self.inner.clone(), target.clone());
        Box::pin(async move { keeper::in_time(inner.put(&target, &value)).await })
    }
}

impl Inner {
    async fn put(&self, target: &SyncTarget, value: &SecretValue) -> Result<(), KeeperError> {
        let client = self.client.get_or_try_init(|| async { self.connect() }).await?;
        let place = place(target);
        let (status, key) = exchange(client._get(format!("{place}/public-key")).await).await?;
        if status != 200 {
            return Err(refused(status, &key, "its key could not be read"));
        }
        let (id, sealed) = seal(&key, value).ok_or_else(|| {
            KeeperError::Refused("the key that GitHub names is none that a value can be sealed for".to_owned())
        })?;
        let body = json!({"encrypted_value": sealed, "key_id": id});
        let written = client
            ._put(format!("{place}/{}", target.github_secret), Some(&body))
            .await;
        let (status, answer) = exchange(written).await?;
        match status {
            201 | 204 => Ok(()),
            _ => Err(refused(status, &answer, "the secret was not taken")),
        }
    }

    fn connect(&self) -> Result<Octocrab, KeeperError> {
        let built = Octocrab::builder()
            .base_uri(self.api_url.as_str())
            .map(|builder| builder.personal_token(self.token.clone()))
            .and_then(|builder| builder.build());
        built.map_err(|_| KeeperError::Refused("`github.api_url` is no address of an API".to_owned()))
    }
}

/// Where the secrets are, below the API's address.
fn place(target: &SyncTarget) -> String {
    let repository = &target.repository;
    match target.scope {
        GithubScope::Environment => {
            let environment = encoded(&target.environment);
            format!("/repos/{repository}/environments/{environment}/secrets")
        }
        GithubScope::Repository => format!("/repos/{repository}/actions/secrets"),
    }
}

/// The value sealed for the key, and the key's id.
fn seal(key: &Value, value: &SecretValue) -> Option<(String, String)> {
    let id = key["key_id"].as_str()?.to_owned();
    let bytes: [u8; 32] = STANDARD.decode(key["key"].as_str()?).ok()?.try_into().ok()?;
    let sealed = PublicKey::from(bytes)
        .seal(&mut OsRng, value.reveal().as_bytes())
        .ok()?;
    Some((id, STANDARD.encode(sealed)))
}

type Answered =
    octocrab::Result<hyper::Response<http_body_util::combinators::BoxBody<hyper::body::Bytes, octocrab::Error>>>;

/// The status and the body; an empty one is null.
async fn exchange(answered: Answered) -> Result<(u16, Value), KeeperError> {
    let response = answered.map_err(|error| keeper::lost(&error))?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| keeper::lost(&*error))?.to_bytes();
    Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

/// What GitHub said. It is passed on: the value left us sealed, so it cannot be repeated.
fn refused(status: u16, answer: &Value, what: &str) -> KeeperError {
    let said: String = match answer["message"].as_str() {
        Some(said) => said.chars().take(WORDS_MAX).collect(),
        None => "no reason was given".to_owned(),
    };
    let text = format!("{what}: {said} (HTTP {status})");
    match status {
        403 | 429 | 500.. => KeeperError::Unreachable(text),
        _ => KeeperError::Refused(text),
    }
}

/// A name as one segment of a path.
fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(encoded("prod"), "prod");
        assert_eq!(encoded("a/b ?#é"), "a%2Fb%20%3F%23%C3%A9");
    }
}
