//! A checkpoint: the signed statement that the chain had this hash at this place.
//!
//! Checkpoints are what a changed record cannot follow: whoever rewrites rows can link them again,
//! but not sign. Sent to a witness, they also outlive the owner of the state directory.

use countersign_gateway::audit::chain::{self, Hash};
use serde_json::{Value, json};

use crate::key::{self, Key};

/// Rows between two checkpoints, at most.
pub const EVERY_ROWS: u64 = 1_000;

/// Whether the row at `seq` is to be signed. A last checkpoint beyond it is none that we made: signing at once ends that.
pub(crate) fn is_due(last: u64, seq: u64) -> bool {
    seq.checked_sub(last).is_none_or(|rows| rows >= EVERY_ROWS)
}

/// Why a checkpoint was signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Enough rows since the last one.
    Periodic,
    /// A clean stop.
    Stop,
    /// Rows at and below it may be deleted.
    Prune,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Stop => "stop",
            Self::Prune => "prune",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Periodic, Self::Stop, Self::Prune]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// As stored: whether it is true is for [`Checkpoint::is_signed_by`] and the chain to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    pub chain: String,
    pub seq: u64,
    pub hash: Hash,
    pub timestamp: String,
    pub kind: Kind,
    pub public_key: String,
    /// Where the other chains of the record ended, as far as this one's writer could see. It is what ties them
    /// together: whoever rewrites one chain contradicts what another node signed.
    pub heads: Vec<OtherHead>,
    pub signature: String,
}

/// The end of another chain, and whose it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherHead {
    pub chain: String,
    pub seq: u64,
    pub hash: Hash,
    /// The key that signs that chain.
    pub public_key: String,
}

impl OtherHead {
    fn to_json(&self) -> Value {
        json!({"chain": self.chain, "seq": self.seq, "hash": self.hash.to_hex(), "public_key": self.public_key})
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            chain: value["chain"].as_str()?.to_owned(),
            seq: value["seq"].as_u64()?,
            hash: Hash::parse(value["hash"].as_str()?)?,
            public_key: value["public_key"].as_str()?.to_owned(),
        })
    }

    /// As one line of JSON, the way a database keeps them.
    pub(crate) fn list_to_text(heads: &[Self]) -> String {
        Value::from(heads.iter().map(Self::to_json).collect::<Vec<_>>()).to_string()
    }

    pub(crate) fn list_from_text(text: &str) -> Option<Vec<Self>> {
        Self::list_from_json(&serde_json::from_str(text).ok()?)
    }

    fn list_from_json(value: &Value) -> Option<Vec<Self>> {
        value.as_array()?.iter().map(Self::from_json).collect()
    }
}

impl Checkpoint {
    /// Signs the end of a chain that is alone in its record.
    pub fn sign(key: &Key, kind: Kind, chain: &str, seq: u64, hash: Hash, timestamp: String) -> Self {
        Self::sign_over(key, kind, (chain, seq, hash), timestamp, Vec::new())
    }

    /// Signs the end of a chain beside those of the others.
    pub(crate) fn sign_over(
        key: &Key,
        kind: Kind,
        (chain, seq, hash): (&str, u64, Hash),
        timestamp: String,
        heads: Vec<OtherHead>,
    ) -> Self {
        let mut checkpoint = Self {
            chain: chain.to_owned(),
            seq,
            hash,
            timestamp,
            kind,
            public_key: key.public().to_owned(),
            heads,
            signature: String::new(),
        };
        checkpoint.signature = key.sign(&checkpoint.message());
        checkpoint
    }

    pub fn is_signed_by(&self, public_key: &str) -> bool {
        self.public_key == public_key && key::is_signed(public_key, &self.message(), &self.signature)
    }

    pub fn to_json(&self) -> Value {
        let mut value = self.unsigned();
        value["signature"] = self.signature.as_str().into();
        value
    }

    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        Some(Self {
            chain: text("chain")?,
            seq: value.get("seq")?.as_u64()?,
            hash: Hash::parse(&text("hash")?)?,
            timestamp: text("timestamp")?,
            kind: Kind::parse(&text("kind")?)?,
            public_key: text("public_key")?,
            heads: value.get("heads").map_or(Some(Vec::new()), OtherHead::list_from_json)?,
            signature: text("signature")?,
        })
    }

    fn unsigned(&self) -> Value {
        let mut value = json!({
            "chain": self.chain, "seq": self.seq, "hash": self.hash.to_hex(),
            "timestamp": self.timestamp, "kind": self.kind.as_str(), "public_key": self.public_key,
        });
        // A chain that is alone says nothing of others, as it always did.
        if !self.heads.is_empty() {
            value["heads"] = self.heads.iter().map(OtherHead::to_json).collect();
        }
        value
    }

    /// What is signed names its purpose, so that a signature never passes for another kind.
    fn message(&self) -> String {
        format!("countersign checkpoint 1\n{}", chain::canonical(&self.unsigned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_every_thousand_rows_and_behind_one_that_nobody_made() {
        let due: Vec<bool> = [(0, 999), (0, 1_000), (500, 1_499), (500, 1_500), (u64::MAX, 7)]
            .map(|(last, seq)| is_due(last, seq))
            .to_vec();
        assert_eq!(due, [false, true, false, true, true]);
    }

    #[test]
    fn a_checkpoint_reads_back_and_every_field_is_under_the_signature() {
        let key = Key::from_seed(&[7; 32]);
        let hash = Hash::from_bytes([1; 32]);
        let moment = "2026-11-15T10:00:00.000Z".to_owned();
        let signed = Checkpoint::sign(&key, Kind::Periodic, "main", 9, hash, moment);
        assert_eq!(Checkpoint::from_json(&signed.to_json()).as_ref(), Some(&signed));
        assert!(signed.is_signed_by(key.public()));
        assert!(!signed.is_signed_by(Key::from_seed(&[8; 32]).public()));
        for (field, value) in [
            ("chain", json!("other")),
            ("seq", json!(8)),
            ("hash", json!(Hash::GENESIS.to_hex())),
            ("timestamp", json!("2026-11-15T10:00:00.001Z")),
            ("kind", json!("prune")),
        ] {
            let mut forged = signed.to_json();
            forged[field] = value;
            let forged = Checkpoint::from_json(&forged).unwrap();
            assert!(!forged.is_signed_by(key.public()), "{field}");
        }
    }

    #[test]
    fn what_a_checkpoint_says_of_other_chains_is_under_the_signature_too() {
        let key = Key::from_seed(&[7; 32]);
        let other = |seq| OtherHead {
            chain: "node-b".to_owned(),
            seq,
            hash: Hash::from_bytes([2; 32]),
            public_key: Key::from_seed(&[8; 32]).public().to_owned(),
        };
        let end = ("node-a", 9, Hash::from_bytes([1; 32]));
        let signed = Checkpoint::sign_over(&key, Kind::Periodic, end, String::new(), vec![other(4)]);
        assert_eq!(Checkpoint::from_json(&signed.to_json()).as_ref(), Some(&signed));
        assert!(signed.is_signed_by(key.public()));
        for heads in [vec![], vec![other(3)], vec![other(4), other(5)]] {
            let forged = Checkpoint {
                heads,
                ..signed.clone()
            };
            assert!(!forged.is_signed_by(key.public()));
        }
    }
}
