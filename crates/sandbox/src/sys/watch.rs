//! Being told when a name comes into being in a directory.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::check;

/// Directories that are watched. Users have a number of these; who gets none looks afterwards instead.
pub(crate) struct Watch(OwnedFd);

impl Watch {
    pub(crate) fn new() -> io::Result<Watch> {
        // SAFETY: no memory is involved.
        let fd = check(unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
        Ok(Watch(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// From here on the descriptor can be read when something is made in this directory or moved into it.
    pub(crate) fn add(&self, directory: &CStr) -> io::Result<()> {
        let mask = libc::IN_CREATE | libc::IN_MOVED_TO | libc::IN_ONLYDIR;
        // SAFETY: the path is NUL-terminated.
        check(unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), directory.as_ptr(), mask) }).map(drop)
    }

    /// Forgets what was told so far.
    pub(crate) fn drain(&self) {
        let mut told = [0_u8; 4096];
        // SAFETY: the kernel writes no more than the length that is passed.
        while unsafe { libc::read(self.0.as_raw_fd(), told.as_mut_ptr().cast(), told.len()) } > 0 {}
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
