//! Acts that a service outside performs.
//!
//! A [`Delegation`] is written together with the opening of its act, before anything is sent, so whoever
//! calls back finds it, whichever process listens then. It ends once: by the service's answer, by a callback,
//! or by its deadline. The first end stands. Its result waits for the call that asked, or for the same call
//! made again. What the service was given and may not tell is [searched for](hearing) in all that it says.

mod answer;
pub mod desk;
mod hearing;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::audit::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::ids::{CorrelationId, CredentialId, DelegationId};

pub use answer::{Said, read as read_answer};

/// One act that was given to a service.
#[derive(Clone, PartialEq, Debug)]
pub struct Delegation {
    pub id: DelegationId,
    pub version: u64,
    pub correlation_id: CorrelationId,
    /// The credential that asked.
    pub owner: CredentialId,
    /// What it is found by when the same call is made again.
    pub binding: String,
    pub tool: String,
    pub created_at: Timestamp,
    /// Past this it has failed.
    pub deadline: Timestamp,
    pub end: Option<Finished>,
    /// Whether somebody who asked has heard the end.
    pub told: bool,
    pub confided: Confided,
}

/// What a service was given that nobody else may see, for as long as it may still say something that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Confided {
    Nothing,
    /// Under the record's own key, so that any process which hears of the act can look for it.
    Sealed(Vec<u8>),
    /// The act has ended, and what it was given is kept no longer.
    Erased,
}

/// How a delegation ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Finished {
    pub outcome: Outcome,
    pub at: Timestamp,
}

/// What came of it, in words and values that are free of secrets.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    Applied(Value),
    Failed(String),
    /// Nobody answered in time.
    TimedOut,
}

impl Outcome {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Failed(_) => "failed",
            Self::TimedOut => "timeout",
        }
    }
}

/// A step that a delegation which has ended does not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this act has ended already")]
pub struct HasEnded;

impl Delegation {
    /// The first end stands.
    pub fn finished(mut self, outcome: Outcome, at: Timestamp) -> Result<Self, HasEnded> {
        match self.end {
            Some(_) => Err(HasEnded),
            None => {
                self.end = Some(Finished { outcome, at });
                self.version += 1;
                if let Confided::Sealed(_) = self.confided {
                    self.confided = Confided::Erased;
                }
                Ok(self)
            }
        }
    }

    /// Somebody who asked has heard the end.
    #[must_use]
    pub fn heard(mut self) -> Self {
        self.told = true;
        self.version += 1;
        self
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        self.end.is_none() && now >= self.deadline
    }

    /// How callbacks and answers name where it stands.
    pub fn state(&self) -> &'static str {
        match &self.end {
            None => "pending",
            Some(Finished {
                outcome: Outcome::Applied(_),
                ..
            }) => "applied",
            Some(_) => "failed",
        }
    }
}

/// A delegation after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct DelegationChange {
    pub delegation: Delegation,
    /// The version that it was made from; none for a new one.
    pub from: Option<u64>,
}

/// Port: delegations as a store keeps them. They change through the record only, with their events.
pub trait Delegations: Send + Sync + 'static {
    fn find_delegation(&self, id: &DelegationId) -> Pending<Result<Option<Delegation>, RecordError>>;

    /// Those of one call, oldest first.
    fn delegations_of(&self, id: &CorrelationId) -> Pending<Result<Vec<Delegation>, RecordError>>;

    /// The newest under a binding whose end nobody has heard yet.
    fn untold(&self, owner: &CredentialId, binding: &str) -> Pending<Result<Option<Delegation>, RecordError>>;

    /// Those that have not ended and whose time is over.
    fn overdue(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Delegation>, RecordError>>;
}

/// What is sent to a service.
#[derive(Clone, PartialEq)]
pub struct Order {
    pub method: &'static str,
    pub url: String,
    /// Values may be secret.
    pub headers: Vec<(String, String)>,
    /// None where the method carries none.
    pub body: Option<Value>,
    pub patience: Duration,
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub status: u16,
    /// None when it was longer than is read.
    pub body: Option<Vec<u8>>,
}

/// Why nothing came back.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendTrouble {
    /// What was to be sent cannot be.
    #[error("{0}")]
    Unfit(String),
    /// Nothing has left the house.
    #[error("{0}")]
    Unreachable(String),
    /// It may have arrived.
    #[error("{0}")]
    Lost(String),
}

/// Port: sends orders.
pub trait Courier: Send + Sync + 'static {
    fn send(&self, order: Order) -> Pending<Result<Reply, SendTrouble>>;
}

/// The fields of an answer to a call whose act has not ended.
pub(crate) fn pending(delegation: &Delegation) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: &str| fields.insert(name.to_owned(), value.into());
    put("status", "pending");
    put("request_id", delegation.id.as_str());
    put("correlation_id", delegation.correlation_id.as_str());
    put(
        "message",
        "the work has been given to a service that has not answered yet; make the same call again to learn the result",
    );
    fields
}
