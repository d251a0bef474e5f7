//! One answer to a question: who gives it, what they choose, and the vote that is kept of it.

use serde_json::{Value, json};

use super::question::{Answered, Given};
use crate::audit::event::{Actor, ActorType};
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal};
use crate::ids::CredentialId;
use crate::session::{Caller, Role};

/// S1's decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    Allow,
    Deny,
}

impl Choice {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Allow, Self::Deny]
            .into_iter()
            .find(|choice| choice.as_str() == text)
    }
}

/// Who decides: the credential they came with, and what the record calls them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decider {
    pub credential: CredentialId,
    pub actor: Actor,
    /// Whether they may decide what they asked for themselves.
    pub own_requests: OwnRequests,
    /// Whether they decide in the owner's place, and not what is the owner's alone.
    pub is_delegate: bool,
}

/// Whether somebody may decide their own request. Never, but for a person at a terminal whom the
/// configuration lets, and for a client that policy lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnRequests {
    Refused,
    Allowed,
    /// Their own and nobody else's.
    Only,
}

impl Decider {
    /// A caller who may decide: an operator or an approver, never an agent or a viewer.
    pub fn of(caller: &Caller) -> Result<Self, Refusal> {
        match caller.role {
            Role::Operator | Role::Approver => Ok(Self {
                credential: caller.credential.clone(),
                actor: caller.actor.clone(),
                own_requests: OwnRequests::Refused,
                is_delegate: caller.role == Role::Approver,
            }),
            Role::Agent | Role::Viewer => Err(Refusal::new(
                ErrorCode::Forbidden,
                format!("a token of role `{}` does not decide", caller.role.as_str()),
            )),
        }
    }

    /// The person at a terminal who may open the state directory.
    pub fn person(user: &str, own_requests: OwnRequests) -> Self {
        Self {
            credential: CredentialId::trusted(format!("user:{user}")),
            actor: Actor {
                kind: ActorType::Human,
                id: user.to_owned(),
            },
            own_requests,
            is_delegate: false,
        }
    }

    /// A service that was asked over the network and answered at once, by its configured name.
    pub fn approver(name: &str) -> Self {
        Self {
            credential: CredentialId::trusted(format!("approver:{name}")),
            actor: Actor::system(name),
            own_requests: OwnRequests::Refused,
            is_delegate: false,
        }
    }

    /// Whoever holds the callback token. Names are what they say; the token is shared, so all who hold it
    /// are one voice.
    pub fn callback(actor: Actor) -> Self {
        Self {
            credential: CredentialId::trusted("callback"),
            actor,
            own_requests: OwnRequests::Refused,
            is_delegate: false,
        }
    }

    /// No person: a part of the gateway that says no.
    pub fn system(id: &str) -> Self {
        Self {
            credential: CredentialId::trusted(format!("system:{id}")),
            actor: Actor::system(id),
            own_requests: OwnRequests::Refused,
            is_delegate: false,
        }
    }
}

/// One answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ballot {
    pub choice: Choice,
    pub by: Decider,
    pub reason: String,
    /// What they choose, where it is a question with options.
    pub answer: Option<Given>,
}

/// An answer as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vote {
    pub credential: CredentialId,
    pub by: String,
    pub choice: Choice,
    pub reason: String,
    pub at: Timestamp,
    /// What they chose of what was offered.
    pub answer: Option<Answered>,
}

impl Vote {
    pub(super) fn to_json(&self) -> Value {
        let mut shown = json!({
            "credential": self.credential.as_str(), "by": self.by, "decision": self.choice.as_str(),
            "reason": self.reason, "at": self.at.to_string(),
        });
        if let Some(answer) = &self.answer {
            shown["answer"] = answer.to_json();
        }
        shown
    }

    pub(super) fn from_json(kept: &Value) -> Option<Self> {
        let word = |name: &str| kept[name].as_str().map(str::to_owned);
        Some(Self {
            credential: CredentialId::trusted(word("credential")?),
            by: word("by")?,
            choice: Choice::parse(&word("decision")?)?,
            reason: word("reason")?,
            at: Timestamp::parse(&word("at")?).ok()?,
            answer: Answered::from_json(&kept["answer"]),
        })
    }
}
