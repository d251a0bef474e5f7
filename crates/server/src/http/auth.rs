//! Who sends a request: the bearer of a token, or an agent on this machine that needs none.
//!
//! A token that is not in force is refused, never taken for no token at all.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::session::credential::Credentials;
use countersign_gateway::session::kinship::Kinship;
use countersign_gateway::session::{Caller, Transport};
use tokio::sync::OnceCell;

use super::line::Wire;

/// Who is at the other end of a connection.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// Where it came to.
    pub(super) here: Option<SocketAddr>,
    /// Whether it is an agent of a job, once somebody asked.
    pub(super) is_an_agent: OnceCell<bool>,
    /// Whether we listen on loopback, and only there.
    pub(super) listener_is_loopback: bool,
    /// A program of this machine that came without TLS to a listener that has it.
    pub(super) speaks_plainly: bool,
    pub(super) wire: Arc<Wire>,
}

impl Peer {
    /// Whether it is an agent of a job, or something that one started. Looked into once for a connection, and only when
    /// somebody comes without a token.
    pub(super) async fn is_an_agent(&self, kinship: Option<&dyn Kinship>) -> bool {
        let Some(kinship) = kinship else { return false };
        let look = async || match self.here {
            Some(here) => kinship.is_an_agent(self.address, here).await,
            None => true,
        };
        *self.is_an_agent.get_or_init(look).await
    }
}

/// Who may come without a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anonymous {
    /// Agents whose connection begins and ends on this machine.
    AgentsOnLoopback,
    Nobody,
}

pub(super) fn caller(
    headers: &HeaderMap,
    peer: &Peer,
    transport: Transport,
    credentials: &dyn Credentials,
    anonymous: Anonymous,
) -> Result<Caller, Refusal> {
    let refused = |message| Err(Refusal::new(ErrorCode::Unauthenticated, message));
    let mut presented = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = presented.next() else {
        let local = peer.listener_is_loopback && peer.address.ip().is_loopback();
        return match anonymous {
            Anonymous::AgentsOnLoopback if local => Ok(Caller::anonymous_agent(transport)),
            Anonymous::AgentsOnLoopback | Anonymous::Nobody => {
                refused("a token is needed here; send it in `Authorization`, behind the word `Bearer`")
            }
        };
    };
    let token = first.to_str().ok().and_then(bearer);
    let (Some(token), None) = (token, presented.next()) else {
        return refused("`Authorization` must hold one token, behind the word `Bearer`");
    };
    match credentials.authenticate(token) {
        Some(credential) => Ok(credential.caller(transport)),
        None => refused("this token is not in force; it was revoked, or is not one of ours"),
    }
}

pub(super) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_form_holds_a_token() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            assert_eq!(bearer(value), token, "{value}");
        }
    }
}
