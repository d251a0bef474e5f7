//! Makes secret values and keeps them sealed at rest, by keys of the record that nobody else has.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use countersign_gateway::tools::secrets::keeping::{SecretValue, Vault};
use crypto_box::aead::rand_core::RngCore as _;
use crypto_box::aead::{Aead as _, OsRng};
use crypto_box::{Nonce, SalsaBox, SecretKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const NONCE_BYTES: usize = 24;

/// The keys of a vault, each for one purpose.
#[derive(Clone, Copy)]
pub struct Keys {
    pub values: [u8; 32],
    pub digests: [u8; 32],
    pub sealing: [u8; 32],
}

/// A vault over keys that stay the same with the record.
pub struct RecordVault {
    keys: Keys,
}

impl RecordVault {
    pub fn new(keys: Keys) -> Self {
        Self { keys }
    }

    /// Sealed by this record, for this record.
    fn cipher(&self) -> SalsaBox {
        let own = SecretKey::from(self.keys.sealing);
        SalsaBox::new(&own.public_key(), &own)
    }
}

impl Vault for RecordVault {
    fn random(&self) -> Option<SecretValue> {
        let mut bits = [0; 32];
        OsRng.try_fill_bytes(&mut bits).ok()?;
        Some(SecretValue::new(URL_SAFE_NO_PAD.encode(bits)))
    }

    fn derived(&self, words: &[&str]) -> SecretValue {
        SecretValue::new(URL_SAFE_NO_PAD.encode(keyed(&self.keys.values, words)))
    }

    fn digest(&self, value: &SecretValue) -> String {
        URL_SAFE_NO_PAD.encode(keyed(&self.keys.digests, &[value.reveal()]))
    }

    fn seal(&self, id: &str, value: &SecretValue) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        OsRng.try_fill_bytes(&mut nonce).ok()?;
        // The id goes inside: what was sealed for one sync does not open for another.
        let plain = [id.as_bytes(), b"\n", value.reveal().as_bytes()].concat();
        let sealed = self
            .cipher()
            .encrypt(Nonce::from_slice(&nonce), plain.as_slice())
            .ok()?;
        Some([nonce.as_slice(), &sealed].concat())
    }

    fn open(&self, id: &str, sealed: &[u8]) -> Option<SecretValue> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_BYTES)?;
        let plain = self.cipher().decrypt(Nonce::from_slice(nonce), sealed).ok()?;
        let plain = String::from_utf8(plain).ok()?;
        let (sealed_for, value) = plain.split_once('\n')?;
        (sealed_for == id).then(|| SecretValue::new(value))
    }
}

/// Each word with its length before it, so that no two lists of words are one text.
fn keyed(key: &[u8; 32], words: &[&str]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is taken");
    for word in words {
        mac.update(&(word.len() as u64).to_be_bytes());
        mac.update(word.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(seed: u8) -> RecordVault {
        RecordVault::new(Keys {
            values: [seed; 32],
            digests: [seed + 1; 32],
            sealing: [seed + 2; 32],
        })
    }

    #[test]
    fn a_value_opens_for_its_own_sync_and_record_only() {
        let vault = vault(1);
        let value = vault.random().unwrap();
        let sealed = vault.seal("a", &value).unwrap();
        let seen = |part: &[u8]| sealed.windows(part.len()).any(|window| window == part);
        assert!(!seen(value.reveal().as_bytes()));
        assert_eq!(vault.open("a", &sealed), Some(value.clone()));
        assert_eq!(vault.open("b", &sealed), None);
        assert_eq!(self::vault(7).open("a", &sealed), None);
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(vault.open("a", &changed), None);
        assert_eq!(vault.open("a", &[]), None);
        assert_ne!(vault.seal("a", &value).unwrap(), sealed, "never sealed alike twice");
    }

    #[test]
    fn a_derived_value_is_the_same_again_and_another_for_other_words() {
        let vault = vault(1);
        assert_eq!(vault.derived(&["a", "bc"]), vault.derived(&["a", "bc"]));
        assert_ne!(vault.derived(&["a", "bc"]), vault.derived(&["ab", "c"]));
        assert_ne!(vault.derived(&["a"]), self::vault(7).derived(&["a"]));
        assert_eq!(vault.derived(&["a"]).reveal().len(), 43);
        assert_ne!(vault.random(), vault.random());
    }
}
