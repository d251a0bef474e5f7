//! Logins: whose one is, the secret that stands for it, and what is told of it.

use std::io;

use countersign_gateway::audit::event::{Actor, ActorType, Draft, EventType};
use countersign_gateway::audit::payload::Object;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_gateway::session::credential::Credential;
use countersign_gateway::session::login::Entered;
use countersign_gateway::session::{Caller, Role, Transport};

use super::Cells;
use crate::{hex, random};

/// Before the secrets of codes and of browsers.
pub(crate) const CODE: &str = "cs_login_";
pub(crate) const BROWSER: &str = "cs_browser_";

/// Whose login it is.
pub(crate) struct Whose {
    pub(crate) credential: CredentialId,
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) token: Option<String>,
}

impl Whose {
    /// A person's, who may have come without a token.
    pub(crate) fn person(person: &Caller) -> Self {
        Self {
            credential: person.credential.clone(),
            role: person.role,
            name: person.actor.id.clone(),
            token: None,
        }
    }

    /// That of whoever shows a token.
    pub(crate) fn token(credential: &Credential) -> Self {
        Self {
            credential: credential.id.clone(),
            role: credential.role,
            name: credential.name.clone(),
            token: Some(credential.id.as_str().to_owned()),
        }
    }

    pub(crate) fn caller(self) -> Caller {
        Caller {
            credential: self.credential,
            role: self.role,
            actor: Actor {
                kind: ActorType::Human,
                id: self.name,
            },
            transport: Transport::Console,
            run: None,
            job: None,
        }
    }

    /// The browser that is in from now on, and the event that tells of it.
    pub(crate) fn entered(self, secret: String, now: Timestamp, by: &'static str) -> (Entered, Draft) {
        let event = event(EventType::AuthLogin, &self, now, by);
        let caller = self.caller();
        (Entered { secret, caller }, event)
    }
}

/// A row of `credential, role, name, token`.
pub(crate) fn whose<R: Cells>(row: &R) -> Result<Whose, R::Error> {
    Ok(Whose {
        credential: CredentialId::trusted(row.text(0)?),
        role: Role::parse(&row.text(1)?).ok_or_else(|| R::damaged(1))?,
        name: row.text(2)?,
        token: row.any_text(3)?,
    })
}

pub(crate) fn event(kind: EventType, whose: &Whose, now: Timestamp, by: &'static str) -> Draft {
    let ids = IdSource::random();
    let payload = Object::new()
        .text("credential", whose.credential.as_str())
        .text("role", whose.role.as_str())
        .text("by", by)
        .finish();
    let actor = Actor {
        kind: ActorType::Human,
        id: whose.name.clone(),
    };
    Draft::new(ids.event(), now, ids.correlation(), actor, kind, payload)
}

/// 256 random bits in hexadecimal, behind a word that says what they are.
pub(crate) fn secret(prefix: &str) -> io::Result<String> {
    Ok(format!("{prefix}{}", hex::encode(&random::secret()?)))
}
