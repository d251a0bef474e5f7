//! One call: from a launch to a reply, with nothing left running in between.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use super::Keeper;
use super::child::{self, Note, Plan};
use super::tree::Tree;
use crate::emptying;
use crate::landlock::{self, Masks, SHARED_MEMORY, SharedMemory};
use crate::launch::{Body, Ending, ExecRights, Hits, Launch, Outcome, Reply, Step};
use crate::runner::RunnerInput;
use crate::sys::mounts::{self, Presence};
use crate::sys::process::{Ended, Patience, Side, Waited, exit_now, fork_into, unblock_signals, wait_either, wait_for};
use crate::sys::sockets::{self, Received};
use crate::sys::{self, errno_of, ipc};
use crate::wire;

/// Rulesets kept; a server has few different lists of programs.
const RULESETS_MAX: usize = 16;

/// How long what a command left behind may go on when it ended by itself.
const LINGERING_MAX: Duration = Duration::from_millis(500);

/// The descriptors that come before those of programs.
const STREAMS_AND_DIRECTORY: usize = 4;

/// Where a started command stands.
enum Started {
    Running { pid: i32 },
    Refused(Reply),
}

impl Keeper {
    /// Runs one command and answers when its tree is gone; `None` when the server is.
    pub(super) fn conduct(&mut self, launch: &Launch, fds: Vec<OwnedFd>) -> Option<Reply> {
        if self.is_spoiled || !self.guards.iter().all(super::mounts::Guard::holds) {
            return Some(Reply::Stale);
        }
        // Whatever of that lies there is another call's, which is about to be ended.
        self.clear_barred();
        self.made_barred = false;
        self.ran_on = false;
        let started = self
            .start(launch, fds)
            .unwrap_or_else(|(step, errno)| Started::Refused(Reply::LaunchFailed { step, errno }));
        let pid = match started {
            Started::Refused(reply) => return Some(reply),
            Started::Running { pid } => pid,
        };
        let main = self.attend(pid, launch.ends_after_ms.map(Duration::from_millis));
        self.made_barred |= self.clear_barred();
        let main = main?;
        Some(Reply::Exited(self.ending(launch, &main)))
    }

    /// Removes what came into being where nothing may, and says whether something did. The directories above are mount
    /// points, so nobody in here swaps them meanwhile. Somebody outside may: then it is not ours to remove.
    fn clear_barred(&mut self) -> bool {
        if !self.in_mount_namespace {
            return false;
        }
        let mut found = false;
        for path in &self.profile.barred {
            match clear(path) {
                Ok(was_there) => found |= was_there,
                Err(_) => self.is_spoiled = true,
            }
        }
        found
    }

    /// Something was made where it may not be, for others to be steered by while the command goes on: it does not go on.
    fn look_for_barred(&mut self) {
        self.watch.as_ref().inspect(|watch| watch.drain());
        let mut barred = self.profile.barred.iter();
        if barred.any(|path| fs::symlink_metadata(path).is_ok()) {
            self.made_barred = true;
            self.tree.signal(libc::SIGKILL);
            self.clear_barred();
        }
    }

    /// After the reply: what the next call must not inherit from this one.
    pub(super) fn tidy(&mut self) {
        self.counted = self.counters.read();
        if self.shared_memory == SharedMemory::Private {
            self.clear_shared_memory();
        }
        // The namespace of these objects came with the one for mounts.
        if self.in_mount_namespace && !ipc::clear() {
            self.is_spoiled = true;
        }
    }

    /// Most commands leave nothing there, which the directory, once opened, tells quickly.
    fn clear_shared_memory(&mut self) {
        if self.shared_memory_opened.is_none() {
            self.shared_memory_opened = fs::File::open(SHARED_MEMORY).ok();
        }
        let opened = self.shared_memory_opened.as_ref();
        let is_empty = || opened.is_some_and(|opened| sys::is_empty_directory(opened.as_fd()).unwrap_or(false));
        if is_empty() {
            return;
        }
        for entry in fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = fs::remove_file(&path).or_else(|_| emptying::remove(&path));
        }
        // The directory may not have been read to its end.
        self.is_spoiled |= !is_empty();
    }

    /// Starts the command. Our copies of its descriptors are closed when this returns, so that readers see
    /// the end of the command's output when the command ends.
    fn start(&mut self, launch: &Launch, mut fds: Vec<OwnedFd>) -> Result<Started, (Step, i32)> {
        let given = fds.iter_mut().skip(STREAMS_AND_DIRECTORY).zip(&launch.programs);
        for (program, path) in given.filter(|(_, path)| self.in_mount_namespace && !path.is_empty()) {
            // Through `/proc/PID/exe` it could be written where it is protected in here.
            *program = seen_here(program, path, libc::O_PATH, Step::Unchanged)?;
        }
        let [directory, stdin, stdout, stderr, programs @ ..] = fds.as_slice() else {
            return Err((Step::Receive, libc::EBADF));
        };
        let own_directory = self.enterable(directory, &launch.cwd)?;
        let argv = pointers(&launch.argv);
        let envp = pointers(&launch.env);
        let mut plan = Plan {
            streams: [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
            directory: own_directory.as_ref().unwrap_or(directory).as_raw_fd(),
            gate: self.socket.as_raw_fd(),
            ruleset: self.ruleset(&launch.exec)?,
            uid: self.profile.identity.as_ref().map(|identity| identity.uid),
            drops_capabilities: self.drops_capabilities,
            cpu_seconds: launch.cpu_seconds,
            data_bytes: self.profile.limits.memory_bytes.filter(|_| !self.counters.has_memory()),
            open_files: self.open_files,
            dies_with: match self.tree {
                Tree::Namespace => None,
                Tree::Descendants => Some(std::process::id() as i32),
            },
            program: -1,
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            unchanged: None,
            note: Note::Running,
        };
        if let Body::Exec { unchanged } = &launch.body {
            let (Some(program), false) = (programs.first(), launch.argv.is_empty()) else {
                return Err((Step::Receive, libc::EINVAL));
            };
            plan.program = program.as_raw_fd();
            plan.unchanged = Some(unchanged);
        }
        self.standing.as_ref().inspect(|standing| standing.lower());
        let started = match &launch.body {
            Body::Exec { .. } => self.execute(&mut plan, &launch.exec),
            Body::Run { payload } => self.run(&plan, launch, payload, programs),
        };
        self.standing.as_ref().inspect(|standing| standing.restore());
        started
    }

    fn execute(&mut self, plan: &mut Plan<'_>, exec: &ExecRights) -> Result<Started, (Step, i32)> {
        loop {
            // SAFETY: the entry keeps to system calls and the plan, which lives until it has exec'ed or
            // exited; a keeper has one thread.
            let pid = unsafe { self.stack.run_child(child::execute, (&raw mut *plan).cast()) }
                .map_err(|error| (Step::Fork, errno_of(&error)))?;
            // SAFETY: the child wrote through its own pointer to the plan.
            let note = unsafe { std::ptr::read_volatile(&raw const plan.note) };
            if note == Note::Running {
                return Ok(Started::Running { pid });
            }
            let _ = wait_for(pid, Patience::Block);
            match note {
                // A program that was updated is another file than the one the kept rules name. The gate
                // was passed, so the second try does not ask again.
                Note::Failed {
                    step: Step::Exec,
                    errno: libc::EACCES,
                } if plan.gate >= 0 && plan.ruleset >= 0 => {
                    self.rulesets.retain(|(of, _)| of != exec);
                    plan.ruleset = self.ruleset(exec)?;
                    plan.gate = -1;
                    plan.note = Note::Running;
                }
                Note::Failed { step, errno } => return Err((step, errno)),
                Note::Aborted | Note::Running => return Ok(Started::Refused(Reply::Aborted)),
            }
        }
    }

    /// Forks a runner. Until it has passed the gate it alone reads our socket, and tells us by a pipe.
    fn run(
        &mut self,
        plan: &Plan<'_>,
        launch: &Launch,
        payload: &[u8],
        programs: &[OwnedFd],
    ) -> Result<Started, (Step, i32)> {
        let fail = |error: io::Error| (Step::Fork, errno_of(&error));
        let runner = self.runner.ok_or((Step::Exec, libc::ENOSYS))?;
        let (mut progress, mut told) = io::pipe().map_err(fail)?;
        let pid = match fork_into(0).map_err(fail)? {
            Side::Parent { child } => child,
            Side::Child => {
                let ready = child::confine(plan);
                let note = match ready {
                    Err((step, errno)) => Note::Failed { step, errno },
                    Ok(()) if child::pass_gate(plan.gate) => Note::Running,
                    Ok(()) => Note::Aborted,
                };
                let _ = told.write_all(&encode(note));
                if note != Note::Running {
                    exit_now(127);
                }
                let keep: Vec<_> = programs.iter().map(AsFd::as_fd).collect();
                if sys::keep_only(&keep).is_err() {
                    exit_now(127);
                }
                unblock_signals();
                let input = RunnerInput {
                    payload: payload.to_vec(),
                    env: launch.env.clone(),
                    programs: keep,
                };
                exit_now(catch_unwind(AssertUnwindSafe(|| runner(input))).unwrap_or(125))
            }
        };
        drop(told);
        let mut bytes = Vec::new();
        progress.read_to_end(&mut bytes).map_err(fail)?;
        let note = decode(&bytes);
        if note == Note::Running {
            return Ok(Started::Running { pid });
        }
        let _ = wait_for(pid, Patience::Block);
        match note {
            Note::Failed { step, errno } => Err((step, errno)),
            Note::Aborted | Note::Running => Ok(Started::Refused(Reply::Aborted)),
        }
    }

    /// The working directory as this mount namespace sees it, when it sees it differently. The server's own
    /// descriptor belongs to a mount outside, from which covered and protected files look as they always did.
    fn enterable(&self, given: &OwnedFd, path: &CStr) -> Result<Option<OwnedFd>, (Step, i32)> {
        if !self.in_mount_namespace {
            return Ok(None);
        }
        seen_here(given, path, libc::O_PATH | libc::O_DIRECTORY, Step::Directory).map(Some)
    }

    /// The ruleset for these programs, from the cache or newly made.
    fn ruleset(&mut self, exec: &ExecRights) -> Result<i32, (Step, i32)> {
        if !self.landlocked {
            return Ok(-1);
        }
        let masks = if self.in_mount_namespace {
            Masks::Mounted
        } else {
            Masks::Missing
        };
        // Rules on single files do not follow to what takes their place, so these are made anew for each command.
        if !masks.left_out(&self.profile).is_empty() {
            self.rulesets.clear();
        }
        if let Some((_, fd)) = self.rulesets.iter().find(|(of, _)| of == exec) {
            return Ok(fd.as_raw_fd());
        }
        if let (ExecRights::Any, true) = (exec, self.profile.exec_list) {
            return Err((Step::Rules, libc::EPERM));
        }
        let made = landlock::ruleset(&self.profile, &self.opened, exec, self.shared_memory, masks)
            .map_err(|error| (Step::Rules, errno_of(&error)))?;
        if self.rulesets.len() == RULESETS_MAX {
            self.rulesets.remove(0);
        }
        let fd = made.as_raw_fd();
        self.rulesets.push((exec.clone(), made));
        Ok(fd)
    }

    /// Waits for the main process, passes on what the server says meanwhile, and clears away the rest. What it left behind
    /// has a moment to end by itself: a shell does not wait for who reads from it in `>(…)`.
    fn attend(&mut self, main: i32, within: Option<Duration>) -> Option<Ended> {
        let mut ended: Option<(Ended, Instant)> = None;
        let mut deadline = within.and_then(|within| Instant::now().checked_add(within));
        loop {
            let watch = self.watch.as_ref().map(AsFd::as_fd);
            let until = ended.as_ref().map(|(_, until)| *until).or(deadline);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let [is_told, is_made] = wait_either(self.socket.as_fd(), watch, left).unwrap_or_default();
            if is_made {
                self.look_for_barred();
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                deadline = None;
                self.ran_on = true;
                self.tree.signal(libc::SIGKILL);
            }
            if is_told {
                let mut word = [0];
                match sockets::receive(self.socket.as_fd(), &mut word, &mut Vec::new()) {
                    Ok(Received::Whole(1)) if word == [wire::TERMINATE] => self.tree.signal(libc::SIGTERM),
                    Ok(Received::Whole(1)) if word == [wire::KILL] => self.tree.signal(libc::SIGKILL),
                    Ok(Received::Whole(1)) => {}
                    _ => {
                        let _ = self.tree.end();
                        return None;
                    }
                }
            }
            let others = loop {
                match wait_for(-1, Patience::Look) {
                    Ok(Waited::Ended(child)) if child.pid == main => {
                        ended = Some((child, Instant::now() + LINGERING_MAX))
                    }
                    Ok(Waited::Ended(_)) => {}
                    Ok(Waited::StillRunning) => break true,
                    Ok(Waited::NoChildren) | Err(_) => break false,
                }
            };
            if let Some((main, until)) = ended.take() {
                let ended_itself = matches!(main.outcome, Outcome::Code(_));
                if others && ended_itself && !is_told && Instant::now() < until {
                    ended = Some((main, until));
                    continue;
                }
                if others {
                    let _ = self.tree.end();
                }
                return Some(main);
            }
        }
    }

    fn ending(&mut self, launch: &Launch, main: &Ended) -> Ending {
        let mut hits = Hits {
            barred: self.made_barred,
            time: self.ran_on,
            ..Hits::default()
        };
        if main.outcome != Outcome::Code(0) {
            let now = self.counters.read();
            hits.memory = now.0 > self.counted.0;
            hits.pids = now.1 > self.counted.1;
            hits.cpu = launch.cpu_seconds.is_some_and(|seconds| ran_out_of_cpu(main, seconds));
        }
        Ending {
            outcome: main.outcome,
            usage: main.usage,
            hits,
        }
    }
}

/// What the server opened, as this mount namespace sees it under its path. Another file there was moved or replaced since the server
/// looked, or lies under a cover.
fn seen_here(given: &OwnedFd, path: &CStr, flags: i32, step: Step) -> Result<OwnedFd, (Step, i32)> {
    let fail = |error: io::Error| (step, errno_of(&error));
    let found = sys::open_how(path, flags, sys::NO_LINKS).map_err(fail)?;
    let is_same = sys::identity(given.as_fd()).map_err(fail)? == sys::identity(found.as_fd()).map_err(fail)?;
    is_same.then_some(found).ok_or((step, libc::ESTALE))
}

/// Whether the limit on CPU seconds ended this process or a child whose status it passed on.
fn ran_out_of_cpu(main: &Ended, seconds: u64) -> bool {
    let used = main.usage.user_us + main.usage.system_us >= seconds.saturating_mul(1_000_000);
    match main.outcome {
        Outcome::Signal(libc::SIGXCPU) => true,
        Outcome::Signal(number) => number == libc::SIGKILL && used,
        Outcome::Code(code) => (code == 128 + libc::SIGXCPU || code == 128 + libc::SIGKILL) && used,
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

/// Removes what is at a path, reached by no link, in a directory that is mounted there: we may be root, and another
/// directory in its place is somebody else's. Says whether there was anything.
fn clear(path: &Path) -> io::Result<bool> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(false);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(false);
    };
    let parent = sys::open_how(&sys::c_path(parent)?, libc::O_PATH | libc::O_DIRECTORY, sys::NO_LINKS)?;
    let opened = format!("/proc/self/fd/{}", parent.as_raw_fd());
    if !matches!(
        mounts::presence(&sys::c_path(Path::new(&format!("{opened}/.")))?),
        Presence::MountPoint(..)
    ) {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    let place = Path::new(&opened).join(name);
    match fs::symlink_metadata(&place) {
        Err(_) => return Ok(false),
        Ok(found) if found.is_dir() => emptying::remove(&place)?,
        Ok(_) => fs::remove_file(&place)?,
    }
    Ok(true)
}

/// A note as bytes for the pipe of a forked child.
fn encode(note: Note) -> Vec<u8> {
    let parts: (u8, Option<(Step, i32)>) = match note {
        Note::Running => (0, None),
        Note::Aborted => (1, None),
        Note::Failed { step, errno } => (2, Some((step, errno))),
    };
    postcard::to_stdvec(&parts).unwrap_or_default()
}

/// Reads it back; a child that died without a word has not passed the gate.
fn decode(bytes: &[u8]) -> Note {
    match postcard::from_bytes::<(u8, Option<(Step, i32)>)>(bytes) {
        Ok((0, None)) => Note::Running,
        Ok((1, None)) => Note::Aborted,
        Ok((_, Some((step, errno)))) => Note::Failed { step, errno },
        Ok((_, None)) | Err(_) => Note::Failed {
            step: Step::Fork,
            errno: libc::ECHILD,
        },
    }
}
