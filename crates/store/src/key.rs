//! The key that signs checkpoints (Ed25519), kept in the state directory as one line of text.
//!
//! Whoever can read it can sign; the file is for its owner only. A record is judged by the public
//! half, which travels with every checkpoint and export.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use countersign_gateway::audit::chain;

use crate::sqlite::site;
use crate::{Trouble, hex, once, random, seal};

pub const FILE_NAME: &str = "record-key";
/// Where a node of a database keeps what all of them share and the database must not know.
pub const NODES_FILE_NAME: &str = "nodes-key";

/// Signs checkpoints and exports.
pub struct Key {
    signing: SigningKey,
    public: String,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the signing key `{path}` cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("the signing key `{path}` cannot be created")]
    Create { path: PathBuf, source: io::Error },
    #[error(
        "the signing key `{path}` is gone, and the record here was written with it; put it back, or name another `--state-dir`"
    )]
    Gone { path: PathBuf },
    #[error("`{path}` does not hold a signing key")]
    Malformed { path: PathBuf },
}

/// Why a node cannot have what the nodes guard together.
#[derive(Debug, thiserror::Error)]
pub enum GuardedKeyError {
    #[error(
        "this node's `{NODES_FILE_NAME}` is not the one of node `{node}`; copy that file from there into this state \
         directory and start again"
    )]
    Other { node: String },
    #[error("whether this node has the others' `{NODES_FILE_NAME}` cannot be found out: {source}")]
    Compare { source: Trouble },
}

/// Takes the key's file from everybody but its owner, who is told that others may have read it.
fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        tracing::warn!(
            path = %path.display(), mode = %format_args!("{mode:o}"),
            "the signing key was open to others and is closed again; whoever read it can sign as this record does"
        );
    }
    Ok(())
}

impl Key {
    /// Reads the key, or makes one when the directory has none; not beside a record that another one wrote.
    pub fn load_or_create(directory: &Path) -> Result<Self, KeyError> {
        let path = directory.join(FILE_NAME);
        if Self::is_gone(directory) {
            return Err(KeyError::Gone { path });
        }
        Self::load_or(path, random::secret)
    }

    /// Whether a directory has a record and no longer the key that it was written with.
    pub fn is_gone(directory: &Path) -> bool {
        let is_there = directory.join(FILE_NAME).try_exists().unwrap_or(true);
        !is_there && (directory.join(seal::FILE_NAME).exists() || site::holds_rows(directory))
    }

    /// Whether a directory has another key than this one: it was replaced, and a new record begun in it.
    pub(crate) fn is_foreign_to(&self, directory: &Path) -> bool {
        let path = directory.join(FILE_NAME);
        let there = fs::read_to_string(&path)
            .ok()
            .and_then(|text| Self::parse(&text, &path).ok());
        there.is_some_and(|there| there.public != self.public)
    }

    /// What this record guards: a key that the nodes of a database share by a file, and that the database does not know.
    /// While nobody brings another, it is made of this one, so that a record which moves to a database keeps it.
    pub(crate) fn guarded(&self) -> Self {
        Self::from_seed(&self.derived("what nodes share and their database does not know"))
    }

    /// The seed of what every process of this record has and its clients carry: a record that moves to a database takes it
    /// along, so that what was signed before the move still counts.
    pub(crate) fn shared_seed(&self) -> [u8; 32] {
        self.derived("what nodes share and their database knows")
    }

    /// The same by the file of this node, which is made where there is none.
    pub(crate) fn guarded_by_file(&self, directory: &Path) -> Result<Self, KeyError> {
        Self::load_or(directory.join(NODES_FILE_NAME), || {
            Ok(self.guarded().signing.to_bytes())
        })
    }

    fn load_or(path: PathBuf, seed: impl FnOnce() -> io::Result<[u8; 32]>) -> Result<Self, KeyError> {
        match fs::read_to_string(&path) {
            Ok(text) => {
                close_to_others(&path).map_err(|source| KeyError::Read {
                    path: path.clone(),
                    source,
                })?;
                Self::parse(&text, &path)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let created = seed().and_then(|seed| once::write(&path, &hex::encode(&seed)));
                created.map_err(|source| KeyError::Create {
                    path: path.clone(),
                    source,
                })?;
                // Two processes may start at once: the file that stands now is the one to use.
                let text = fs::read_to_string(&path).map_err(|source| KeyError::Read {
                    path: path.clone(),
                    source,
                })?;
                Self::parse(&text, &path)
            }
            Err(source) => Err(KeyError::Read { path, source }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, KeyError> {
        let seed = hex::decode(text.trim()).ok_or_else(|| KeyError::Malformed { path: path.to_owned() })?;
        Ok(Self::from_seed(&seed))
    }

    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(seed);
        let public = hex::encode(signing.verifying_key().as_bytes());
        Self { signing, public }
    }

    /// The public half, in hexadecimal.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Another secret for another purpose, which leads neither back to this one nor to others.
    pub(crate) fn derived(&self, purpose: &str) -> [u8; 32] {
        let secret = hex::encode(self.signing.as_bytes());
        let digest = chain::digest(&serde_json::json!({"purpose": purpose, "secret": secret}));
        hex::decode(&digest).expect("a digest has 32 bytes")
    }

    pub(crate) fn sign(&self, message: &str) -> String {
        hex::encode(&self.signing.sign(message.as_bytes()).to_bytes())
    }
}

/// Says whether `public` signed the message.
pub(crate) fn is_signed(public: &str, message: &str, signature: &str) -> bool {
    let Some(key) = hex::decode(public).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok()) else {
        return false;
    };
    hex::decode(signature).is_some_and(|bytes| {
        key.verify_strict(message.as_bytes(), &Signature::from_bytes(&bytes))
            .is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let first = Key::load_or_create(dir.path()).unwrap();
        let again = Key::load_or_create(dir.path()).unwrap();
        assert_eq!(first.public(), again.public());
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        fs::set_permissions(dir.path().join(FILE_NAME), Permissions::from_mode(0o666)).unwrap();
        Key::load_or_create(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap();
        assert_eq!(
            mode.permissions().mode() & 0o777,
            0o600,
            "it is taken from others again"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_signature_holds_for_its_message_and_key_only() {
        let key = Key::from_seed(&[7; 32]);
        let signature = key.sign("message");
        assert!(is_signed(key.public(), "message", &signature));
        assert!(!is_signed(key.public(), "massage", &signature));
        let other = Key::from_seed(&[8; 32]);
        assert!(!is_signed(other.public(), "message", &signature));
        assert!(!is_signed("zz", "message", "zz"));
    }

    #[test]
    fn a_derived_secret_is_the_same_again_and_another_for_another_purpose() {
        let key = Key::from_seed(&[7; 32]);
        assert_eq!(key.derived("a"), Key::from_seed(&[7; 32]).derived("a"));
        assert_ne!(key.derived("a"), key.derived("b"));
        assert_ne!(key.derived("a"), Key::from_seed(&[8; 32]).derived("a"));
        assert_ne!(key.derived("a"), [7; 32]);
    }

    #[test]
    fn no_key_is_made_beside_a_record_that_another_one_sealed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(seal::FILE_NAME), "").unwrap();
        let refused = Key::load_or_create(dir.path());
        assert!(matches!(refused, Err(KeyError::Gone { .. })));
        assert!(!dir.path().join(FILE_NAME).exists());
    }

    #[test]
    fn a_damaged_key_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), "abc").unwrap();
        let refused = Key::load_or_create(dir.path());
        assert!(matches!(refused, Err(KeyError::Malformed { .. })));
    }
}
