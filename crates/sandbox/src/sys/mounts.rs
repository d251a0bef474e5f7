//! Mounting, for a process that already has a mount namespace of its own.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use super::{c_path, check};

/// Attributes as `mount_setattr` takes them: it adds to what a mount already has, and so never trips over
/// flags that are locked in a user namespace.
pub(crate) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub(crate) const NO_EXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    // SAFETY: all strings are NUL-terminated and outlive the call; null is allowed for the absent ones.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.map_or(std::ptr::null(), CStr::as_ptr),
            flags,
            data.map_or(std::ptr::null(), |data| data.as_ptr().cast()),
        )
    })
    .map(drop)
}

/// Stops mounts of this namespace from reaching any other one, and the reverse.
pub(crate) fn make_private() -> io::Result<()> {
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)
}

/// A `/proc` that shows the pid namespace of this process.
pub(crate) fn fresh_proc() -> io::Result<()> {
    mount(
        c"proc",
        c"/proc",
        Some(c"proc"),
        libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
        None,
    )
}

/// Makes `path` a mount point of what it already is. A mount point can be neither renamed nor removed.
pub(crate) fn pin(path: &Path) -> io::Result<()> {
    bind(path, path)
}

pub(crate) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(
        &c_path(source)?,
        &c_path(target)?,
        None,
        libc::MS_BIND | libc::MS_REC,
        None,
    )
}

/// An empty memory file system.
pub(crate) fn tmpfs(target: &Path, options: &CStr) -> io::Result<()> {
    mount(
        c"tmpfs",
        &c_path(target)?,
        Some(c"tmpfs"),
        libc::MS_NOSUID | libc::MS_NODEV,
        Some(options),
    )
}

/// Adds attributes to the mount at `path` and to every mount below it.
pub(crate) fn add_attributes(path: &Path, attributes: u64) -> io::Result<()> {
    let path = c_path(path)?;
    let change = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is NUL-terminated and `change` is a struct mount_attr of the size that is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// The number of the mount by which something was opened, as the table of mounts has it.
pub(crate) fn mount_id(opened: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: an all-zero statx is a valid value to be overwritten.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, wanted) = (libc::AT_EMPTY_PATH, libc::STATX_MNT_ID);
    // SAFETY: the descriptor is open, the path is NUL-terminated and `found` is writable.
    check(unsafe { libc::statx(opened.as_raw_fd(), c"".as_ptr(), flags, wanted, &raw mut found) })?;
    Ok(found.stx_mnt_id)
}

/// What a path is to this namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    Absent,
    /// The device and number of the file that is there.
    Present(u32, u32, u64),
    MountPoint(u32, u32, u64),
}

impl Presence {
    /// Device and number of the file that is there.
    pub(crate) fn file(self) -> Option<(u64, u64)> {
        match self {
            Presence::Absent => None,
            Presence::Present(major, minor, inode) | Presence::MountPoint(major, minor, inode) => {
                Some((libc::makedev(major, minor), inode))
            }
        }
    }
}

/// Looks which file is at `path` and whether it is mounted there.
pub(crate) fn presence(path: &CStr) -> Presence {
    // SAFETY: an all-zero statx is a valid value to be overwritten.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, wanted) = (libc::AT_SYMLINK_NOFOLLOW, libc::STATX_TYPE | libc::STATX_INO);
    // SAFETY: the path is NUL-terminated and `found` is writable.
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, wanted, &raw mut found) };
    let (major, minor, inode) = (found.stx_dev_major, found.stx_dev_minor, found.stx_ino);
    if result != 0 {
        Presence::Absent
    } else if found.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0 {
        Presence::MountPoint(major, minor, inode)
    } else {
        Presence::Present(major, minor, inode)
    }
}
