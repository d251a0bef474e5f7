//! The user of the client that makes a call, as an approver.
//!
//! They are asked by the client's own means, so what comes back is the client's word: it can answer in its
//! user's name. It counts where policy lists the client as an approver, for what was asked through that
//! client, and as one voice however many sessions the client has.

use super::ballot::{Choice, Decider, OwnRequests};
use super::question::Given;
use super::request::ApprovalRequest;
use crate::audit::Pending;
use crate::audit::event::Actor;
use crate::ids::{ApprovalId, RequestId};
use crate::session::Caller;

/// Port: the user of the client that makes a call.
pub trait ClientUser: Send + Sync + 'static {
    /// Shows a question. Dropped once somebody else has decided, and when the call is answered.
    fn ask(&self, question: &ApprovalRequest) -> Pending<Heard>;

    /// The question that an earlier round of the same call came to.
    fn resumes(&self) -> Option<Resumed> {
        None
    }
}

/// What came of showing a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    Said(Word),
    /// No answer; others may decide.
    Nothing,
    /// This client is asked by the answer to its call, which must come now.
    ByAnswer,
}

/// What a client says that its user decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    pub choice: Choice,
    pub reason: String,
    pub answer: Option<Given>,
}

/// A question that a call goes on with, and the command that waits for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumed {
    pub approval: ApprovalId,
    pub command: RequestId,
}

impl Decider {
    /// The client a call came through. The record does not call it a person: nobody can tell.
    pub fn client(caller: &Caller) -> Self {
        Self {
            credential: caller.credential.clone(),
            actor: Actor {
                kind: caller.actor.kind,
                id: format!("client:{}", caller.actor.id),
            },
            own_requests: OwnRequests::Only,
            is_delegate: true,
        }
    }
}
