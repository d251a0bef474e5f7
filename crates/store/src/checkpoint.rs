//! A checkpoint: the signed statement that the chain had this hash at this place.
//!
//! Checkpoints are what a changed record cannot follow: whoever rewrites rows can link them again,
//! but not sign. Sent to a witness, they also outlive the owner of the state directory.

use countersign_gateway::audit::chain::{self, Hash};
use serde_json::{Value, json};

use crate::key::{self, Key};

/// Rows between two checkpoints, at most.
pub const EVERY_ROWS: u64 = 1_000;

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
    pub signature: String,
}

impl Checkpoint {
    pub fn sign(key: &Key, kind: Kind, chain: &str, seq: u64, hash: Hash, timestamp: String) -> Self {
        let mut checkpoint = Self {
            chain: chain.to_owned(),
            seq,
            hash,
            timestamp,
            kind,
            public_key: key.public().to_owned(),
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
            signature: text("signature")?,
        })
    }

    fn unsigned(&self) -> Value {
        json!({
            "chain": self.chain, "seq": self.seq, "hash": self.hash.to_hex(),
            "timestamp": self.timestamp, "kind": self.kind.as_str(), "public_key": self.public_key,
        })
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
}
