//! Calls to GitHub's API: within a time, no faster than GitHub allows, again where that is safe, and with
//! errors that say what to do and never hold the token.
//!
//! The connection is made when the first call is: whoever never calls pays nothing.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use countersign_gateway::clock::Clock;
use countersign_gateway::github::{GitHubError, Trouble};
use http_body_util::{BodyExt as _, Limited};
use hyper::header::HeaderMap;
use octocrab::Octocrab;
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use crate::http::{BadHeader, BadUrl, Endpoint, Header};

/// GitHub's own address.
pub const API_DEFAULT: &str = "https://api.github.com";
/// How long one call may take with all its tries, and one try of it.
const CALL_PATIENCE: Duration = Duration::from_secs(15);
const TRY_PATIENCE: Duration = Duration::from_secs(10);
const TRIES_MAX: u32 = 4;
/// Time before the second try; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// How long GitHub asks to wait where it does not say for how long, and the longest that is believed: its limits are given
/// anew every hour.
const LIMIT_PAUSE: Duration = Duration::from_secs(60);
const LIMIT_PAUSE_MAX: Duration = Duration::from_secs(3_600);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Characters of GitHub's own words that an error repeats.
const WORDS_MAX: usize = 200;

/// Where GitHub is, and what lets us in.
#[derive(Clone)]
pub struct Access {
    api_url: String,
    token: String,
}

/// Why GitHub cannot be called with these settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadAccess {
    #[error("`github.api_url` {0}")]
    Url(#[from] BadUrl),
    #[error("`github.token` holds characters that no header may hold")]
    Token,
}

impl Access {
    pub fn new(api_url: Option<&str>, token: String) -> Result<Self, BadAccess> {
        let api_url = api_url.unwrap_or(API_DEFAULT).trim_end_matches('/').to_owned();
        Endpoint::parse(&api_url)?;
        match Header::new("Authorization", &format!("Bearer {token}")) {
            Ok(_) => Ok(Self { api_url, token }),
            Err(BadHeader::Name(_) | BadHeader::Ours(_) | BadHeader::Value(_)) => Err(BadAccess::Token),
        }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Access({}, token hidden)", self.api_url)
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: &'a str,
    pub(crate) body: Option<&'a Value>,
    pub(crate) repeat: Repeat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// Whether doing it twice is the same as doing it once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

/// What came back of a call that went well.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    /// Null where there is no body.
    pub(crate) body: Value,
}

/// A try that did not go well.
enum Failed {
    /// The same may work after this time.
    Wait(Duration),
    /// It may have been done all the same.
    Broken(String),
    Final(GitHubError),
}

pub(crate) struct Client {
    access: Access,
    clock: Clock,
    octocrab: OnceCell<Octocrab>,
    /// Until when GitHub wants to hear nothing.
    quiet_until: Mutex<Option<Instant>>,
}

impl Client {
    pub(crate) fn new(access: Access, clock: Clock) -> Self {
        Self {
            access,
            clock,
            octocrab: OnceCell::new(),
            quiet_until: Mutex::new(None),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, GitHubError> {
        let call = Call {
            method: Method::Get,
            path,
            body: None,
            repeat: Repeat::Safe,
        };
        self.call(&call).await
    }

    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Answer, GitHubError> {
        let deadline = Instant::now() + CALL_PATIENCE;
        let mut pause = PAUSE_FIRST;
        for tried in 1.. {
            self.keep_quiet(deadline).await?;
            let patience = TRY_PATIENCE.min(deadline.saturating_duration_since(Instant::now()));
            let attempt = tokio::time::timeout(patience, self.send(call)).await;
            let failed = attempt.unwrap_or_else(|_| Err(Failed::Broken("it did not answer in time".to_owned())));
            match failed {
                Ok(answer) => return Ok(answer),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Wait(time)) => {
                    // Where it names a time that has passed already, it is not asked again and again.
                    let time = time.clamp(pause, LIMIT_PAUSE_MAX);
                    let until = Instant::now() + time + jitter(PAUSE_FIRST);
                    *self.quiet_until.lock().await = Some(until);
                    if tried >= TRIES_MAX {
                        return Err(limited_until(until));
                    }
                    pause *= 2;
                }
                Err(Failed::Broken(why)) => {
                    let enough = tried >= TRIES_MAX || Instant::now() + pause >= deadline;
                    if call.repeat == Repeat::Never || enough {
                        let message = format!("GitHub cannot be reached: {why}; try again later");
                        return Err(trouble(Trouble::Unavailable, message));
                    }
                    tokio::time::sleep(pause + jitter(pause)).await;
                    pause *= 2;
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Waits until GitHub wants to hear from us again; refused where that is too far off.
    async fn keep_quiet(&self, deadline: Instant) -> Result<(), GitHubError> {
        let until = *self.quiet_until.lock().await;
        let Some(until) = until.filter(|until| *until > Instant::now()) else {
            return Ok(());
        };
        if until < deadline {
            tokio::time::sleep_until(until).await;
            return Ok(());
        }
        Err(limited_until(until))
    }

    async fn send(&self, call: &Call<'_>) -> Result<Answer, Failed> {
        let octocrab = self
            .octocrab
            .get_or_try_init(|| self.connect())
            .await
            .map_err(Failed::Final)?;
        let sent = match call.method {
            Method::Get => octocrab._get(call.path).await,
            Method::Post => octocrab._post(call.path, call.body).await,
            Method::Put => octocrab._put(call.path, call.body).await,
            Method::Patch => octocrab._patch(call.path, call.body).await,
            Method::Delete => octocrab._delete(call.path, call.body).await,
        };
        let response = sent.map_err(|error| Failed::Broken(self.told(&chain(&error))))?;
        let (head, body) = response.into_parts();
        let collected = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let bytes = collected
            .map_err(|error| Failed::Broken(self.told(&error.to_string())))?
            .to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if head.status.is_success() {
            return Ok(Answer {
                headers: head.headers,
                body,
            });
        }
        Err(self.failed(head.status.as_u16(), &head.headers, &body, call))
    }

    fn failed(&self, status: u16, headers: &HeaderMap, body: &Value, call: &Call<'_>) -> Failed {
        let words = self.told(body["message"].as_str().unwrap_or_default());
        let place = call.path.split('?').next().unwrap_or_default();
        if matches!(status, 403 | 429)
            && let Some(time) = self.limited(status, headers, &words)
        {
            return Failed::Wait(time);
        }
        let (kind, message) = match status {
            401 => (
                Trouble::Refused,
                "GitHub does not accept the control token; set `github.token` to one that is valid".to_owned(),
            ),
            403 => (
                Trouble::Refused,
                format!("the control token may not do this at `{place}` ({words}); give it the right to"),
            ),
            404 | 410 => (
                Trouble::NotFound,
                format!("GitHub knows nothing at `{place}`, or the control token may not see it"),
            ),
            301 | 302 | 307 | 308 => (
                Trouble::Invalid,
                format!("`{place}` has moved; name the repository as GitHub calls it now"),
            ),
            500..=599 => return Failed::Broken(format!("it answers with status {status}")),
            _ => (
                Trouble::Invalid,
                format!("GitHub does not take this at `{place}` (status {status}): {words}"),
            ),
        };
        Failed::Final(trouble(kind, message))
    }

    /// How long to wait, where a refusal is one of pace.
    fn limited(&self, status: u16, headers: &HeaderMap, words: &str) -> Option<Duration> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        if let Some(seconds) = number("retry-after") {
            return Some(Duration::from_secs(seconds));
        }
        if number("x-ratelimit-remaining") == Some(0) {
            let now = u64::try_from(self.clock.now().as_millis() / 1_000).unwrap_or(0);
            let reset = number("x-ratelimit-reset").unwrap_or(now + LIMIT_PAUSE.as_secs());
            return Some(Duration::from_secs(reset.saturating_sub(now)));
        }
        (status == 429 || words.to_lowercase().contains("rate limit")).then_some(LIMIT_PAUSE)
    }

    async fn connect(&self) -> Result<Octocrab, GitHubError> {
        let wrong = |error: &dyn std::fmt::Display| {
            let message = format!("GitHub cannot be called: {}", self.hidden(&error.to_string()));
            trouble(Trouble::Unavailable, message)
        };
        let builder = Octocrab::builder()
            .base_uri(self.access.api_url.as_str())
            .map_err(|error| wrong(&error))?;
        let builder = builder
            .personal_token(self.access.token.clone())
            .set_connect_timeout(Some(TRY_PATIENCE))
            .set_read_timeout(Some(TRY_PATIENCE));
        builder.build().map_err(|error| wrong(&error))
    }

    /// Text without the token, whoever put it there.
    fn hidden(&self, text: &str) -> String {
        text.replace(&self.access.token, "(hidden)")
    }

    /// As much of a text as is told. Cut behind hiding: half a token is not found any more.
    fn told(&self, text: &str) -> String {
        let text = self.hidden(text);
        let line = text.lines().next().unwrap_or_default();
        line.chars().take(WORDS_MAX).collect()
    }
}

fn limited_until(until: Instant) -> GitHubError {
    let seconds = until.saturating_duration_since(Instant::now()).as_secs() + 1;
    let message = format!("GitHub takes no more requests with this token for {seconds} s; try again then");
    trouble(Trouble::Limited, message)
}

fn trouble(kind: Trouble, message: String) -> GitHubError {
    GitHubError { kind, message }
}

/// An error with its causes, the innermost last.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Something between nothing and this, so that not everybody comes back at the same moment.
fn jitter(most: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random % nanos)
}
