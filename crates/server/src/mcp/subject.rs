//! What a stream of a session is about, in a few bytes that every process makes alike. An event id that another
//! process gave out, or this one in an earlier life, still tells by it which request it belongs to.

use std::fmt;

use countersign_gateway::ids::SessionId;
use countersign_gateway::session::lifetime::KeptRequest;
use sha2::{Digest as _, Sha256};

use super::memory::{Asked, Digest};

const BYTES: usize = 8;

/// One request of one session, or the session itself. It opens nothing: whoever brings one has been let into the
/// session before it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Subject([u8; BYTES]);

impl Subject {
    /// What belongs to no request.
    pub(crate) fn session(session: &SessionId) -> Self {
        Self::of(session, "", &[0; 32])
    }

    pub(super) fn asked(session: &SessionId, asked: &Asked) -> Self {
        Self::of(session, &asked.id.to_json(), &asked.digest)
    }

    /// The same request as the store remembers it.
    pub(super) fn kept(session: &SessionId, request: &KeptRequest) -> Self {
        Self::of(session, &request.rpc_id, &request.digest)
    }

    fn of(session: &SessionId, rpc_id: &str, digest: &Digest) -> Self {
        let whole: [u8; 32] = Sha256::new()
            .chain_update(session.as_str())
            .chain_update([0])
            .chain_update(rpc_id)
            .chain_update([0])
            .chain_update(digest)
            .finalize()
            .into();
        let mut few = [0; BYTES];
        few.copy_from_slice(&whole[..BYTES]);
        Self(few)
    }

    /// A subject as it is written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_ours = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 2 * BYTES || !text.bytes().all(is_ours) {
            return None;
        }
        let number = u64::from_str_radix(text, 16).ok()?;
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", u64::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mcp::jsonrpc::Id;

    #[test]
    fn a_request_is_called_alike_from_memory_and_from_the_store_and_nothing_else_is() {
        let (session, other) = (SessionId::trusted("s"), SessionId::trusted("t"));
        let asked = |id: serde_json::Value, digest| Asked {
            id: Id::try_from(id).unwrap(),
            digest: [digest; 32],
        };
        let subject = Subject::asked(&session, &asked(json!(7), 1));
        let kept = KeptRequest {
            rpc_id: "7".to_owned(),
            digest: [1; 32],
            command: Some(countersign_gateway::ids::RequestId::trusted("r")),
            waits: false,
        };
        assert_eq!(Subject::kept(&session, &kept), subject);
        assert_eq!(Subject::parse(&subject.to_string()), Some(subject));
        for different in [
            Subject::kept(&other, &kept),
            Subject::asked(&session, &asked(json!("7"), 1)),
            Subject::asked(&session, &asked(json!(7), 2)),
            Subject::session(&session),
        ] {
            assert_ne!(different, subject);
        }
        for wrong in ["", "0", "0123456789ABCDEF", "0123456789abcdeg", "+123456789abcdef"] {
            assert_eq!(Subject::parse(wrong), None, "{wrong}");
        }
    }
}
