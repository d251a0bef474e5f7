//! What the chain says of the row that a command has while it is open. Whoever finds one that its process left closes it
//! with what lies there, and signs that; so the event of its opening has a digest of the row.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::chain::Hash;
use super::event::EventType;
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Status};

/// The name of the digest in the event of an opening.
pub const FIELD: &str = "opening_digest";

/// The row of an open command, but for what changes while it is open.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    pub owner: &'a str,
    pub request_id: &'a str,
    pub digest: &'a str,
    pub correlation_id: &'a str,
    pub opened_at: Timestamp,
    pub abandoned: &'a str,
}

/// What the events of a call tell of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Vouched {
    /// It is what was opened.
    Whole,
    /// A program that told no digest opened it.
    Untold,
    /// It is something else.
    Changed,
    /// There was no such opening.
    Added,
}

impl Opened<'_> {
    pub fn digest(&self) -> Hash {
        let opened_at = self.opened_at.as_millis().to_string();
        let parts = [
            self.owner,
            self.request_id,
            self.digest,
            self.correlation_id,
            &opened_at,
            self.abandoned,
        ];
        Hash::of_parts("countersign opening 1\n", parts.map(str::as_bytes))
    }

    /// Holds the row against the events of openings that have its correlation.
    pub fn vouched<'e>(&self, events: impl IntoIterator<Item = &'e str>) -> Vouched {
        let mut vouched = Vouched::Added;
        for told in events.into_iter().filter_map(told) {
            match told.opening_digest {
                _ if told.request_id != self.request_id => {}
                Some(digest) if Hash::parse(digest) == Some(self.digest()) => return Vouched::Whole,
                Some(_) => vouched = Vouched::Changed,
                None if vouched == Vouched::Added => vouched = Vouched::Untold,
                None => {}
            }
        }
        vouched
    }

    /// What the command may be closed with by whoever did not open it: what lies in its row where the event of its opening
    /// vouches for that, else what this event says of the command. None where there is no such event: somebody put the
    /// row there.
    pub fn closed_with<'e>(&self, events: impl IntoIterator<Item = &'e str> + Clone) -> Option<String> {
        match self.vouched(events.clone()) {
            Vouched::Whole => Some(self.abandoned.to_owned()),
            Vouched::Untold | Vouched::Changed => {
                let parse = |event: &str| serde_json::from_str::<Value>(event).ok();
                let mut events = events.into_iter().filter_map(parse);
                let received = events.find(|event| event["request_id"] == self.request_id)?;
                Some(unvouched(&received).to_string())
            }
            Vouched::Added => None,
        }
    }
}

/// The record of an abandoned command of which nothing is known but what the event of its opening says.
fn unvouched(received: &Value) -> Value {
    let why = "the process that ran it ended; what was stored to close it with is not what its opening tells of, and is left out";
    json!({
        "request_id": received["request_id"],
        "command": received["command"],
        "arguments": received["arguments"],
        "working_directory": received["cwd"],
        "tool": received["tool"],
        "status": Status::Failed.as_str(),
        "error_code": ErrorCode::Abandoned.name(),
        "error_message": why,
        "exit_code": null,
        "duration_ms": 0,
        "sandbox": [],
        "policy_snapshot": null,
    })
}

/// Whether events of this kind tell of openings.
pub fn is_opening(event_type: &str) -> bool {
    event_type == EventType::CommandReceived.as_str()
}

/// What the event of an opening tells.
#[derive(Deserialize)]
pub struct Told<'a> {
    #[serde(borrow)]
    pub request_id: Cow<'a, str>,
    /// None of programs that did not tell, and of requests that never were open.
    pub opening_digest: Option<&'a str>,
}

pub fn told(payload: &str) -> Option<Told<'_>> {
    serde_json::from_str(payload).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Opened<'static> {
        Opened {
            owner: "o",
            request_id: "r",
            digest: "d",
            correlation_id: "c",
            opened_at: Timestamp::from_millis(7),
            abandoned: r#"{"command":"ls"}"#,
        }
    }

    fn event(request_id: &str, digest: Option<Hash>) -> String {
        let mut event = json!({"request_id": request_id, "command": "rm", "tool": "execute_process"});
        if let Some(digest) = digest {
            event[FIELD] = digest.to_hex().into();
        }
        event.to_string()
    }

    #[test]
    fn a_digest_is_of_each_part_in_its_place() {
        let row = row();
        let others = [
            Opened {
                owner: "or",
                request_id: "",
                ..row
            },
            Opened { digest: "e", ..row },
            Opened {
                correlation_id: "d",
                ..row
            },
            Opened {
                opened_at: Timestamp::from_millis(8),
                ..row
            },
            Opened { abandoned: "{}", ..row },
        ];
        for other in others {
            assert_ne!(other.digest(), row.digest(), "{other:?}");
        }
    }

    #[test]
    fn a_row_is_vouched_for_by_the_event_of_its_own_opening() {
        let row = row();
        let (own, other) = (
            event("r", Some(row.digest())),
            event("r", Some(Hash::from_bytes([7; 32]))),
        );
        let (older, neighbour) = (event("r", None), event("s", Some(row.digest())));
        for (events, expected) in [
            (vec![&own], Vouched::Whole),
            (vec![&neighbour, &other, &own], Vouched::Whole),
            (vec![&other], Vouched::Changed),
            (vec![&older], Vouched::Untold),
            (vec![&older, &other], Vouched::Changed),
            (vec![&neighbour], Vouched::Added),
            (vec![], Vouched::Added),
        ] {
            assert_eq!(row.vouched(events.iter().map(|it| it.as_str())), expected, "{events:?}");
        }
    }

    #[test]
    fn a_command_is_closed_with_what_its_opening_vouches_for_and_else_with_what_it_says() {
        let row = row();
        let closed = |event: String| row.closed_with([event.as_str()]);
        assert_eq!(closed(event("r", Some(row.digest()))).as_deref(), Some(row.abandoned));
        for event in [event("r", None), event("r", Some(Hash::from_bytes([7; 32])))] {
            let told: Value = serde_json::from_str(&closed(event).unwrap()).unwrap();
            assert_eq!(
                (&told["command"], &told["error_code"]),
                (&json!("rm"), &json!("ABANDONED"))
            );
        }
        assert_eq!(closed(event("s", Some(row.digest()))), None);
    }
}
