//! Tokens: who a bearer is. Only digests are kept, so neither the store nor a copy of it can log in.

use super::{Caller, Role, Transport};
use crate::audit::event::{Actor, ActorType};
use crate::clock::Timestamp;
use crate::ids::CredentialId;

/// A token as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    pub id: CredentialId,
    pub role: Role,
    pub name: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    /// The run whose end ends this token too.
    pub run: Option<String>,
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
        }
    }
}

/// Port: knows the tokens that are in force. What another process creates or revokes is known here
/// within a second.
pub trait Credentials: Send + Sync + 'static {
    /// The credential behind a bearer token; none when it was never made, or is revoked.
    fn authenticate(&self, token: &str) -> Option<Credential>;
}
