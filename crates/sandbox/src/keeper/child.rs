//! What happens between the start of a child and its program: system calls only.
//!
//! For an execution the child borrows the keeper's memory while the keeper stands still, so nothing here may
//! allocate, lock or panic, and failures are left in the plan, where the keeper finds them. The same steps
//! serve a forked runner.
//!
//! The order matters. The session and the streams come first; the user goes before the directory, so that
//! entering it is checked with the command's rights; capabilities go after the user and before Landlock; the
//! gate is last, so that everything else is done while the server still writes its record.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::RawFd;

use crate::launch::{Step, Unchanged};
use crate::program::Identity;
use crate::wire;

/// Everything a child needs, prepared by the keeper.
pub(super) struct Plan<'a> {
    pub(super) streams: [RawFd; 3],
    pub(super) directory: RawFd,
    /// Read for one byte before anything runs; -1 when the gate is already open.
    pub(super) gate: RawFd,
    /// -1 for none.
    pub(super) ruleset: RawFd,
    pub(super) uid: Option<u32>,
    pub(super) drops_capabilities: bool,
    pub(super) cpu_seconds: Option<u64>,
    pub(super) data_bytes: Option<u64>,
    pub(super) open_files: u64,
    /// Without a pid namespace the death of the keeper would not be the death of its child; then its number.
    pub(super) dies_with: Option<i32>,
    pub(super) program: RawFd,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    /// None where no program is executed.
    pub(super) unchanged: Option<&'a Unchanged>,
    pub(super) note: Note,
}

/// What a child leaves for its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// Nothing went wrong: the program runs.
    Running,
    Aborted,
    Failed {
        step: Step,
        errno: i32,
    },
}

type Failure = (Step, i32);

/// A system call that names the step it belongs to.
macro_rules! act {
    ($step:expr, $($call:tt)+) => {{
        // SAFETY: a raw system call on integers and on pointers into the plan, which outlives the child's
        // use of it; no memory of ours changes but what the call is documented to write.
        let result = unsafe { libc::syscall($($call)+) };
        if result == -1 {
            // SAFETY: the thread's own error number.
            return Err(($step, unsafe { *libc::__errno_location() }));
        }
        result
    }};
}

/// Entry of a child that executes a program.
pub(super) extern "C" fn execute(plan: *mut c_void) -> c_int {
    // SAFETY: `Stack::run_child` is given a pointer to a plan, whose owner is stopped until we exec or exit.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let note = match confine(plan) {
        Err((step, errno)) => Note::Failed { step, errno },
        Ok(()) if !pass_gate(plan.gate) => Note::Aborted,
        Ok(()) => match exec(plan) {
            Err((step, errno)) => Note::Failed { step, errno },
            Ok(()) => Note::Running,
        },
    };
    // SAFETY: the compiler must not think that nobody reads this after `_exit`.
    unsafe { std::ptr::write_volatile(&raw mut plan.note, note) };
    // SAFETY: ends this process only.
    unsafe { libc::_exit(127) }
}

/// Confines the calling process as planned.
pub(super) fn confine(plan: &Plan<'_>) -> Result<(), Failure> {
    act!(Step::Session, libc::SYS_setsid);
    for (target, stream) in plan.streams.iter().enumerate() {
        act!(Step::Streams, libc::SYS_dup3, *stream, target, 0);
    }
    if let Some(seconds) = plan.cpu_seconds {
        // XCPU first, which can be caught and is reported; KILL a second later.
        limit(libc::RLIMIT_CPU, seconds, seconds.saturating_add(1))?;
    }
    if let Some(bytes) = plan.data_bytes {
        limit(libc::RLIMIT_DATA, bytes, bytes)?;
    }
    limit(libc::RLIMIT_NOFILE, plan.open_files, plan.open_files)?;
    if let Some(uid) = plan.uid {
        act!(Step::User, libc::SYS_setresuid, uid, uid, uid);
    }
    if plan.drops_capabilities {
        drop_capabilities()?;
    }
    if let Some(keeper) = plan.dies_with {
        act!(
            Step::User,
            libc::SYS_prctl,
            libc::PR_SET_PDEATHSIG,
            libc::SIGKILL,
            0,
            0,
            0
        );
        // It may have died before it could be died with.
        if act!(Step::User, libc::SYS_getppid) != libc::c_long::from(keeper) {
            return Err((Step::User, libc::ESRCH));
        }
    }
    act!(Step::Directory, libc::SYS_fchdir, plan.directory);
    if plan.ruleset >= 0 {
        act!(Step::Landlock, libc::SYS_landlock_restrict_self, plan.ruleset, 0);
    }
    Ok(())
}

/// Waits for the server's word. The end of the socket is a no.
pub(super) fn pass_gate(gate: RawFd) -> bool {
    if gate < 0 {
        return true;
    }
    loop {
        let mut word = 0u8;
        // SAFETY: reads at most one byte into `word`.
        match unsafe { libc::read(gate, (&raw mut word).cast(), 1) } {
            1 => return word == wire::GO,
            // SAFETY: the thread's own error number.
            -1 if unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => return false,
        }
    }
}

fn exec(plan: &Plan<'_>) -> Result<(), Failure> {
    // Everything is close-on-exec already; this holds even if one day something is not.
    act!(
        Step::Close,
        libc::SYS_close_range,
        3,
        u32::MAX,
        libc::CLOSE_RANGE_CLOEXEC
    );
    if let Some(unchanged) = plan.unchanged {
        check_unchanged(unchanged, plan.program)?;
    }
    crate::sys::process::unblock_signals();
    execute_descriptor(plan.program, plan.argv, plan.envp)
}

/// Replaces the calling process by an opened program.
pub(crate) fn execute_descriptor(
    program: RawFd,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> Result<(), Failure> {
    act!(
        Step::Exec,
        libc::SYS_execveat,
        program,
        c"".as_ptr(),
        argv,
        envp,
        libc::AT_EMPTY_PATH
    );
    Ok(())
}

/// Looks whether the program and its scripts are still what they were when they were examined.
pub(crate) fn check_unchanged(unchanged: &Unchanged, program: RawFd) -> Result<(), Failure> {
    for script in &unchanged.scripts {
        // SAFETY: the path is NUL-terminated and `found` is writable. A plain stat takes no lock.
        check_identity(script.identity, |found| unsafe {
            libc::stat(script.path.as_ptr(), found)
        })?;
    }
    match unchanged.executable {
        // SAFETY: the descriptor is open and `found` is writable.
        Some(identity) => check_identity(identity, |found| unsafe { libc::fstat(program, found) }),
        None => Ok(()),
    }
}

fn check_identity(expected: Identity, look: impl FnOnce(*mut libc::stat) -> c_int) -> Result<(), Failure> {
    // SAFETY: an all-zero stat is a valid value to be overwritten.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    if look(&raw mut found) == -1 {
        // SAFETY: the thread's own error number.
        return Err((Step::Unchanged, unsafe { *libc::__errno_location() }));
    }
    let found = Identity {
        device: found.st_dev,
        inode: found.st_ino,
        bytes: found.st_size as u64,
        modified_s: found.st_mtime,
        modified_ns: found.st_mtime_nsec,
        changed_s: found.st_ctime,
        changed_ns: found.st_ctime_nsec,
    };
    if found == expected {
        Ok(())
    } else {
        Err((Step::Unchanged, libc::ESTALE))
    }
}

fn limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> Result<(), Failure> {
    let wanted = libc::rlimit64 {
        rlim_cur: soft,
        rlim_max: hard,
    };
    act!(
        Step::Rlimits,
        libc::SYS_prlimit64,
        0,
        resource,
        &raw const wanted,
        std::ptr::null_mut::<libc::rlimit64>()
    );
    Ok(())
}

fn drop_capabilities() -> Result<(), Failure> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let none = [0u32; 6];
    act!(Step::Capabilities, libc::SYS_capset, header.as_ptr(), none.as_ptr());
    Ok(())
}
