//! Opening the directory a command will work in, so that the check and the use are about the same thing.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sys;

/// An opened directory and where it is.
#[derive(Debug)]
pub struct Directory {
    pub fd: OwnedFd,
    /// Canonical path of what was opened, as the kernel names it.
    pub path: PathBuf,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("directory `{}` does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("`{}` is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("cannot open directory `{}`", path.display())]
    Open { path: PathBuf, source: io::Error },
}

/// Which directory was at a path when somebody decided what may be done there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seen {
    pub path: PathBuf,
    device: u64,
    inode: u64,
}

impl Seen {
    /// The directory that was opened at a path.
    pub fn of(path: &Path, opened: BorrowedFd<'_>) -> io::Result<Seen> {
        let (device, inode) = sys::identity(opened)?;
        let path = path.to_owned();
        Ok(Seen { path, device, inode })
    }

    pub(crate) fn is(&self, opened: BorrowedFd<'_>) -> bool {
        sys::identity(opened).is_ok_and(|found| found == (self.device, self.inode))
    }
}

/// Opens a directory that no link leads to, not even further up, so that its name and its owner can be asked.
pub fn open_unlinked(path: &Path) -> io::Result<OwnedFd> {
    sys::open_how(&sys::c_path(path)?, libc::O_PATH | libc::O_DIRECTORY, sys::NO_LINKS)
}

/// Whether something is at a path that no link leads to, not even further up.
pub fn is_unlinked(path: &Path) -> bool {
    sys::c_path(path).is_ok_and(|path| sys::open_how(&path, libc::O_PATH, sys::NO_LINKS).is_ok())
}

/// Whether a link is on the way to a path, or at its end, whatever it leads to.
pub fn is_linked(path: &Path) -> bool {
    let opened = sys::c_path(path).and_then(|path| sys::open_how(&path, libc::O_PATH, sys::NO_LINKS));
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::ELOOP))
}

/// The canonical name of what a path leads to. The kernel goes the way once. The C library asks it for every part anew, by the
/// whole path, and takes seconds over links that a command has laid out for that.
pub fn real_name(path: &Path) -> io::Result<PathBuf> {
    open_named(path).map(|(_, name)| name)
}

/// Opens what a path leads to, so that its name can be asked, and asks.
pub(crate) fn open_named(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    let opened = OwnedFd::from(opened);
    let name = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    // What was removed meanwhile has no name any more, only this mark.
    if name.to_string_lossy().ends_with(" (deleted)") && !name.exists() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok((opened, name))
}

/// Whether a directory that was opened for reading has no entries.
pub fn is_empty(opened: BorrowedFd<'_>) -> io::Result<bool> {
    sys::is_empty_directory(opened)
}

/// Opens a directory, following links, and asks the kernel what was opened.
pub fn open(path: &Path) -> Result<Directory, DirectoryError> {
    if let Some(opened) = open_without_links(path) {
        return Ok(opened);
    }
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(path);
    let fd: OwnedFd = match opened {
        Ok(file) => file.into(),
        Err(error) => {
            let path = path.to_owned();
            return Err(match error.raw_os_error() {
                Some(libc::ENOENT) => DirectoryError::Missing { path },
                Some(libc::ENOTDIR) => DirectoryError::NotADirectory { path },
                _ => DirectoryError::Open { path, source: error },
            });
        }
    };
    let named = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    match named {
        // A directory removed after it was opened has no name any more, only this mark.
        Ok(named) if named.to_string_lossy().ends_with(" (deleted)") && !named.exists() => {
            Err(DirectoryError::Missing { path: path.to_owned() })
        }
        Ok(named) => Ok(Directory { fd, path: named }),
        Err(source) => Err(DirectoryError::Open {
            path: path.to_owned(),
            source,
        }),
    }
}

/// A path without links and dots is its own canonical name, so nobody needs to be asked for it. Whatever speaks
/// against that, also a kernel without `openat2`, is for the other way.
fn open_without_links(path: &Path) -> Option<Directory> {
    let plain = path.is_absolute() && path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
    let has_dots = path.components().any(|part| part == Component::ParentDir);
    if !plain || has_dots {
        return None;
    }
    let name = sys::c_path(path).ok()?;
    let fd = sys::open_how(&name, libc::O_PATH | libc::O_DIRECTORY, sys::NO_LINKS).ok()?;
    Some(Directory {
        fd,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_dots_are_resolved_to_what_was_opened() {
        let base = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(base.path()).unwrap();
        fs::create_dir(real.join("inside")).unwrap();
        std::os::unix::fs::symlink("inside", real.join("link")).unwrap();
        for way in [
            "inside",
            "link",
            "link/../link",
            "./inside",
            "inside/",
            "link/../inside",
        ] {
            assert_eq!(open(&real.join(way)).unwrap().path, real.join("inside"), "{way}");
        }
    }

    #[test]
    fn missing_directories_and_files_are_told_apart() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        assert!(matches!(
            open(&base.path().join("none")),
            Err(DirectoryError::Missing { .. })
        ));
        assert!(matches!(
            open(&base.path().join("file")),
            Err(DirectoryError::NotADirectory { .. })
        ));
    }
}
