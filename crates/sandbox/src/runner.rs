//! For functions that run inside the sandbox instead of a program: starting programs by descriptor and waiting
//! for them, without `unsafe` on the caller's side.
//!
//! A runner is registered with the zygote as a plain function and runs in a process that is already confined,
//! behind the gate, with the standard streams and the working directory of its launch. It may open files,
//! change its directory and make pipes with the standard library: all of that happens with the command's rights.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::launch::{Outcome, Step, Unchanged};
use crate::sys::errno_of;
use crate::sys::process::{Patience, Stack, Waited, wait_for};

/// A function to run in a confined process; its result is the exit code.
pub type Runner = fn(RunnerInput<'_>) -> i32;

/// What a runner gets.
#[derive(Debug)]
pub struct RunnerInput<'a> {
    pub payload: Vec<u8>,
    /// The environment of the launch. The process itself has none.
    pub env: Vec<CString>,
    /// The program descriptors of the launch, in its order. No program inherits them.
    pub programs: Vec<BorrowedFd<'a>>,
}

/// A program to start.
#[derive(Debug)]
pub struct Command<'a> {
    pub program: BorrowedFd<'a>,
    pub argv: &'a [CString],
    pub env: &'a [CString],
    pub stdin: BorrowedFd<'a>,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
    /// Checked just before it is executed.
    pub unchanged: &'a Unchanged,
}

/// A program that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Child(i32);

/// Why a program was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{step} failed: {}", io::Error::from_raw_os_error(*errno))]
pub struct SpawnError {
    pub step: Step,
    pub errno: i32,
}

/// Starts programs. Keeps the memory that their first moments need.
pub struct Spawner {
    stack: Stack,
}

/// The standard streams of this process, to pass on.
pub fn standard_streams() -> [BorrowedFd<'static>; 3] {
    // SAFETY: a launch always has its three streams, and nothing in a runner closes them.
    [0, 1, 2].map(|stream| unsafe { BorrowedFd::borrow_raw(stream) })
}

impl Spawner {
    pub fn new() -> io::Result<Spawner> {
        Ok(Spawner { stack: Stack::new()? })
    }

    /// Starts a program; returns when it runs.
    pub fn spawn(&mut self, command: &Command<'_>) -> Result<Child, SpawnError> {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings
                .iter()
                .map(|string| string.as_ptr())
                .chain([std::ptr::null()])
                .collect()
        };
        let (argv, envp) = (pointers(command.argv), pointers(command.env));
        let mut plan = Plan {
            // A stream could be one of 0 to 2 itself and be overwritten before its turn.
            streams: [&command.stdin, &command.stdout, &command.stderr].map(|fd| fd.as_raw_fd()),
            program: command.program.as_raw_fd(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            unchanged: command.unchanged,
            failure: None,
        };
        // SAFETY: the entry keeps to system calls and the plan, which lives until the child has exec'ed or
        // exited; a runner has one thread.
        let started = unsafe { self.stack.run_child(start, (&raw mut plan).cast()) };
        let pid = started.map_err(|error| SpawnError {
            step: Step::Fork,
            errno: errno_of(&error),
        })?;
        // SAFETY: the child wrote through its own pointer to the plan.
        match unsafe { std::ptr::read_volatile(&raw const plan.failure) } {
            None => Ok(Child(pid)),
            Some((step, errno)) => {
                let _ = wait_for(pid, Patience::Block);
                Err(SpawnError { step, errno })
            }
        }
    }
}

impl Child {
    /// Blocks until the program has ended.
    pub fn wait(self) -> io::Result<Outcome> {
        match wait_for(self.0, Patience::Block)? {
            Waited::Ended(ended) => Ok(ended.outcome),
            Waited::StillRunning | Waited::NoChildren => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }
}

/// Waits for all parts of a pipeline; their outcomes in order.
pub fn wait_all(children: &[Child]) -> io::Result<Vec<Outcome>> {
    children.iter().map(|child| child.wait()).collect()
}

struct Plan<'a> {
    streams: [RawFd; 3],
    program: RawFd,
    argv: *const *const c_char,
    envp: *const *const c_char,
    unchanged: &'a Unchanged,
    failure: Option<(Step, i32)>,
}

/// Runs in the child: system calls only.
extern "C" fn start(plan: *mut c_void) -> c_int {
    // SAFETY: `Stack::run_child` is given a pointer to a plan, whose owner is stopped until we exec or exit.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    if let Err(failure) = connect(plan) {
        // SAFETY: the compiler must not think that nobody reads this after `_exit`.
        unsafe { std::ptr::write_volatile(&raw mut plan.failure, Some(failure)) };
    }
    // SAFETY: ends this process only.
    unsafe { libc::_exit(127) }
}

fn connect(plan: &Plan<'_>) -> Result<(), (Step, i32)> {
    // Moved above the standard streams first: one of them may be another's new place.
    let mut high = [0; 3];
    for (index, stream) in plan.streams.iter().enumerate() {
        // SAFETY: takes integers only.
        high[index] = unsafe { libc::fcntl(*stream, libc::F_DUPFD_CLOEXEC, 3) };
        if high[index] == -1 {
            // SAFETY: the thread's own error number.
            return Err((Step::Streams, unsafe { *libc::__errno_location() }));
        }
    }
    for (target, stream) in high.iter().enumerate() {
        // SAFETY: takes integers only.
        if unsafe { libc::dup2(*stream, target as RawFd) } == -1 {
            // SAFETY: the thread's own error number.
            return Err((Step::Streams, unsafe { *libc::__errno_location() }));
        }
    }
    // SAFETY: takes integers only. Without it a program would inherit the other programs' descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } == -1 {
        // SAFETY: the thread's own error number.
        return Err((Step::Close, unsafe { *libc::__errno_location() }));
    }
    crate::keeper::check_unchanged(plan.unchanged, plan.program)?;
    crate::keeper::execute_descriptor(plan.program, plan.argv, plan.envp)
}
