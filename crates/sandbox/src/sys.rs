//! System calls that the standard library does not offer, each as a small function with ordinary types.
//! What runs between `clone` and `exec` lives in `keeper::child`; it must not use anything here that allocates.

pub(crate) mod ipc;
pub(crate) mod mounts;
pub(crate) mod process;
pub(crate) mod sockets;
pub(crate) mod watch;

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Turns the kernel's -1 into the error it stands for.
pub(crate) fn check<T: Into<i64> + Copy>(result: T) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// The error number of a failed call; `EIO` for an error that is not the kernel's.
pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// A path without links, so that nothing can be swapped in on the way.
pub(crate) const NO_LINKS: u64 = libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;

/// Opens a path with `openat2`, so that the way it may be resolved can be limited.
pub(crate) fn open_how(path: &std::ffi::CStr, flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let how = OpenHow {
        flags: (flags | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve,
    };
    // SAFETY: the path is NUL-terminated and `how` is a struct open_how of the size that is passed.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw const how,
            size_of::<OpenHow>(),
        )
    })?;
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Device and number of an opened file.
pub(crate) fn identity(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    // SAFETY: an all-zero stat is a valid value to be overwritten.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `found` is writable.
    check(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut found) })?;
    Ok((found.st_dev, found.st_ino))
}

/// Whether an opened directory has no entries; read from its start each time.
pub(crate) fn is_empty_directory(directory: BorrowedFd<'_>) -> io::Result<bool> {
    /// Length of an entry's fixed part and where it says its own length; its name follows.
    const NAME_AT: usize = 19;
    const LENGTH_AT: usize = 16;
    // SAFETY: takes integers only.
    check(unsafe { libc::lseek(directory.as_raw_fd(), 0, libc::SEEK_SET) })?;
    // Room for the two entries that are always there and one more of any name.
    let mut entries = [0u8; 512];
    loop {
        // SAFETY: the kernel writes whole entries, at most as many bytes as it is told.
        let length = check(unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                entries.as_mut_ptr(),
                entries.len(),
            )
        })? as usize;
        if length == 0 {
            return Ok(true);
        }
        let mut rest = &entries[..length];
        while rest.len() > NAME_AT {
            let name = rest[NAME_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
            if name != b"." && name != b".." {
                return Ok(false);
            }
            let step = usize::from(u16::from_ne_bytes([rest[LENGTH_AT], rest[LENGTH_AT + 1]]));
            rest = rest.get(step.max(1)..).unwrap_or_default();
        }
    }
}

/// Forbids others to read or trace this process; `false` allows it for a moment.
pub(crate) fn set_dumpable(dumpable: bool) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(dumpable), 0, 0, 0) }).map(drop)
}

/// The name shown by `ps`.
pub(crate) fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel copies at most 16 bytes of a NUL-terminated string. A failure changes nothing.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

pub(crate) fn set_no_new_privs() -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Whether the kernel schedules this process before all ordinary ones.
pub(crate) fn is_real_time() -> bool {
    // SAFETY: takes an integer only; zero is the caller.
    let policy = unsafe { libc::sched_getscheduler(0) };
    matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR)
}

pub(crate) fn set_child_subreaper() -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// Empties the capability bounding set and the ambient set of this process: what it executes, and what its
/// children execute, can never gain a capability again. Its own capabilities stay.
pub(crate) fn empty_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: takes integers only.
        let dropped = check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong, 0, 0, 0) });
        match dropped {
            Ok(_) => {}
            // Past the last capability this kernel knows.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }).map(drop)
}

/// Replaces the groups of this single-threaded process. The C library's functions would also do it for
/// other threads, of which there are none, by means that do not survive our kind of fork.
pub(crate) fn set_groups(gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and the count describe `groups`.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: takes integers only.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }).map(drop)
}

/// Becomes an ordinary user for good, with no capability left. Must be called by a process with one thread.
pub(crate) fn set_user(uid: u32) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// Moves this process into the cgroup whose list of processes was opened.
pub(crate) fn enter_cgroup(list: &std::fs::File) -> io::Result<()> {
    use std::io::Write;
    // Zero is whoever writes it.
    let mut list = list;
    list.write_all(b"0")
}

/// Makes reading and writing answer at once.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let yes: libc::c_int = 1;
    // SAFETY: reads one integer, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &raw const yes) }).map(drop)
}

/// Writes one byte and does not mind if nobody reads it.
pub(crate) fn write_byte(fd: RawFd, byte: u8) {
    // SAFETY: the pointer is to one byte that outlives the call.
    unsafe { libc::write(fd, (&raw const byte).cast(), 1) };
}

/// Lets no descriptor but the standard streams reach the next program.
pub(crate) fn close_on_exec_all() -> io::Result<()> {
    // SAFETY: takes integers only and closes nothing now.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) }).map(drop)
}

/// The most that a limit of this process can be set to.
pub(crate) fn hard_limit(resource: libc::__rlimit_resource_t) -> io::Result<u64> {
    let mut current = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `current` is a valid rlimit64 to write to.
    check(unsafe { libc::prlimit64(0, resource, std::ptr::null(), &raw mut current) })?;
    Ok(current.rlim_max)
}

/// Lowers a limit. A hard limit can be lowered by anybody and raised by nobody we want to be.
pub(crate) fn set_rlimit(resource: libc::__rlimit_resource_t, limit: u64) -> io::Result<()> {
    let limit = limit.min(hard_limit(resource)?);
    let wanted = libc::rlimit64 {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: `wanted` is a valid rlimit64 to read from.
    check(unsafe { libc::prlimit64(0, resource, &raw const wanted, std::ptr::null_mut()) }).map(drop)
}

/// Closes every descriptor from 3 on except these.
pub(crate) fn keep_only(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep
        .iter()
        .map(|fd| fd.as_raw_fd() as u32)
        .filter(|fd| *fd > 2)
        .collect();
    keep.sort_unstable();
    let mut from = 3u32;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if fd > from {
            // SAFETY: takes integers only. The caller owns the process: it has just been forked and uses
            // only the descriptors it names.
            check(unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) })?;
        }
        from = fd.saturating_add(1);
    }
    Ok(())
}

/// Puts `/dev/null` in the place of the three standard streams.
pub(crate) fn null_streams() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for stream in 0..3 {
        // SAFETY: takes integers only; the standard streams of a fresh fork belong to nobody.
        check(unsafe { libc::dup2(null.as_raw_fd(), stream) })?;
    }
    Ok(())
}

/// Overwrites the environment this process was started with, which a fork inherits with everything else.
pub(crate) fn forget_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: only called in the single-threaded zygote right after its fork; nothing holds a reference
    // into the environment, and every entry is a NUL-terminated string in writable memory.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = *entry;
            std::ptr::write_bytes(text, 0, libc::strlen(text));
            entry = entry.add(1);
        }
        libc::clearenv();
    }
}

/// Overwrites the words this process was started with: whoever sees a process reads them, and an address of a database in
/// them may hold a password.
pub(crate) fn forget_arguments() {
    let told = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(words) = place_of_arguments(&told) else {
        return;
    };
    // SAFETY: only called in the single-threaded zygote right after its fork. The kernel says that the words lie there,
    // in memory of this process that is writable; nothing reads them any more.
    unsafe { std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(words.start), 0, words.len()) };
}

/// Where the words are, by the numbers 48 and 49 that the kernel tells of a process. A name may have blanks and brackets
/// in it; what comes behind has none.
fn place_of_arguments(stat: &str) -> Option<Range<usize>> {
    const BEHIND_NAME: usize = 3;
    let (_, behind) = stat.rsplit_once(')')?;
    let mut numbers = behind.split_ascii_whitespace().skip(48 - BEHIND_NAME);
    let start: usize = numbers.next()?.parse().ok()?;
    let end: usize = numbers.next()?.parse().ok()?;
    (start != 0 && start < end).then_some(start..end)
}

pub(crate) fn effective_uid() -> u32 {
    // SAFETY: cannot fail and takes nothing.
    unsafe { libc::geteuid() }
}

pub(crate) fn effective_gid() -> u32 {
    // SAFETY: cannot fail and takes nothing.
    unsafe { libc::getegid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    #[test]
    fn an_empty_directory_is_told_from_one_with_entries() {
        let base = tempfile::tempdir().unwrap();
        let opened = File::open(base.path()).unwrap();
        let is_empty = || is_empty_directory(opened.as_fd()).unwrap();
        assert!(is_empty());
        for name in ["a", "...", "x".repeat(255).as_str()] {
            fs::write(base.path().join(name), "").unwrap();
            assert!(!is_empty(), "{name}");
            fs::remove_file(base.path().join(name)).unwrap();
            assert!(is_empty());
        }
    }
}
