//! One row of the record as stored, and as the JSON object that queries and exports show.

use super::chain::{Columns, Hash};
use serde::Deserialize as _;
use serde_json::Value;
use serde_json::value::RawValue;

/// The columns of `flow_events`. Nothing is checked: that is what proving is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Where it stands among all rows of the record, in the order they are read. With one chain this is `seq`;
    /// it is no part of what is proved.
    pub place: u64,
    pub chain: String,
    pub seq: u64,
    pub event_id: String,
    pub timestamp: String,
    pub correlation_id: String,
    pub actor_type: String,
    pub actor_id: String,
    pub event_type: String,
    pub approval_state: Option<String>,
    /// Canonical JSON text.
    pub payload: String,
    pub prev_hash: Hash,
    pub hash: Hash,
}

/// A row's place and content, borrowed from wherever it was read.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    pub seq: u64,
    pub columns: Columns<'a>,
    pub prev_hash: Hash,
    pub hash: Hash,
}

impl Row {
    /// The payload, however deep it nests.
    pub fn payload(&self) -> Result<Value, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_str(&self.payload);
        reader.disable_recursion_limit();
        let payload = Value::deserialize(&mut reader)?;
        reader.end().map(|()| payload)
    }

    pub fn as_link(&self) -> Link<'_> {
        Link {
            seq: self.seq,
            columns: Columns {
                chain: &self.chain,
                event_id: &self.event_id,
                timestamp: &self.timestamp,
                correlation_id: &self.correlation_id,
                actor_type: &self.actor_type,
                actor_id: &self.actor_id,
                event_type: &self.event_type,
                approval_state: self.approval_state.as_deref(),
                payload: &self.payload,
            },
            prev_hash: self.prev_hash,
            hash: self.hash,
        }
    }

    /// One line of JSON; hashes are hexadecimal text.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Line {
            chain: self.chain.clone(),
            seq: self.seq,
            event_id: self.event_id.clone(),
            timestamp: self.timestamp.clone(),
            correlation_id: self.correlation_id.clone(),
            actor_type: self.actor_type.clone(),
            actor_id: self.actor_id.clone(),
            event_type: self.event_type.clone(),
            approval_state: self.approval_state.clone(),
            payload: RawValue::from_string(self.payload.clone())?,
            prev_hash: self.prev_hash.to_hex(),
            hash: self.hash.to_hex(),
        })
    }

    pub fn from_json(text: &str) -> Option<Self> {
        let line: Line = serde_json::from_str(text).ok()?;
        Some(Self {
            place: line.seq,
            chain: line.chain,
            seq: line.seq,
            event_id: line.event_id,
            timestamp: line.timestamp,
            correlation_id: line.correlation_id,
            actor_type: line.actor_type,
            actor_id: line.actor_id,
            event_type: line.event_type,
            approval_state: line.approval_state,
            payload: Box::<str>::from(line.payload).into(),
            prev_hash: Hash::parse(&line.prev_hash)?,
            hash: Hash::parse(&line.hash)?,
        })
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    chain: String,
    seq: u64,
    event_id: String,
    timestamp: String,
    correlation_id: String,
    actor_type: String,
    actor_id: String,
    event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_state: Option<String>,
    payload: Box<RawValue>,
    prev_hash: String,
    hash: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_back_from_its_line_byte_for_byte() {
        let row = Row {
            place: 3,
            chain: "main".into(),
            seq: 3,
            event_id: "e".into(),
            timestamp: "2026-11-15T10:00:00.000Z".into(),
            correlation_id: "c\"\n".into(),
            actor_type: "agent".into(),
            actor_id: "local".into(),
            event_type: "command.received".into(),
            approval_state: None,
            payload: r#"{"a":1e+21,"é":"\u0001"}"#.into(),
            prev_hash: Hash::GENESIS,
            hash: Hash::from_bytes([9; 32]),
        };
        for state in [None, Some("pending".to_owned())] {
            let row = Row {
                approval_state: state,
                ..row.clone()
            };
            assert_eq!(Row::from_json(&row.to_json().unwrap()), Some(row));
        }
    }
}
