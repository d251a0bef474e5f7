//! Files that the operator trusts: `trusted.json` in the state directory, path and SHA-256 of each.
//!
//! The digest is compared with the bytes that are then read as configuration, so a file that changes
//! is untrusted again from that moment, and nothing can change in between.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use super::file;
use crate::start::BadUsage;

pub(crate) const FILE_NAME: &str = "trusted.json";

/// The files trusted at this moment.
#[derive(Default, Debug)]
pub(super) struct Trusted(BTreeMap<String, String>);

/// Trusts a file as it is now. The path and digest that were stored come back.
pub(crate) fn trust(state_dir: &Path, path: &Path) -> anyhow::Result<(PathBuf, String)> {
    let shown = path.display();
    let real = path
        .canonicalize()
        .map_err(|error| BadUsage(format!("`{shown}` cannot be trusted: {error}")))?;
    let bytes = match file::fetch(&real) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(BadUsage(format!("`{shown}` does not exist")).into()),
        Err(reason) => return Err(BadUsage(format!("`{shown}` {reason}")).into()),
    };
    let digest = sha256(&bytes);
    let unwritten = || format!("cannot write `{}`", state_dir.join(FILE_NAME).display());
    // Of two at once the second reads what the first has written.
    let _turn = take_turn(state_dir).with_context(unwritten)?;
    let mut trusted = Trusted::read(state_dir).map_err(anyhow::Error::msg)?;
    trusted.0.insert(real.to_string_lossy().into_owned(), digest.clone());
    trusted.write(state_dir).with_context(unwritten)?;
    Ok((real, digest))
}

/// Waits for others who change the list; they wait for us while the directory is held.
fn take_turn(state_dir: &Path) -> std::io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir)?;
    let directory = File::open(state_dir)?;
    // A file system that has no locks has one user at a time, as a rule.
    let _ = flock(&directory, FlockOperation::LockExclusive);
    Ok(directory)
}

impl Trusted {
    /// Nothing is trusted where there is no list.
    pub(super) fn read(state_dir: &Path) -> Result<Self, String> {
        let path = state_dir.join(FILE_NAME);
        let fault = |reason: &str| format!("`{}` {reason}", path.display());
        let Some(bytes) = file::fetch(&path).map_err(|reason| fault(&reason))? else {
            return Ok(Self::default());
        };
        // Whoever can write the list decides what is trusted, so it must be the operator alone.
        if std::fs::metadata(&path).is_ok_and(|facts| facts.mode() & 0o022 != 0) {
            return Err(fault("can be written by others; its mode must be 0600"));
        }
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|_| fault("is not a list of trusted files"))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn holds(&self, path: &Path, bytes: &[u8]) -> bool {
        let Ok(real) = path.canonicalize() else { return false };
        self.0
            .get(&*real.to_string_lossy())
            .is_some_and(|digest| *digest == sha256(bytes))
    }

    fn write(&self, state_dir: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(&self.0)?;
        let draft = state_dir.join(format!("{FILE_NAME}.{}", std::process::id()));
        let mut out = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&draft, state_dir.join(FILE_NAME))
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_moved_file_is_untrusted_again() {
        let dir = tempfile::tempdir().unwrap();
        let (state, path, other) = (
            dir.path().join("state"),
            dir.path().join("a.yaml"),
            dir.path().join("b.yaml"),
        );
        std::fs::write(&path, "quorum: 2\n").unwrap();
        std::fs::write(&other, "quorum: 2\n").unwrap();
        assert!(!Trusted::read(&state).unwrap().holds(&path, b"quorum: 2\n"));
        let (_, digest) = trust(&state, &path).unwrap();
        assert_eq!(digest.len(), 64);
        let trusted = Trusted::read(&state).unwrap();
        assert!(trusted.holds(&path, b"quorum: 2\n"));
        assert!(!trusted.holds(&path, b"quorum: 3\n"));
        assert!(!trusted.holds(&other, b"quorum: 2\n"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(FILE_NAME))), (0o700, 0o600));
    }

    #[test]
    fn of_many_that_are_trusted_at_once_none_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let paths: Vec<PathBuf> = (0..16).map(|n| dir.path().join(format!("{n}.yaml"))).collect();
        for path in &paths {
            std::fs::write(path, "quorum: 2\n").unwrap();
        }
        std::thread::scope(|scope| {
            for path in &paths {
                scope.spawn(|| trust(&state, path).unwrap());
            }
        });
        let trusted = Trusted::read(&state).unwrap();
        let forgotten: Vec<_> = paths
            .iter()
            .filter(|path| !trusted.holds(path, b"quorum: 2\n"))
            .collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
    }

    #[test]
    fn a_list_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join(FILE_NAME);
        std::fs::write(&list, "{}").unwrap();
        std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Trusted::read(dir.path()).is_err());
        std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Trusted::read(dir.path()).is_ok());
        std::fs::write(&list, "[1").unwrap();
        assert!(Trusted::read(dir.path()).is_err());
    }

    #[test]
    fn a_missing_file_cannot_be_trusted() {
        let dir = tempfile::tempdir().unwrap();
        assert!(trust(dir.path(), &dir.path().join("none.yaml")).is_err());
        assert!(trust(dir.path(), dir.path()).is_err());
    }
}
