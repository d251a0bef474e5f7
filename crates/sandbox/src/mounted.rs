//! What is mounted, as far as keepers care: a keeper sees what was mounted when it was made, and nothing since.

use std::fs::File;
use std::os::fd::AsFd;

use crate::sys::sockets;

/// Notices when something was mounted or unmounted where this process is.
#[derive(Debug)]
pub struct Mounted(Option<File>);

impl Mounted {
    /// From now on. Where the kernel does not tell, nothing is noticed.
    pub fn watch() -> Self {
        Self(File::open("/proc/self/mountinfo").ok())
    }

    /// Whether something was since the last time this was asked.
    pub fn has_changed(&self) -> bool {
        // The kernel raises this once for every descriptor of the table, until it was polled.
        self.0
            .as_ref()
            .is_some_and(|table| sockets::is_raised(table.as_fd(), libc::POLLPRI))
    }
}
