//! Tokens: who a bearer is. Only digests are kept, so neither the store nor a copy of it can log in.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{Caller, JobContext, Role, Transport};
use crate::audit::event::{Actor, ActorType};
use crate::clock::Timestamp;
use crate::ids::{CredentialId, JobId};
use crate::policy::actor::RunContext;

/// A token as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    pub id: CredentialId,
    pub role: Role,
    pub name: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// The run whose end ends this token too.
    pub run: Option<String>,
    /// That run as policy sees it, where the token is in force.
    pub run_context: Option<Arc<RunContext>>,
    /// The job whose agent was given this token. It ends with the job, or when the job is taken up anew.
    pub job: Option<Arc<JobContext>>,
}

impl Credential {
    /// The caller who presents this token.
    pub fn caller(&self, transport: Transport) -> Caller {
        let kind = match self.role {
            Role::Agent => ActorType::Agent,
            Role::Operator | Role::Approver | Role::Viewer => ActorType::Human,
        };
        Caller {
            credential: self.id.clone(),
            role: self.role,
            actor: Actor {
                kind,
                id: self.name.clone(),
            },
            transport,
            run: self.run_context.clone(),
            job: self.job.clone(),
        }
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// What a person calls a token. It is who the record says came.
// INVARIANT: 1 to `CHARS_MAX` letters, digits, or `. _ - @`, and nothing that reads as a token's id. Names
// that begin with `job-` are those of jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenName(String);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a token's name has 1 to {max} letters, digits, or any of `. _ - @`, and does not begin with `tok_` or `job-`",
    max = TokenName::CHARS_MAX
)]
pub struct BadTokenName;

impl TokenName {
    pub const CHARS_MAX: usize = 64;
    /// What the name of a job's token begins with; the job's id follows.
    pub const OF_JOBS: &'static str = "job-";

    pub fn parse(text: &str) -> Result<Self, BadTokenName> {
        let is_reserved = text.starts_with("tok_") || text.starts_with(Self::OF_JOBS);
        let fits = (1..=Self::CHARS_MAX).contains(&text.len()) && !is_reserved;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
        if fits && text.bytes().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadTokenName)
        }
    }

    /// The name of the token that a job's agent is given. People cannot choose it.
    pub fn of_job(job: &JobId) -> Self {
        Self(format!("{}{job}", Self::OF_JOBS))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token out of 256 random bits. Its beginning says what it is, so that people and scanners know one
/// when it turns up where it should not.
pub fn token(role: Role, random: &[u8; 32]) -> String {
    let mut token = format!("cs_{}_", role.as_str());
    for byte in random {
        token.push_str(&format!("{byte:02x}"));
    }
    token
}

/// What is kept of a token.
pub fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Port: knows the tokens that are in force. What another process creates or revokes is known here
/// within a second.
pub trait Credentials: Send + Sync + 'static {
    /// The credential behind a bearer token; none when it was never made, or is revoked.
    fn authenticate(&self, token: &str) -> Option<Credential>;

    /// Whether a token that was presented before is still in force.
    fn is_in_force(&self, id: &CredentialId) -> bool;

    /// Whether a token of a job's agent is in force, so that such an agent may be at work.
    fn any_of_job(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::redact::{Config, Redactor};

    #[test]
    fn a_token_says_its_role_and_is_withheld_from_every_text() {
        let redactor = Redactor::new(Config::default());
        for role in Role::ALL {
            let token = token(role, &[0xab; 32]);
            assert_eq!(token, format!("cs_{}_{}", role.as_str(), "ab".repeat(32)));
            let text = format!("curl -H 'X: {token}' and x={token}");
            assert!(!redactor.redact_text(&text).contains("abab"), "{}", role.as_str());
        }
    }

    #[test]
    fn a_name_is_plain_and_never_reads_as_an_id() {
        for good in ["ci", "ada@host", "a.b-c_d", "x".repeat(64).as_str()] {
            assert!(TokenName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a b", "é", "a\n", "tok_1", "job-1", "x".repeat(65).as_str()] {
            assert_eq!(TokenName::parse(bad), Err(BadTokenName), "{bad:?}");
        }
    }

    #[test]
    fn agents_come_as_agents_and_all_others_as_people() {
        for role in Role::ALL {
            let credential = Credential {
                id: CredentialId::trusted("tok_1"),
                role,
                name: "n".to_owned(),
                created_at: Timestamp::from_millis(0),
                revoked_at: None,
                expires_at: None,
                run: None,
                run_context: None,
                job: None,
            };
            let caller = credential.caller(Transport::StreamableHttp);
            assert_eq!(caller.actor.kind == ActorType::Agent, role == Role::Agent);
            assert_eq!((caller.role, caller.credential.as_str()), (role, "tok_1"));
        }
    }
}
