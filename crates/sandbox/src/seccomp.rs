//! The system call filter: a deny list, because commands are ordinary programs and an allow list would have
//! to name nearly everything. It carries what Landlock cannot: sockets, namespaces, tracing, kernel doors.
//!
//! The program is a binary search over call numbers, written here by hand. A generated chain of comparisons
//! would be about as long for the kernel to walk when it prepares its cache of always-allowed calls, and the
//! usual generator knows neither two different errors in one filter nor the x32 calls, which are the same
//! doors under other numbers.

mod program;
mod table;

use std::io;

use crate::profile::{Network, Profile};
use crate::sys::check;

/// What the filter depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) network: Network,
    /// Programs in anonymous memory would pass by the list of programs.
    pub(crate) refuse_memory_files: bool,
    /// Without namespaces the user's other programs are in reach: queues, semaphores and shared memory are shared with
    /// them, and whoever knows a process may change how it is scheduled.
    pub(crate) beside_others: bool,
}

impl Options {
    pub(crate) fn of(profile: &Profile, has_namespaces: bool) -> Options {
        Options {
            network: profile.network,
            refuse_memory_files: profile.exec_list,
            beside_others: !has_namespaces,
        }
    }
}

/// Installs the filter on this process and its future children. Needs no-new-privs.
pub(crate) fn install(options: Options) -> io::Result<()> {
    let mut program = program::assemble(&table::rules(options));
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` points at `length` instructions that outlive the call; the kernel checks and copies them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) }).map(drop)
}

/// Whether this kernel has filters at all.
pub(crate) fn available() -> bool {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: reads one u32.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}
