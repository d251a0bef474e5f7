//! The temporary directories of commands: one per keeper, in one per server, in one for all servers of a user, which no
//! command sees.
//!
//! They lie where others may write too, `/tmp` as a rule, and so may commands whose workspace it is. So nothing is made by
//! its path: directories are made in what was opened and looked at, and what somebody put in the place of one is refused
//! and never followed.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_sandbox::directory::{self, Seen};
use countersign_sandbox::{Identity, emptying};
use rustix::fs::{Mode, OFlags, fremovexattr, mkdirat, openat, removexattr};
use rustix::io::Errno;

/// Rights to what is its user's alone.
pub(crate) const PRIVATE: u32 = 0o700;
/// Commands of a root server run as another user, who must be able to pass through.
const PASSABLE: u32 = 0o711;
/// Where temporary directories are unless somebody says otherwise.
const USUAL: &str = "/tmp";
/// Names that are tried for the directory of a server. One may be left from another process of the same number.
const TRIES_MAX: usize = 100;
/// How long a directory may be, itself, for the next command to have it. A new one has four kilobytes as a rule.
const LOOKED_THROUGH_BYTES_MAX: u64 = 256 << 10;

/// Why a temporary directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TemporaryError {
    #[error("cannot make `{}`", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error(
        "`{}`, in which the temporary directories of commands are made, {why}; remove it, or name another directory in TMPDIR",
        path.display()
    )]
    NotOurs { path: PathBuf, why: &'static str },
    #[error(
        "`{}` was moved or replaced, so nothing is made in it; start the server anew",
        path.display()
    )]
    Replaced { path: PathBuf },
}

/// Where the temporary directories of one server are made.
#[derive(Clone, Debug)]
pub struct Temporaries(Arc<Own>);

#[derive(Debug)]
struct Own {
    /// The directory for all servers of the user.
    shared: PathBuf,
    shared_opened: OwnedFd,
    path: PathBuf,
    opened: OwnedFd,
    uid: u32,
}

impl Temporaries {
    /// Makes a directory for this server, in the one for all servers of its user, which is made where it is missing.
    pub fn make(base: &Path, uid: u32) -> Result<Self, TemporaryError> {
        let shared = shared_in(base, uid);
        let opened = directory::open_unlinked(base).map_err(|source| not_made(base, source))?;
        for attempt in 0..TRIES_MAX {
            let around = open_shared(&opened, &shared, uid)?;
            let name = format!("{}-{attempt}", std::process::id());
            let path = shared.join(&name);
            match mkdirat(&around, &name, Mode::from_raw_mode(PRIVATE)) {
                Ok(()) => {}
                // The last server that used the shared one may just have removed it.
                Err(Errno::EXIST | Errno::NOENT) => continue,
                Err(error) => return Err(not_made(&path, error.into())),
            }
            let opened = openat(&around, &name, directory_flags(), Mode::empty());
            let opened = opened.map_err(|error| not_made(&path, error.into()))?;
            set_rights(&opened, rights(uid)).map_err(|source| not_made(&path, source))?;
            return Ok(Self(Arc::new(Own {
                shared,
                shared_opened: around,
                path,
                opened,
                uid,
            })));
        }
        Err(not_made(&shared, io::ErrorKind::AlreadyExists.into()))
    }

    /// The directory of this server.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What no command sees: the directory for all servers of the user, also of those that make theirs where it is usual.
    pub(crate) fn shared(&self) -> Vec<PathBuf> {
        let usual = fs::canonicalize(USUAL).unwrap_or_else(|_| USUAL.into());
        let mut all = vec![self.0.shared.clone(), shared_in(&usual, self.0.uid)];
        all.dedup();
        all
    }

    /// Makes a directory and gives it to its user.
    pub(crate) fn add(&self, name: String, identity: Option<&Identity>) -> Result<Temporary, TemporaryError> {
        // Commands of the same user may have taken our own rights away.
        for opened in [&self.0.shared_opened, &self.0.opened] {
            set_rights(opened, rights(self.0.uid)).map_err(|source| not_made(&self.0.path, source))?;
        }
        let path = self.0.path.join(&name);
        match mkdirat(&self.0.opened, &name, Mode::from_raw_mode(PRIVATE)) {
            Ok(()) => {}
            // Ours was removed.
            Err(Errno::NOENT) => return Err(self.replaced()),
            Err(error) => return Err(not_made(&path, error.into())),
        }
        let opened = openat(&self.0.opened, &name, directory_flags(), Mode::empty());
        let opened: File = opened.map_err(|error| not_made(&path, error.into()))?.into();
        let made = Temporary {
            path,
            name,
            opened,
            within: self.clone(),
        };
        if !made.is_at_its_path() {
            return Err(self.replaced());
        }
        if let Some(identity) = identity {
            let given = std::os::unix::fs::fchown(&made.opened, Some(identity.uid), Some(identity.gid));
            given.map_err(|source| not_made(&made.path, source))?;
        }
        Ok(made)
    }

    fn replaced(&self) -> TemporaryError {
        let path = self.0.path.clone();
        TemporaryError::Replaced { path }
    }

    /// A path to something in it, whatever has its own path by now.
    fn within(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.0.opened.as_raw_fd()).into()
    }
}

/// The temporary directory of one keeper. It goes with it, and with one that could not be made.
#[derive(Debug)]
pub(crate) struct Temporary {
    pub(crate) path: PathBuf,
    name: String,
    /// After each call it is looked into.
    opened: File,
    within: Temporaries,
}

impl Temporary {
    /// Which directory it is.
    pub(crate) fn seen(&self) -> io::Result<Seen> {
        Seen::of(&self.path, self.opened.as_fd())
    }

    /// Paths are what is mounted, covered and told to commands.
    fn is_at_its_path(&self) -> bool {
        let found = directory::open_unlinked(&self.path).and_then(|found| Seen::of(&self.path, found.as_fd()));
        matches!((self.seen(), found), (Ok(own), Ok(found)) if own == found)
    }

    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        directory::is_empty(self.opened.as_fd())
    }

    /// Removes what a command left.
    pub(crate) fn empty(&self) -> io::Result<()> {
        emptying::empty(&self.within.within(&self.name))
    }

    /// Its rights are those that it was made with, whatever a command made of them. One that held very many files stays long, and
    /// whoever looks into it goes through all of it: it is not used again.
    pub(crate) fn restore(&self) -> io::Result<()> {
        remove_default_rights(&self.opened)?;
        let found = self.opened.metadata()?;
        if found.len() > LOOKED_THROUGH_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if found.permissions().mode() & 0o7777 == PRIVATE {
            return Ok(());
        }
        self.opened.set_permissions(fs::Permissions::from_mode(PRIVATE))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = emptying::remove(&self.within.within(&self.name));
    }
}

fn shared_in(base: &Path, uid: u32) -> PathBuf {
    base.join(format!("countersign-{uid}"))
}

fn rights(uid: u32) -> u32 {
    if uid == 0 { PASSABLE } else { PRIVATE }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens the directory for all servers of a user, if it is one and theirs.
fn open_shared(base: &OwnedFd, path: &Path, uid: u32) -> Result<OwnedFd, TemporaryError> {
    let not_ours = |why| TemporaryError::NotOurs {
        path: path.to_owned(),
        why,
    };
    let name = path.file_name().unwrap_or_default();
    match mkdirat(base, name, Mode::from_raw_mode(PRIVATE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(not_made(path, error.into())),
    }
    let failed = |error| match error {
        Errno::LOOP | Errno::NOTDIR => not_ours("is a link or a file"),
        Errno::ACCESS => not_ours("belongs to another user"),
        error => not_made(path, error.into()),
    };
    let open = |how: OFlags| openat(base, name, directory_flags() | how, Mode::empty()).map(File::from);
    let opened = match open(OFlags::empty()) {
        Err(Errno::ACCESS) => {
            let seen = open(OFlags::PATH).map_err(failed)?;
            take_rights_back(&seen, uid);
            open(OFlags::empty()).map_err(failed)?
        }
        opened => opened.map_err(failed)?,
    };
    let found = opened.metadata().map_err(|source| not_made(path, source))?;
    if found.uid() != uid {
        return Err(not_ours("belongs to another user"));
    }
    let opened = OwnedFd::from(opened);
    set_rights(&opened, rights(uid)).map_err(|source| not_made(path, source))?;
    Ok(opened)
}

/// A command of the same user may have closed it to us too. What it comes to shows when it is opened.
fn take_rights_back(seen: &File, uid: u32) {
    if seen.metadata().is_ok_and(|found| found.uid() == uid) {
        let itself = format!("/proc/self/fd/{}", seen.as_raw_fd());
        let _ = fs::set_permissions(itself, fs::Permissions::from_mode(rights(uid)));
    }
}

/// The umask may have taken away what another user needs, and somebody may have given others more, or less to what is made in it.
fn set_rights(opened: &OwnedFd, rights: u32) -> io::Result<()> {
    remove_default_rights(opened)?;
    Ok(rustix::fs::fchmod(opened, Mode::from_raw_mode(rights))?)
}

/// What is made in a directory has the rights that this says, and not those that it is made with.
fn remove_default_rights(opened: impl AsFd) -> io::Result<()> {
    removed(fremovexattr(opened, DEFAULT_RIGHTS))
}

/// The same at a path.
pub(crate) fn remove_default_rights_at(path: &Path) -> io::Result<()> {
    removed(removexattr(path, DEFAULT_RIGHTS))
}

const DEFAULT_RIGHTS: &str = "system.posix_acl_default";

fn removed(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn not_made(path: &Path, source: io::Error) -> TemporaryError {
    TemporaryError::Make {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn own_uid() -> u32 {
        fs::metadata("/proc/self").unwrap().uid()
    }

    fn make(base: &Path) -> Result<Temporaries, TemporaryError> {
        Temporaries::make(&fs::canonicalize(base).unwrap(), own_uid())
    }

    #[test]
    fn servers_of_a_user_share_one_directory_that_is_theirs_alone() {
        let base = tempfile::tempdir().unwrap();
        let (first, second) = (make(base.path()).unwrap(), make(base.path()).unwrap());
        assert_eq!(first.path().parent(), second.path().parent());
        assert_ne!(first.path(), second.path());
        let shared = first.path().parent().unwrap();
        assert!(first.shared().iter().any(|it| it == shared));
        // Given to others meanwhile.
        fs::set_permissions(shared, fs::Permissions::from_mode(0o777)).unwrap();
        make(base.path()).unwrap();
        let mode = fs::metadata(shared).unwrap().mode() & 0o777;
        assert_eq!(mode, rights(own_uid()));
    }

    #[test]
    fn what_is_not_a_directory_of_the_user_is_not_shared() {
        let base = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let shared = shared_in(base.path(), own_uid());
        let refused = |expected: &str| {
            let error = make(base.path()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("TMPDIR"), "{error}");
        };
        symlink(elsewhere.path(), &shared).unwrap();
        refused("is a link or a file");
        fs::remove_file(&shared).unwrap();
        fs::write(&shared, "").unwrap();
        refused("is a link or a file");
        fs::remove_file(&shared).unwrap();
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        if own_uid() == 0 {
            fs::create_dir(&shared).unwrap();
            std::os::unix::fs::chown(&shared, Some(1234), None).unwrap();
            refused("belongs to another user");
        }
    }

    #[test]
    fn a_replaced_directory_is_noticed_and_never_followed() {
        let base = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let server = make(base.path()).unwrap();
        let kept = server.add("tmp-0".to_owned(), None).unwrap();
        fs::write(kept.path.join("file"), "").unwrap();
        let shared = server.path().parent().unwrap();
        // Another server has the same names there.
        let same = elsewhere.path().join(server.path().file_name().unwrap());
        fs::create_dir_all(same.join("tmp-0/theirs")).unwrap();
        let count = || fs::read_dir(&same).unwrap().count();
        fs::rename(shared, base.path().join("aside")).unwrap();
        for link in [true, false] {
            match link {
                true => symlink(elsewhere.path(), shared).unwrap(),
                false => fs::create_dir_all(server.path()).unwrap(),
            }
            let refused = server.add("tmp-1".to_owned(), None);
            assert!(matches!(refused, Err(TemporaryError::Replaced { .. })), "{refused:?}");
            match link {
                true => fs::remove_file(shared).unwrap(),
                false => assert_eq!(fs::read_dir(server.path()).unwrap().count(), 0),
            }
        }
        fs::remove_dir_all(shared).unwrap();
        symlink(elsewhere.path(), shared).unwrap();
        drop(kept);
        assert_eq!(count(), 1);
        assert!(same.join("tmp-0/theirs").exists());
        let aside = base.path().join("aside").join(server.path().file_name().unwrap());
        assert_eq!(fs::read_dir(&aside).unwrap().count(), 0, "what was made in it is gone");
        fs::remove_dir(&aside).unwrap();
        let gone = server.add("tmp-2".to_owned(), None);
        assert!(matches!(gone, Err(TemporaryError::Replaced { .. })), "{gone:?}");
    }
}
