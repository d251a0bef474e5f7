//! Removing what commands left in a directory of theirs.
//!
//! We may be root, and whoever the directory belongs to may be at work in it meanwhile: an agent, or the person whose
//! workspace it is. So nothing is reached by its path. A directory is opened without following links, and what is in it
//! is named from there; a link that took a directory's place is removed like a file.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::fs::{chmod, fstat, openat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

/// Names that are tried for one directory before it is given up: somebody makes them as fast as we look.
const TRIES_MAX: usize = 1_000;

/// Removes everything in a directory, also what was made unreadable. A directory's directories are lifted out of it
/// before it goes: a tree may be deeper than the stack, than a path may be long, and than files may be open.
pub fn empty(path: &Path) -> io::Result<()> {
    let found = openat(CWD, path, directory(OFlags::PATH), Mode::empty())?;
    let top = open_whole(&found)?;
    let mut waiting = Vec::new();
    for entry in Dir::read_from(&top)? {
        let entry = entry?;
        let name = entry.file_name();
        if !is_dots(name) && !remove_file(top.as_fd(), name)? {
            waiting.push(name.to_owned());
        }
    }
    let mut lifted = 0;
    while let Some(name) = waiting.pop() {
        let Some(opened) = enter(top.as_fd(), &name)? else {
            continue;
        };
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let child = entry.file_name();
            if is_dots(child) || remove_file(opened.as_fd(), child)? {
                continue;
            }
            // To be moved, a directory must be writable itself.
            if enter(opened.as_fd(), child)?.is_some() {
                waiting.extend(lift(opened.as_fd(), child, top.as_fd(), &mut lifted)?);
            }
        }
        match unlinkat(&top, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The same, with the directory itself.
pub fn remove(path: &Path) -> io::Result<()> {
    empty(path)?;
    std::fs::remove_dir(path)
}

/// The same for a directory that no link leads to, not even further up, and then for the one that it lies in, unless
/// something else does.
pub(crate) fn remove_unlinked(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let opened = crate::directory::open_unlinked(above)?;
    remove(
        &Path::new("/proc/self/fd")
            .join(opened.as_raw_fd().to_string())
            .join(name),
    )?;
    let (Some(around), Some(name)) = (above.parent(), above.file_name()) else {
        return Ok(());
    };
    let around = crate::directory::open_unlinked(around)?;
    match unlinkat(&around, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn directory(access: OFlags) -> OFlags {
    access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Whether it is the directory itself, or the one above.
fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// False where a directory is in the place.
fn remove_file(within: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    let found = match statat(within, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return Ok(false);
    }
    match unlinkat(within, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory that may be closed to its own user. None where it is none any more, and then nothing is there.
fn enter(within: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let found = match openat(within, name, directory(OFlags::PATH), Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            remove_file(within, name)?;
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    open_whole(&found).map(Some)
}

/// Opens the very directory that was found, whatever has its name by now, with all rights to it.
fn open_whole(found: &OwnedFd) -> io::Result<OwnedFd> {
    let rights = Mode::from_raw_mode(fstat(found)?.st_mode);
    if !rights.contains(Mode::RWXU) {
        chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)?;
    }
    Ok(openat(found, c".", directory(OFlags::RDONLY), Mode::empty())?)
}

/// Moves a directory to the top, under a name that is free; none where it has gone.
fn lift(from: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>, lifted: &mut u64) -> io::Result<Option<CString>> {
    for _ in 0..TRIES_MAX {
        let free = CString::new(format!("lifted-{lifted}")).map_err(io::Error::other)?;
        *lifted += 1;
        match renameat_with(from, name, top, &free, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Some(free)),
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("every name is taken as soon as it is looked for"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn whatever_a_command_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        fs::write(base.join("file"), "").unwrap();
        fs::create_dir_all(base.join("a/b/c/d")).unwrap();
        fs::create_dir_all(base.join("lifted-0/lifted-1")).unwrap();
        fs::write(base.join("a/b/file"), "").unwrap();
        symlink("/", base.join("a/root")).unwrap();
        for locked in ["a/b/c", "a/b", "lifted-0"] {
            fs::set_permissions(base.join(locked), fs::Permissions::from_mode(0o000)).unwrap();
        }
        fs::set_permissions(base, fs::Permissions::from_mode(0o100)).unwrap();
        empty(base).unwrap();
        assert_eq!(fs::read_dir(base).unwrap().count(), 0);
        assert!(Path::new("/usr").exists());
    }

    #[test]
    fn a_link_that_takes_a_directorys_place_leads_nowhere() {
        let (dir, precious) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(precious.path().join("inner")).unwrap();
        fs::write(precious.path().join("inner/file"), "kept").unwrap();
        fs::write(precious.path().join("file"), "kept").unwrap();
        fs::set_permissions(precious.path(), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(precious.path(), dir.path().join("link")).unwrap();
        for number in 0..60 {
            let path = dir.path().join(format!("d{number}"));
            fs::create_dir(&path).unwrap();
            (0..40).for_each(|file| fs::write(path.join(file.to_string()), "").unwrap());
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Swaps directories for links for as long as they are being removed.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for number in 0..60 {
                        let path = dir.path().join(format!("d{number}"));
                        if fs::rename(&path, dir.path().join(format!("moved{number}"))).is_ok() {
                            let _ = symlink(precious.path(), &path);
                        }
                    }
                }
            });
            for _ in 0..20 {
                let _ = empty(dir.path());
            }
            is_over.store(true, Ordering::Relaxed);
        });
        empty(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(precious.path().join("inner/file")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(precious.path().join("file")).unwrap(), "kept");
        let mode = fs::metadata(precious.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "its rights are as they were");
    }
}
