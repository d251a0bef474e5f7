//! What somebody outside says by a callback, in either of the two vocabularies there are: adapters say
//! `approve`, `deny` and `error`, the platform says `approved`, `denied`, `expired`, `failed` and `applied`.
//!
//! A callback answers a question; it never lets an act go. `applied` is ours to say, since only we know
//! that something ran.

use serde_json::Value;

use super::ballot::Choice;
use super::board::DecideError;
use super::question::Given;
use crate::audit::RecordError;
use crate::audit::event::{Actor, ActorType};
use crate::ids::{ApprovalId, CorrelationId, DelegationId};
use crate::limits;

/// Who decided, where a callback does not say.
pub const NAMELESS: &str = "mcp-callback";

/// Where a callback came in. Both take the same words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    Approver,
    Executor,
}

impl Route {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approver => "approver",
            Self::Executor => "executor",
        }
    }
}

/// What a callback says became of the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    Approved,
    Denied,
    /// The approver could not get an answer.
    Failed,
    /// Nobody answered the approver in time.
    Expired,
    /// The act is done, and was done elsewhere.
    Applied,
}

impl Word {
    /// Both vocabularies. `pending` is no answer, and so is none of these.
    pub const WORDS: &[(&str, Self)] = &[
        ("approve", Self::Approved),
        ("deny", Self::Denied),
        ("error", Self::Failed),
        ("approved", Self::Approved),
        ("denied", Self::Denied),
        ("failed", Self::Failed),
        ("expired", Self::Expired),
        ("applied", Self::Applied),
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::WORDS
            .iter()
            .find_map(|(word, meaning)| (*word == text).then_some(*meaning))
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Applied => "applied",
        }
    }

    /// The answer it comes to; whatever is not a yes is a no. None for what nobody outside decides.
    pub fn choice(self) -> Option<Choice> {
        match self {
            Self::Approved => Some(Choice::Allow),
            Self::Denied | Self::Failed | Self::Expired => Some(Choice::Deny),
            Self::Applied => None,
        }
    }

    /// Why, where a callback does not say.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Approved | Self::Denied | Self::Applied => "",
            Self::Failed => "the approver could not get an answer",
            Self::Expired => "nobody answered the approver in time",
        }
    }
}

/// What is meant; a callback names at least one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meant {
    Question {
        id: ApprovalId,
        /// Named besides; it must be the question's own.
        correlation_id: Option<CorrelationId>,
    },
    /// The one question of this call, or the act that it was about.
    Call(CorrelationId),
    /// An act that was given to an executor.
    Act {
        id: DelegationId,
        /// Named besides; it must be the act's own.
        correlation_id: Option<CorrelationId>,
    },
}

/// One callback of somebody who holds the token.
#[derive(Clone, PartialEq, Debug)]
pub struct Callback {
    pub route: Route,
    pub meant: Meant,
    pub word: Word,
    pub reason: Option<String>,
    /// Whoever decided, by the caller's word alone.
    pub actor_id: Option<String>,
    /// Named besides; it must be the question's own.
    pub tool: Option<String>,
    /// The caller's own name for what it did.
    pub request_id: Option<String>,
    pub metadata: Option<Value>,
    /// What a question is answered with.
    pub answer: Option<Given>,
    /// What an executor's work came to.
    pub result: Option<Value>,
}

impl Callback {
    /// Whom the record names.
    pub fn actor(&self) -> Actor {
        match &self.actor_id {
            Some(id) => Actor {
                kind: ActorType::Human,
                id: id.chars().take(limits::ACTOR_CHARS_MAX).collect(),
            },
            None => Actor::system(NAMELESS),
        }
    }
}

/// Why a callback decided nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallbackError {
    #[error("there is no question `{0}`")]
    Unknown(String),
    #[error("the call `{0}` has asked more than once; name the question by `approval_request_id`")]
    Ambiguous(String),
    #[error("`{field}` is `{said}`, and the question's is another")]
    Another { field: &'static str, said: String },
    #[error("this act was not given to an executor outside; only whoever runs it can say that it was done")]
    NotDelegated,
    #[error(transparent)]
    Decide(#[from] DecideError),
}

impl From<RecordError> for CallbackError {
    fn from(error: RecordError) -> Self {
        Self::Decide(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_vocabularies_mean_the_same() {
        for (word, choice) in [
            ("approve", Some(Choice::Allow)),
            ("approved", Some(Choice::Allow)),
            ("deny", Some(Choice::Deny)),
            ("denied", Some(Choice::Deny)),
            ("error", Some(Choice::Deny)),
            ("failed", Some(Choice::Deny)),
            ("expired", Some(Choice::Deny)),
            ("applied", None),
        ] {
            assert_eq!(Word::parse(word).expect(word).choice(), choice, "{word}");
        }
        for none in ["pending", "Approve", "yes", "", "approve "] {
            assert_eq!(Word::parse(none), None, "{none}");
        }
    }
}
