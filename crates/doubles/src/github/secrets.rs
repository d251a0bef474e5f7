//! Secrets as GitHub takes them: sealed by whoever writes them, for the key of the place they belong to.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crypto_box::SecretKey;
use crypto_box::aead::OsRng;

/// The secrets of a repository or of an environment, with the key that opens them.
pub(super) struct Safe {
    key: SecretKey,
    secrets: BTreeMap<String, (Vec<u8>, usize)>,
}

impl Default for Safe {
    fn default() -> Self {
        Self {
            key: SecretKey::generate(&mut OsRng),
            secrets: BTreeMap::new(),
        }
    }
}

/// How a secret was taken.
pub(super) enum Taken {
    Created,
    Updated,
    /// It is sealed for another key, or not at all.
    Refused(&'static str),
}

impl Safe {
    pub(super) fn public_key(&self) -> String {
        STANDARD.encode(self.key.public_key().as_bytes())
    }

    /// What names the key; changes with it.
    pub(super) fn key_id(&self) -> String {
        let bytes = self.key.public_key().as_bytes()[..8].try_into().unwrap();
        u64::from_be_bytes(bytes).to_string()
    }

    pub(super) fn take(&mut self, name: &str, sealed: &str, key_id: &str) -> Taken {
        if key_id != self.key_id() {
            return Taken::Refused("the key is not the current one");
        }
        let Ok(sealed) = STANDARD.decode(sealed) else {
            return Taken::Refused("the value is no base64");
        };
        let Ok(value) = self.key.unseal(&sealed) else {
            return Taken::Refused("the value is not sealed for this key");
        };
        // GitHub does not tell names apart by case.
        let known = self.secrets.entry(name.to_uppercase()).or_insert((Vec::new(), 0));
        *known = (value, known.1 + 1);
        if known.1 == 1 { Taken::Created } else { Taken::Updated }
    }

    pub(super) fn open(&self, name: &str) -> Option<Vec<u8>> {
        self.secrets.get(&name.to_uppercase()).map(|(value, _)| value.clone())
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.secrets.remove(&name.to_uppercase()).is_some()
    }

    pub(super) fn writes(&self, name: &str) -> usize {
        self.secrets.get(&name.to_uppercase()).map_or(0, |(_, writes)| *writes)
    }
}
