//! The homes of commands: one per workspace and user, kept between calls, and removed when nobody has used it
//! for as long as the record is kept.
//!
//! Whoever uses a home holds a lock on it, in whichever process, so that nobody removes it meanwhile.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use countersign_sandbox::emptying;
use rustix::fs::{FlockOperation, flock};

/// A home that is being used.
#[derive(Debug)]
pub(crate) struct Inhabited(File);

impl Inhabited {
    pub(crate) fn enter(home: &Path) -> io::Result<Self> {
        let directory = File::open(home)?;
        flock(&directory, FlockOperation::NonBlockingLockShared)?;
        directory.set_modified(SystemTime::now())?;
        Ok(Self(directory))
    }
}

impl Drop for Inhabited {
    fn drop(&mut self) {
        // From now on it has not been used.
        let _ = self.0.set_modified(SystemTime::now());
    }
}

/// Removes homes that nobody has used for this long; gives how many. Whatever else is there stays.
pub fn forget_homes(homes: &Path, unused_for: Duration) -> io::Result<usize> {
    let Some(before) = SystemTime::now().checked_sub(unused_for) else {
        return Ok(0);
    };
    let mut forgotten = 0;
    for entry in fs::read_dir(homes)?.flatten() {
        // Most are young, which one look tells; the second, under the lock, counts.
        let is_old = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|it| it.is_dir() && is_unused(&it, before));
        if entry.file_name().to_str().is_some_and(is_name_of_home) && is_old(&entry) {
            match forget(&entry.path(), before) {
                Ok(is_gone) => forgotten += usize::from(is_gone),
                Err(error) => tracing::debug!(%error, home = %entry.path().display(), "a home stays"),
            }
        }
    }
    Ok(forgotten)
}

fn forget(home: &Path, before: SystemTime) -> io::Result<bool> {
    let directory = File::open(home)?;
    let is_free = flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
    if !is_free || !is_unused(&directory.metadata()?, before) {
        return Ok(false);
    }
    emptying::remove(home)?;
    Ok(true)
}

fn is_unused(home: &Metadata, before: SystemTime) -> bool {
    home.modified().is_ok_and(|at| at < before)
}

/// As [`crate::pool`] names them: half a digest, and the user where it is not ours.
fn is_name_of_home(name: &str) -> bool {
    let (hash, user) = name.split_once('-').unwrap_or((name, "0"));
    hash.len() == 24 && hash.bytes().all(|it| it.is_ascii_hexdigit()) && user.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_goes_when_nobody_used_it_for_long_enough_and_not_while_somebody_does() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let (old, used, young) = ("a".repeat(24), "b".repeat(24), format!("{}-1000", "c".repeat(24)));
        let long_ago = SystemTime::now() - Duration::from_secs(3_600);
        for name in [&*old, &used, &young, "agents-65534", "something"] {
            fs::create_dir_all(at(name).join("a/b")).unwrap();
            fs::write(at(name).join("a/file"), "").unwrap();
        }
        let inhabited = Inhabited::enter(&at(&used)).unwrap();
        for name in [&*old, &used, "agents-65534", "something"] {
            File::open(at(name)).unwrap().set_modified(long_ago).unwrap();
        }
        let minute = Duration::from_secs(60);
        assert_eq!(forget_homes(base.path(), minute).unwrap(), 1);
        let is_there = |name: &str| at(name).exists();
        assert!(!is_there(&old) && is_there(&used) && is_there(&young));
        assert!(
            is_there("agents-65534") && is_there("something"),
            "these are no homes of commands"
        );
        // It was used until now.
        drop(inhabited);
        assert_eq!(forget_homes(base.path(), minute).unwrap(), 0);
        File::open(at(&used)).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(forget_homes(base.path(), minute).unwrap(), 1);
    }
}
