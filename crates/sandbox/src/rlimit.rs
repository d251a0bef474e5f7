//! Limits on single processes. Those that are the same for every launch are set on the keeper once and
//! inherited; CPU seconds, data size and open files belong to the child, because the keeper lives longer,
//! receives more descriptors and is itself no part of the command.

use std::fs;
use std::io;

use crate::profile::Limits;
use crate::sys;

/// Who counts processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessCount {
    /// A pids cgroup counts the tree exactly.
    Cgroup,
    /// The user namespace belongs to this keeper alone, so its user's processes are the tree.
    OwnUserNamespace,
    /// Only all processes of a user on this machine can be counted.
    SharedUser { uid: u32 },
}

/// The largest core file. With 0 the kernel still hands cores to a program, as root and outside of every sandbox, where the
/// machine has one for them; with 1 it does not, and no core is that small.
const CORE_BYTES: u64 = 1;

/// Sets what every launch of this keeper inherits.
pub(crate) fn set_inherited(limits: &Limits, count: ProcessCount) -> io::Result<()> {
    sys::set_rlimit(libc::RLIMIT_CORE, CORE_BYTES)?;
    if let Some(bytes) = limits.file_bytes {
        sys::set_rlimit(libc::RLIMIT_FSIZE, bytes)?;
    }
    let Some(pids) = limits.pids else {
        return Ok(());
    };
    match count {
        ProcessCount::Cgroup => Ok(()),
        // The keeper is one of them.
        ProcessCount::OwnUserNamespace => sys::set_rlimit(libc::RLIMIT_NPROC, u64::from(pids) + 1),
        ProcessCount::SharedUser { uid } => sys::set_rlimit(libc::RLIMIT_NPROC, threads_of(uid) + u64::from(pids)),
    }
}

/// How many threads a user has right now; the kernel counts threads, not processes.
fn threads_of(uid: u32) -> u64 {
    let statuses = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("status")).ok());
    statuses
        // The name in it need not be text.
        .map(|status| String::from_utf8_lossy(&status).into_owned())
        .filter(|status| field(status, "Uid:") == Some(u64::from(uid)))
        .filter_map(|status| field(&status, "Threads:"))
        .sum()
}

/// The first number after a name in a `status` file.
fn field(status: &str, name: &str) -> Option<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_file_is_read_by_field() {
        let status = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nThreads:\t7\n";
        assert_eq!(field(status, "Uid:"), Some(1000));
        assert_eq!(field(status, "Threads:"), Some(7));
        assert_eq!(field(status, "Gid:"), None);
    }

    #[test]
    fn our_own_threads_are_counted() {
        assert!(threads_of(sys::effective_uid()) >= 1);
    }
}
