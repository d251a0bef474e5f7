//! The homes of commands: one per workspace and user, kept between calls, and removed when nobody has used it
//! for as long as the record is kept.
//!
//! Whoever uses a home holds a lock on it, in whichever process, so that nobody removes it meanwhile.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use countersign_sandbox::emptying;
use rustix::fs::{FlockOperation, flock};

/// How often a home that somebody else removes is waited for, and for how long each time. Whoever else may lock it
/// cannot keep us longer.
const TRIES_MAX: usize = 100;
const RETRY: Duration = Duration::from_millis(10);
/// Behind the name of a home that is being removed.
const LEAVING: &str = "leaving";

/// A home that is being used.
#[derive(Debug)]
pub(crate) struct Inhabited(File);

impl Inhabited {
    /// Enters a home, which `make` makes where there is none. Somebody may be removing it just then, and what was locked
    /// behind that is a home no more; so it is entered once the very directory that is locked has the name.
    pub(crate) fn enter<E>(home: &Path, make: impl Fn() -> Result<(), E>) -> Result<Option<Self>, E> {
        for _ in 0..TRIES_MAX {
            make()?;
            match Self::lock(home) {
                Ok(inhabited) if inhabited.is_at(home) => return Ok(Some(inhabited)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(RETRY),
                // It cannot be looked at, so nobody can remove it either.
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    fn lock(home: &Path) -> io::Result<Self> {
        let directory = File::open(home)?;
        flock(&directory, FlockOperation::NonBlockingLockShared)?;
        directory.set_modified(SystemTime::now())?;
        Ok(Self(directory))
    }

    fn is_at(&self, home: &Path) -> bool {
        let place = |it: Metadata| (it.dev(), it.ino());
        match (self.0.metadata(), fs::symlink_metadata(home)) {
            (Ok(locked), Ok(found)) => place(locked) == place(found),
            (Err(_), _) | (_, Err(_)) => false,
        }
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
        if is_left(&entry.path()) {
            // Somebody was stopped while it went, or still removes it.
            let _ = emptying::remove(&entry.path());
        } else if entry.file_name().to_str().is_some_and(is_name_of_home) && is_old(&entry) {
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
    // Emptying may take long, and whoever wants a home meanwhile makes a new one.
    let aside = home.with_extension(LEAVING);
    fs::rename(home, &aside)?;
    emptying::remove(&aside)?;
    Ok(true)
}

/// A home that was put aside to be removed.
fn is_left(path: &Path) -> bool {
    let home = path.file_stem().and_then(OsStr::to_str);
    path.extension().is_some_and(|it| it == LEAVING) && home.is_some_and(is_name_of_home)
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

    fn enter(home: &Path) -> Option<Inhabited> {
        let make = || match fs::create_dir(home) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        Inhabited::enter(home, make).unwrap()
    }

    #[test]
    fn a_home_that_is_just_being_removed_is_not_moved_into() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("a".repeat(24));
        fs::create_dir(&home).unwrap();
        let removing = File::open(&home).unwrap();
        flock(&removing, FlockOperation::NonBlockingLockExclusive).unwrap();
        let inhabited = std::thread::scope(|scope| {
            let entering = scope.spawn(|| enter(&home));
            // It goes before its lock does, as when it is forgotten.
            fs::remove_dir(&home).unwrap();
            drop(removing);
            entering.join().unwrap()
        });
        assert!(inhabited.as_ref().is_some_and(|inhabited| inhabited.is_at(&home)));
        let other = File::open(&home).unwrap();
        assert!(
            flock(&other, FlockOperation::NonBlockingLockExclusive).is_err(),
            "it is held"
        );
    }

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
        let inhabited = enter(&at(&used)).unwrap();
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
        // Somebody was stopped while another went.
        fs::create_dir_all(at(&old).with_extension(LEAVING).join("a")).unwrap();
        assert_eq!(forget_homes(base.path(), minute).unwrap(), 0);
        assert!(!at(&old).with_extension(LEAVING).exists());
        File::open(at(&used)).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(forget_homes(base.path(), minute).unwrap(), 1);
    }
}
