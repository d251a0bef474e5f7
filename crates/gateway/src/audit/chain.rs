//! The hash chain: each row's hash covers the row and the hash before it.
//!
//! `hash = SHA-256(prev_hash || seq as 8 big-endian bytes || canonical JSON of the event)`, where the
//! canonical event (RFC 8785) has the row's columns less `seq`, `prev_hash` and `hash`. The payload is
//! stored as canonical text, so the canonical event is put together from the stored columns without
//! parsing, which is what makes verifying fast.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// A link of the chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// SHA-256 over a line that names the purpose, and then each part behind its length in 8 big-endian bytes.
    pub fn of_parts<'a>(purpose: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new_with_prefix(purpose);
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// What the first row of a chain names as the hash before it.
    pub const GENESIS: Self = Self([0; 32]);

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn to_hex(self) -> String {
        self.to_string()
    }

    pub fn parse(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// The columns of a row that the hash covers, as stored.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    pub chain: &'a str,
    pub event_id: &'a str,
    pub timestamp: &'a str,
    pub correlation_id: &'a str,
    pub actor_type: &'a str,
    pub actor_id: &'a str,
    pub event_type: &'a str,
    pub approval_state: Option<&'a str>,
    /// Canonical JSON text.
    pub payload: &'a str,
}

/// Links one row to the one before it.
pub fn link(prev: &Hash, seq: u64, columns: &Columns<'_>) -> Hash {
    let mut digest = Sha256::new();
    digest.update(prev.0);
    digest.update(seq.to_be_bytes());
    digest.update(canonical_event(columns).as_bytes());
    Hash(digest.finalize().into())
}

/// The canonical JSON of an event; keys stand in RFC 8785 order.
pub fn canonical_event(columns: &Columns<'_>) -> String {
    let mut text = String::with_capacity(320 + columns.payload.len());
    let mut open = "{";
    let mut field = |name: &str, value: Json<'_>| {
        text.push_str(open);
        open = ",";
        text.push('"');
        text.push_str(name);
        text.push_str("\":");
        match value {
            Json::Written(json) => text.push_str(json),
            Json::Text(plain) => quote(&mut text, plain),
        }
    };
    field("actor_id", Json::Text(columns.actor_id));
    field("actor_type", Json::Text(columns.actor_type));
    if let Some(state) = columns.approval_state {
        field("approval_state", Json::Text(state));
    }
    field("chain", Json::Text(columns.chain));
    field("correlation_id", Json::Text(columns.correlation_id));
    field("event_id", Json::Text(columns.event_id));
    field("event_type", Json::Text(columns.event_type));
    field("payload", Json::Written(columns.payload));
    field("timestamp", Json::Text(columns.timestamp));
    text.push('}');
    text
}

enum Json<'a> {
    /// Canonical already.
    Written(&'a str),
    Text(&'a str),
}

/// Canonical JSON (RFC 8785) of a value.
pub fn canonical(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value)
        .expect("a JSON value has no map keys or numbers that RFC 8785 cannot write")
}

/// SHA-256 of the canonical form, in hexadecimal.
pub fn digest(value: &Value) -> String {
    Hash(Sha256::digest(canonical(value).as_bytes()).into()).to_hex()
}

/// Appends a JSON string, as RFC 8785 writes it.
pub(super) fn quote(to: &mut String, text: &str) {
    let plain = text
        .bytes()
        .all(|b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\');
    if plain {
        to.push('"');
        to.push_str(text);
        to.push('"');
    } else {
        to.push_str(&canonical(&Value::from(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROW: Columns<'_> = Columns {
        chain: "main",
        event_id: "e1",
        timestamp: "2026-11-15T10:00:00.000Z",
        correlation_id: "c\"1",
        actor_type: "agent",
        actor_id: "local",
        event_type: "command.received",
        approval_state: None,
        payload: "{}",
    };

    #[test]
    fn the_assembled_event_is_what_the_canonicaliser_writes() {
        for state in [None, Some("pending")] {
            let row = Columns {
                approval_state: state,
                payload: r#"{"a":[1,2],"é":"\n"}"#,
                ..ROW
            };
            let mut value = json!({
                "timestamp": row.timestamp, "payload": {"é": "\n", "a": [1, 2]}, "event_type": row.event_type,
                "event_id": row.event_id, "correlation_id": row.correlation_id, "chain": row.chain,
                "actor_type": row.actor_type, "actor_id": row.actor_id,
            });
            if let Some(state) = state {
                value["approval_state"] = json!(state);
            }
            assert_eq!(canonical_event(&row), canonical(&value));
        }
    }

    #[test]
    fn every_column_and_the_place_in_the_chain_change_the_hash() {
        let base = link(&Hash::GENESIS, 1, &ROW);
        let others = [
            Columns { chain: "other", ..ROW },
            Columns { event_id: "e2", ..ROW },
            Columns {
                timestamp: "2026-11-15T10:00:00.001Z",
                ..ROW
            },
            Columns {
                correlation_id: "c2",
                ..ROW
            },
            Columns {
                actor_type: "human",
                ..ROW
            },
            Columns {
                actor_id: "remote",
                ..ROW
            },
            Columns {
                event_type: "command.completed",
                ..ROW
            },
            Columns {
                approval_state: Some("pending"),
                ..ROW
            },
            Columns {
                payload: "{\"a\":1}",
                ..ROW
            },
        ];
        for row in &others {
            assert_ne!(link(&Hash::GENESIS, 1, row), base, "{row:?}");
        }
        assert_ne!(link(&Hash::GENESIS, 2, &ROW), base);
        assert_ne!(link(&base, 1, &ROW), base);
    }

    #[test]
    fn a_hash_reads_back_from_its_text() {
        let hash = link(&Hash::GENESIS, 1, &ROW);
        assert_eq!(Hash::parse(&hash.to_hex()), Some(hash));
        assert_eq!(Hash::parse("zz"), None);
    }
}
