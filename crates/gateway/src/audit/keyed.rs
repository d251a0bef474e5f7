//! Digests by which a call is known again, and that say nothing of it to anybody else.
//!
//! The record hides secrets but tells the rest of a call. Whoever has that could try out what is hidden until a plain
//! digest fits; without the key nothing can be tried.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use super::chain::{self, Hash};

/// A secret that all processes of a record have, and that is told to nobody.
#[derive(Clone)]
pub struct DigestKey([u8; 32]);

impl DigestKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// HMAC-SHA-256 of the canonical form, in hexadecimal.
    pub fn digest(&self, value: &Value) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a MAC takes keys of any length");
        mac.update(chain::canonical(value).as_bytes());
        Hash::from_bytes(mac.finalize().into_bytes().into()).to_hex()
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_same_key_makes_the_same_digest() {
        let (key, value) = (DigestKey::new([1; 32]), json!({"b": 1, "a": "x"}));
        assert_eq!(
            key.digest(&value),
            DigestKey::new([1; 32]).digest(&json!({"a": "x", "b": 1}))
        );
        assert_ne!(key.digest(&value), key.digest(&json!({"a": "y", "b": 1})));
        assert_ne!(key.digest(&value), DigestKey::new([2; 32]).digest(&value));
        assert_ne!(key.digest(&value), chain::digest(&value));
        assert_eq!(format!("{key:?}"), "DigestKey(..)");
    }
}
