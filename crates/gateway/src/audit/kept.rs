//! What the chain says of that which is kept beside it: the output of a command, and its result.
//!
//! They are too long for an event, and go with the command's row. The closing event has a digest of them instead, as they
//! are kept and so without secrets. Each result is kept with a salt: an output of few characters could otherwise be guessed
//! by whoever has an exported record, in which it is not.

use std::borrow::Cow;

use serde::Deserialize;

use super::chain::Hash;
use super::event::EventType;

/// The name of the digest in a closing event.
pub const FIELD: &str = "kept_digest";

/// What is kept of a command, wherever it is.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    pub owner: &'a str,
    pub request_id: &'a str,
    /// Of the request's content: by it the same request is known again.
    pub digest: &'a str,
    pub correlation_id: &'a str,
    pub result: &'a str,
    pub stdout: &'a [u8],
    pub stderr: &'a [u8],
}

impl Kept<'_> {
    pub fn digest(&self) -> Hash {
        let texts = [
            self.owner,
            self.request_id,
            self.digest,
            self.correlation_id,
            self.result,
        ];
        self.over("countersign kept 2\n", &texts)
    }

    /// The same as earlier programs told it, which left the request's own digest out.
    pub fn earlier_digest(&self) -> Hash {
        let texts = [self.owner, self.request_id, self.correlation_id, self.result];
        self.over("countersign kept 1\n", &texts)
    }

    fn over(&self, purpose: &str, texts: &[&str]) -> Hash {
        let texts = texts.iter().map(|text| text.as_bytes());
        Hash::of_parts(purpose, texts.chain([self.stdout, self.stderr]))
    }
}

/// Whether events of this kind may tell of what is kept.
pub fn is_closing(event_type: &str) -> bool {
    event_type == EventType::CommandCompleted.as_str()
}

/// What an event tells of what is kept, and of which request; none for other events, and for those of programs that did not
/// tell.
pub fn told<'a>(event_type: &str, payload: &'a str) -> Option<(Cow<'a, str>, Hash)> {
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow)]
        request_id: Cow<'a, str>,
        kept_digest: &'a str,
    }
    if !is_closing(event_type) || !payload.contains(FIELD) {
        return None;
    }
    let told: Told<'a> = serde_json::from_str(payload).ok()?;
    Some((told.request_id, Hash::parse(told.kept_digest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_each_part_in_its_place() {
        let kept = Kept {
            owner: "o",
            request_id: "r",
            digest: "d",
            correlation_id: "c",
            result: "{}",
            stdout: b"out",
            stderr: b"",
        };
        let others = [
            Kept {
                owner: "or",
                request_id: "",
                ..kept
            },
            Kept {
                request_id: "s",
                ..kept
            },
            Kept { digest: "e", ..kept },
            Kept {
                correlation_id: "d",
                ..kept
            },
            Kept { result: "{ }", ..kept },
            Kept {
                stdout: b"ou",
                stderr: b"t",
                ..kept
            },
        ];
        for other in others {
            assert_ne!(other.digest(), kept.digest(), "{other:?}");
        }
        assert_eq!(
            kept.earlier_digest().to_hex(),
            "ccee1561214d219a63eab4308c3a87743a58e6837ad5e7792a2c4333df8cf0db"
        );
    }

    #[test]
    fn only_closing_events_tell_and_only_in_their_own_field() {
        let digest = Hash::from_bytes([7; 32]);
        let payload = format!(r#"{{"kept_digest":"{digest}","request_id":"a\"b"}}"#);
        let told_by = |kind: &str, payload: &str| told(kind, payload).map(|(id, it)| (id.into_owned(), it));
        let expected = Some(("a\"b".to_owned(), digest));
        assert_eq!(told_by("command.completed", &payload), expected);
        assert_eq!(told_by("command.received", &payload), None);
        let quoted = format!(r#"{{"command":"\"kept_digest\":\"{digest}\"","request_id":"r"}}"#);
        assert_eq!(told_by("command.completed", &quoted), None);
    }
}
