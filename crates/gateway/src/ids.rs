//! The registry of identifiers. Each kind is its own type, so a request id never stands where an
//! event id is meant. [`IdSource`] is the only place where fresh ones are made; tests hand in a
//! counting one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

use crate::approval::unseen::is_unseen;
use crate::audit::redact::named;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Takes text that an edge has already checked, or that we stored ourselves.
            pub fn trusted(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    )*};
}

ids! {
    /// Names one command request; the caller may choose it, else it is a ULID.
    RequestId;
    /// Ties everything that belongs to one call together, from the agent to the record.
    CorrelationId;
    /// One row of the record (UUIDv7). The closing event's id is also the `audit_id` of a command.
    EventId;
    /// The credential a caller presented; anonymous callers on this machine share one.
    CredentialId;
    /// One client's session; whoever knows it and holds its credential may use it, so it cannot be guessed.
    SessionId;
    /// One question to a person. Random throughout, so that a few characters tell it from the others.
    ApprovalId;
    /// One job of an agent (UUID).
    JobId;
    /// One session of jobs with the same conversation; its agent's own id of it comes later.
    JobSessionId;
    /// An agent's own id of a conversation.
    ConversationId;
    /// A message or an interrupt on its way to a job.
    NoteId;
    /// One run (UUID).
    RunId;
    /// One act that a service outside performs (UUID).
    DelegationId;
}

impl SessionId {
    /// What the record calls this session. The record is shown, exported and sent to witnesses; whoever
    /// reads it must not learn an id that opens a session.
    pub fn mark(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digest = Sha256::digest(self.0.as_bytes());
        let mut mark = String::with_capacity(39);
        mark.push_str("sha256:");
        for byte in &digest[..16] {
            mark.push(char::from(DIGITS[usize::from(byte >> 4)]));
            mark.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        mark
    }
}

/// Why a caller's `request_id` was not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadRequestId {
    #[error("`request_id` must be 1 to {max} printable characters without spaces", max = RequestId::LENGTH_MAX)]
    Form,
    /// An id is how a command is found again, so it is recorded as it is.
    #[error("`request_id` looks like it holds a secret, and would be recorded; choose another")]
    Secret,
}

impl RequestId {
    pub const LENGTH_MAX: usize = 128;

    /// The one id of a session's request, by the client's id of it and its content. Those of a session stand together
    /// in an index.
    pub fn of(session: &SessionId, rpc_id: &str, content: &[u8; 32], attempt: u8) -> Self {
        let near = Sha256::digest(session.0.as_bytes());
        let own = Sha256::new()
            .chain_update(session.0.as_bytes())
            .chain_update([0])
            .chain_update(rpc_id.as_bytes())
            .chain_update([0])
            .chain_update(content)
            .chain_update([attempt])
            .finalize();
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&near[..6]);
        bytes[6..].copy_from_slice(&own[..10]);
        Self(ulid::Ulid::from_bytes(bytes).to_string())
    }

    /// Checks an id that came from a caller.
    pub fn parse(text: &str) -> Result<Self, BadRequestId> {
        let fits = !text.is_empty() && text.len() <= Self::LENGTH_MAX;
        if !fits || text.chars().any(|c| c.is_whitespace() || is_unseen(c)) {
            return Err(BadRequestId::Form);
        }
        match named::is_given_by(text) {
            true => Err(BadRequestId::Secret),
            false => Ok(Self(text.to_owned())),
        }
    }
}

/// Where fresh identifiers come from.
#[derive(Clone, Debug)]
pub struct IdSource(Source);

#[derive(Clone, Debug)]
enum Source {
    Random,
    Counting(Arc<AtomicU64>),
}

impl CredentialId {
    /// Whether it is a token's, which can be revoked.
    pub fn is_token(&self) -> bool {
        self.as_str().starts_with("tok_")
    }

    /// Whether it is a person's of this machine, by their name.
    pub fn is_user(&self) -> bool {
        self.as_str().starts_with("user:")
    }
}

impl IdSource {
    pub fn random() -> Self {
        Self(Source::Random)
    }

    /// Ids that count upwards, for tests that compare whole values.
    pub fn counting() -> Self {
        Self(Source::Counting(Arc::default()))
    }

    pub fn request(&self) -> RequestId {
        RequestId(match &self.0 {
            Source::Random => ulid::Ulid::generate().to_string(),
            Source::Counting(next) => format!("{:026}", next.fetch_add(1, Ordering::Relaxed)),
        })
    }

    pub fn event(&self) -> EventId {
        EventId(self.uuid())
    }

    pub fn correlation(&self) -> CorrelationId {
        CorrelationId(self.uuid())
    }

    /// Something that nobody guesses, for what must not be found by trying out its digest.
    pub fn salt(&self) -> String {
        match &self.0 {
            Source::Random => uuid::Uuid::new_v4().simple().to_string(),
            Source::Counting(_) => "0".repeat(32),
        }
    }

    /// The id of a token; not the token.
    pub fn credential(&self) -> CredentialId {
        CredentialId(format!("tok_{}", self.request()))
    }

    pub fn approval(&self) -> ApprovalId {
        ApprovalId(match &self.0 {
            Source::Random => uuid::Uuid::new_v4().to_string(),
            Source::Counting(next) => {
                format!("00000000-0000-4000-8000-{:012}", next.fetch_add(1, Ordering::Relaxed))
            }
        })
    }

    pub fn job(&self) -> JobId {
        JobId(self.uuid())
    }

    pub fn job_session(&self) -> JobSessionId {
        JobSessionId(self.uuid())
    }

    pub fn run(&self) -> RunId {
        RunId(self.uuid())
    }

    pub fn delegation(&self) -> DelegationId {
        DelegationId(self.uuid())
    }

    pub fn note(&self) -> NoteId {
        NoteId(self.uuid())
    }

    pub fn session(&self) -> SessionId {
        SessionId(match &self.0 {
            // Version 4 is random throughout; a version that tells the time would help a guesser.
            Source::Random => uuid::Uuid::new_v4().simple().to_string(),
            Source::Counting(next) => format!("session-{}", next.fetch_add(1, Ordering::Relaxed)),
        })
    }

    fn uuid(&self) -> String {
        match &self.0 {
            // Version 7 sorts by time, which keeps the record's indexes append-mostly.
            Source::Random => uuid::Uuid::now_v7().to_string(),
            Source::Counting(next) => {
                format!("00000000-0000-7000-8000-{:012}", next.fetch_add(1, Ordering::Relaxed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_recorded_under_a_mark_that_does_not_open_it() {
        let session = IdSource::random().session();
        let mark = session.mark();
        assert_eq!(mark, session.mark());
        assert_eq!(mark.len(), "sha256:".len() + 32);
        assert!(!mark.contains(session.as_str()) && !session.as_str().contains(&mark[7..15]));
    }

    #[test]
    fn a_request_of_a_session_has_one_id_and_any_other_has_another() {
        let (session, other) = (SessionId::trusted("s1"), SessionId::trusted("s2"));
        let id = RequestId::of(&session, "1", &[0; 32], 0);
        assert_eq!(id, RequestId::of(&session, "1", &[0; 32], 0));
        assert_eq!(RequestId::parse(id.as_str()), Ok(id.clone()));
        let others = [
            RequestId::of(&other, "1", &[0; 32], 0),
            RequestId::of(&session, "2", &[0; 32], 0),
            RequestId::of(&session, "\"1\"", &[0; 32], 0),
            RequestId::of(&session, "1", &[1; 32], 0),
            RequestId::of(&session, "1", &[0; 32], 1),
        ];
        assert!(others.iter().all(|other| *other != id));
    }

    #[test]
    fn a_request_id_from_a_caller_is_checked() {
        for good in ["a", "01JD", "x".repeat(128).as_str(), "é"] {
            assert!(RequestId::parse(good).is_ok(), "{good}");
        }
        let unseen = ["a\u{202e}b", "\u{feff}a", "a\u{200b}", "a\u{2066}b", "a\u{a0}b"];
        for bad in ["", " ", "a b", "a\nb", "a\0", "x".repeat(129).as_str()]
            .into_iter()
            .chain(unseen)
        {
            assert_eq!(RequestId::parse(bad), Err(BadRequestId::Form), "{bad:?}");
        }
    }

    #[test]
    fn a_request_id_holds_no_secret() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        for bad in ["token=hunter2", "job-1;api_key=hunter2", token.as_str()] {
            assert_eq!(RequestId::parse(bad), Err(BadRequestId::Secret), "{bad:?}");
        }
        for good in [
            "auth:login:3",
            "token-refresh-1",
            "rotate/secret#2",
            "attempt=2",
            "max_tokens=5",
        ] {
            assert!(RequestId::parse(good).is_ok(), "{good}");
        }
    }
}
