//! Making, waiting for and signalling processes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::check;
use crate::launch::{Outcome, Usage};

/// Which side of a fork this is.
pub(crate) enum Side {
    Parent { child: i32 },
    Child,
}

/// Forks with namespace flags. The caller must be single-threaded: the C library learns nothing of it.
pub(crate) fn fork_into(namespaces: i32) -> io::Result<Side> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is a fork: the child has its own copy of everything. All pointers are
    // null, so the order of the last arguments, which differs by architecture, does not matter.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok(if pid == 0 {
        Side::Child
    } else {
        Side::Parent { child: pid as i32 }
    })
}

/// Forks a process that may have threads. The child must touch no lock but the allocator's.
pub(crate) fn fork_threaded() -> io::Result<Side> {
    // SAFETY: callers keep to allocation and system calls in the child; the C library's own fork makes
    // the allocator usable there.
    let pid = check(unsafe { libc::fork() })?;
    Ok(if pid == 0 {
        Side::Child
    } else {
        Side::Parent { child: pid as i32 }
    })
}

/// Waits for one child of ours and says how it ended; a signal counts as its own number.
pub(crate) fn exit_code_of(child: i32) -> io::Result<i32> {
    match wait_for(child, Patience::Block)? {
        Waited::Ended(ended) => Ok(match ended.outcome {
            Outcome::Code(code) => code,
            Outcome::Signal(signal) => signal,
        }),
        Waited::StillRunning | Waited::NoChildren => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

/// Moves this process, which must have one thread, into new namespaces.
pub(crate) fn unshare(namespaces: i32) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::unshare(namespaces) }).map(drop)
}

/// Ends this process without running anything that was registered for its end.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: never returns and takes an integer.
    unsafe { libc::_exit(code) }
}

pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: takes nothing.
    check(unsafe { libc::setsid() }).map(drop)
}

/// A child that has ended.
pub(crate) struct Ended {
    pub(crate) pid: i32,
    pub(crate) outcome: Outcome,
    pub(crate) usage: Usage,
}

/// The result of one wait.
pub(crate) enum Waited {
    Ended(Ended),
    /// There are children, none has ended.
    StillRunning,
    NoChildren,
}

/// Whether a wait may block.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    Block,
    Look,
}

/// Takes one ended child of any kind; `which` is a pid or -1 for all.
pub(crate) fn wait_for(which: i32, patience: Patience) -> io::Result<Waited> {
    let options = match patience {
        Patience::Block => libc::__WALL,
        Patience::Look => libc::__WALL | libc::WNOHANG,
    };
    loop {
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value to be overwritten.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both out-pointers are valid for writing.
        match check(unsafe { libc::wait4(which, &raw mut status, options, &raw mut used) }) {
            Ok(0) => return Ok(Waited::StillRunning),
            Ok(pid) => {
                let outcome = if libc::WIFSIGNALED(status) {
                    Outcome::Signal(libc::WTERMSIG(status))
                } else {
                    Outcome::Code(libc::WEXITSTATUS(status))
                };
                return Ok(Waited::Ended(Ended {
                    pid: pid as i32,
                    outcome,
                    usage: usage(&used),
                }));
            }
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                return Ok(Waited::NoChildren);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn usage(used: &libc::rusage) -> Usage {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Usage {
        user_us: micros(used.ru_utime),
        system_us: micros(used.ru_stime),
        memory_peak_bytes: used.ru_maxrss as u64 * 1024,
    }
}

/// Sends a signal; a process that is already gone is no failure.
pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: takes integers only.
    unsafe { libc::kill(pid, signal) };
}

/// Blocks every signal for good. The zygote and the keepers end by their sockets, not by signals that
/// reach a whole process group or cgroup.
pub(crate) fn block_signals() -> io::Result<()> {
    // SAFETY: an all-zero set is a valid value to be overwritten.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: reads a valid set and writes nothing.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) }).map(drop)
}

/// Gives the calling process the signal mask a program expects. Dispositions are already the default ones.
pub(crate) fn unblock_signals() {
    let none = 0u64;
    // SAFETY: reads eight bytes, the kernel's size of a signal set on 64-bit machines.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null_mut::<u64>(),
            8,
        )
    };
}

/// Waits for a signal, all of which are blocked. Its number where somebody sent it and wants it passed on: the end of a
/// child is for us, and what the kernel sends by itself it sends to whom it means.
pub(crate) fn next_signal() -> io::Result<Option<i32>> {
    // SAFETY: all-zero values are valid and overwritten.
    let (mut all, mut about): (libc::sigset_t, libc::siginfo_t) = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: reads a valid set and writes a valid siginfo.
    let number = check(unsafe { libc::sigwaitinfo(&raw const all, &raw mut about) })? as i32;
    Ok((number != libc::SIGCHLD && about.si_code <= libc::SI_USER).then_some(number))
}

/// Sets every disposition to the default, which children then inherit, except for the end of a child: that
/// gets a handler without content, because a default-ignored signal would not interrupt [`wait_ready`].
pub(crate) fn default_signals() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    for number in 1..=64 {
        // The kernel's struct sigaction: default handler, no flags, empty mask. Asked directly, because the
        // C library would keep two numbers for itself and programs would inherit how somebody left them.
        let default = [0u64; 4];
        // SAFETY: reads a valid struct; numbers that cannot be set (KILL, STOP) fail and stay as they are.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                8,
            )
        };
    }
    // SAFETY: an all-zero sigaction is valid, with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler does nothing and is always safe to run.
    check(unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) }).map(drop)
}

/// Waits until the descriptor can be read or a child has ended, whichever is first; true for the former.
/// Everything must be blocked by [`block_signals`], so that no end is missed between two calls.
pub(crate) fn wait_ready(fd: BorrowedFd<'_>) -> io::Result<bool> {
    wait_either(fd, None, None).map(|[is_ready, _]| is_ready)
}

/// The same for two descriptors, with what is true of each.
pub(crate) fn wait_either(
    fd: BorrowedFd<'_>,
    other: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<[bool; 2]> {
    // SAFETY: an all-zero set is a valid value to be overwritten.
    let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `mask` is a valid set.
    unsafe {
        libc::sigfillset(&raw mut mask);
        libc::sigdelset(&raw mut mask, libc::SIGCHLD);
    }
    // What has a negative number is passed over.
    let numbers = [fd.as_raw_fd(), other.map_or(-1, |other| other.as_raw_fd())];
    let mut polls = numbers.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    });
    // SAFETY: as many pollfds as are counted, a timeout that outlives the call or none, a valid mask.
    match check(unsafe {
        libc::ppoll(
            polls.as_mut_ptr(),
            polls.len() as u64,
            timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            &raw const mask,
        )
    }) {
        Ok(_) => Ok(polls.map(|poll| poll.revents != 0)),
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok([false; 2]),
        Err(error) => Err(error),
    }
}

/// Memory for the stack of a child that borrows our address space, with a page below it that traps.
pub(crate) struct Stack {
    base: *mut libc::c_void,
}

impl Stack {
    const BYTES: usize = 64 << 10;
    const GUARD_BYTES: usize = 4 << 10;

    pub(crate) fn new() -> io::Result<Stack> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Stack::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Stack { base };
        // SAFETY: the lowest page of the mapping we have just made.
        check(unsafe { libc::mprotect(base, Stack::GUARD_BYTES, libc::PROT_NONE) })?;
        Ok(stack)
    }

    /// Runs `entry` in a child that shares our memory while we are stopped, until it executes a program or
    /// exits. Returns its pid.
    ///
    /// # Safety
    ///
    /// `entry` must use nothing but system calls and memory reachable through `argument`, which must point
    /// at what it expects, and must end in an execution or an exit. The caller must be single-threaded.
    pub(crate) unsafe fn run_child(
        &mut self,
        entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
        argument: *mut libc::c_void,
    ) -> io::Result<i32> {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the stack grows down from the end of our mapping, which is aligned and used by nobody
        // else: `&mut self` excludes a second child. The rest is the caller's promise.
        let pid = unsafe { libc::clone(entry, self.base.add(Stack::BYTES), flags, argument) };
        check(pid).map(|pid| pid as i32)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no child runs on it any more.
        unsafe { libc::munmap(self.base, Stack::BYTES) };
    }
}
