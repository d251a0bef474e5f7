//! The Executor port on the sandbox.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_gateway::approval::Cleared;
use countersign_gateway::audit::Pending;
use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::execution::advice::Advice;
use countersign_gateway::execution::live::Live;
use countersign_gateway::execution::{Ended, Executor, Gate, How};
use countersign_gateway::limits;
use countersign_gateway::policy::allowlist::FoundProgram;
use countersign_gateway::policy::effective::SandboxMode;
use countersign_gateway::policy::places;
use countersign_gateway::policy::plan::{Plan, PlannedAct};
use countersign_sandbox::program::Program;
use countersign_sandbox::{
    Body, Launch, Layer, Options, Profile, Reply, SetupError, Unchanged, Zygote, ZygoteError, wire,
};

use crate::pool::{Directories, Keeper, Pool, StartError};
use crate::profile::Unseen;
use crate::runner::{ProgramRef, Script};
use crate::running::{self, Followed, Pipes, Spare};
use crate::temporary::TemporaryError;
use crate::{environment, identity, profile, runner};

/// Runs plans through keepers.
pub struct SandboxExecutor {
    inner: Arc<Inner>,
}

/// What is said while nothing can be confined.
const ZYGOTE_GONE: &str = "the process that makes sandboxes was killed, and so was the next; another is tried within a minute, or start the server anew";

struct Inner {
    pool: Arc<Pool>,
    spare: Spare,
    server_uid: u32,
}

impl SandboxExecutor {
    /// Starts the zygote. To be called first thing, before threads, sockets or secrets exist. When it is killed, this
    /// program is started again with `words`, which must lead to [`Self::be_zygote`].
    pub fn start_zygote(directories: &Directories, words: Vec<OsString>) -> Result<Zygote, ZygoteError> {
        let options = Options {
            temp_base: Some(directories.temporary.path().to_owned()),
            namespaces: true,
            runner: Some(runner::run),
        };
        Ok(Zygote::start(options.clone())?.renewed_by(words, options))
    }

    /// What a program does that was started to be a zygote; it comes back only when nobody wants one.
    pub fn be_zygote() -> Result<Infallible, ZygoteError> {
        countersign_sandbox::serve_on_stdin(Some(runner::run))
    }

    pub fn new(zygote: Zygote, directories: Directories, server_uid: u32) -> Self {
        Self {
            inner: Arc::new(Inner {
                pool: Arc::new(Pool::new(zygote, directories)),
                spare: Spare::default(),
                server_uid,
            }),
        }
    }
}

impl Executor for SandboxExecutor {
    fn run(&self, cleared: Cleared, gate: Gate, live: Arc<Live>) -> Pending<Ended> {
        let inner = self.inner.clone();
        Box::pin(async move { inner.run(cleared.into_plan(), gate, &live).await })
    }

    fn ready(&self) -> Result<(), String> {
        if self.inner.pool.can_make_keepers() {
            Ok(())
        } else {
            Err(ZYGOTE_GONE.to_owned())
        }
    }

    fn renewals(&self) -> u64 {
        self.inner.pool.renewals()
    }

    fn warm(&self, plan: &Plan) -> Pending<()> {
        let inner = self.inner.clone();
        let profile = inner.profile(plan);
        Box::pin(async move {
            if let Ok((profile, unseen)) = profile
                && let Ok(keeper) = inner.pool.take(profile, unseen).await
            {
                inner.pool.give_back(keeper);
                inner.spare.refill();
            }
        })
    }
}

/// How often a call asks for another keeper when the one it got had gone stale.
const STALE_RETRIES: usize = 3;
/// A keeper reads at once, unless it tidies up behind its last call; one that was stopped would stop the call with it.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Time between two looks whether there is room for the rest of a launch that is longer than the socket holds.
const ROOM_LOOK: Duration = Duration::from_millis(1);
/// How much later than we should have a command is ended without us.
const HELD_UP: Duration = Duration::from_secs(1);

impl Inner {
    async fn run(&self, plan: Plan, gate: Gate, live: &Live) -> Ended {
        let not_started = |refusal| Ended {
            how: How::NotStarted(refusal),
            layers: Vec::new(),
        };
        let mut prepared = match self.prepare(&plan).await {
            Ok(prepared) => prepared,
            Err(refusal) => return not_started(refusal),
        };
        // The keeper sets the command up while the record is being written.
        if let Err(error) = gate.open().await {
            let _ = wire::send_control(prepared.keeper.line.as_fd(), wire::ABORT);
            return Ended {
                how: How::NotRecorded(error),
                layers: Vec::new(),
            };
        }
        let mut attempts = 0;
        loop {
            // Given up while it was being prepared, for the first time or again: it is never let go.
            if live.is_cancelled() {
                let _ = wire::send_control(prepared.keeper.line.as_fd(), wire::ABORT);
                return Ended {
                    how: How::Cancelled,
                    layers: Vec::new(),
                };
            }
            let Prepared { mut keeper, pipes } = prepared;
            let layers = keeper.layers.clone();
            live.confined_by(&layers);
            let Followed { how, reply, emptied } =
                running::follow(&mut keeper.line, pipes, &self.spare, &plan, live).await;
            attempts += 1;
            match &reply {
                // What it wrote into memory that files have, as on a tmpfs, would count against the next one too.
                Some(Reply::Exited(ending)) if ending.hits.memory => Pool::discard(keeper),
                Some(Reply::Exited(_) | Reply::LaunchFailed { .. } | Reply::Aborted) => {
                    self.pool.give_back_soon(keeper, emptied);
                }
                // Made for a directory that was replaced since; nothing ran, and a new one fits.
                Some(Reply::Stale) if attempts < STALE_RETRIES => {
                    self.pool.forget_like(&keeper);
                    prepared = match self.prepare(&plan).await {
                        Ok(prepared) => prepared,
                        Err(refusal) => return not_started(refusal),
                    };
                    continue;
                }
                Some(Reply::Stale) | None => Pool::discard(keeper),
            }
            let how = match how {
                How::Exited(code) if code != 0 => {
                    live.advise(&plan, code, self.advice_on_workspace(&plan));
                    how
                }
                How::NotStarted(refusal) => How::NotStarted(running::advised(refusal, reply.as_ref(), &plan)),
                how => how,
            };
            return Ended { how, layers };
        }
    }

    fn advice_on_workspace(&self, plan: &Plan) -> Option<Advice> {
        if plan.sandbox != SandboxMode::WorkspaceWrite {
            return None;
        }
        let root = plan.place.root.clone();
        identity::advice(&plan.identity, &root, self.server_uid).map(|text| Advice { text, root })
    }

    /// Has a keeper prepare the plan, up to the gate.
    async fn prepare(&self, plan: &Plan) -> Result<Prepared, Refusal> {
        if plan.place.root.to_str().is_none() {
            let message = format!(
                "working directory `{}` is not allowed: its path is not UTF-8",
                plan.place.root.display()
            );
            return Err(Refusal::new(ErrorCode::CwdNotAllowed, message));
        }
        if let Some(refusal) = profile::refuse_steering(&plan.place.root, plan.sandbox) {
            return Err(refusal);
        }
        let mut last = None;
        for _ in 0..STALE_RETRIES {
            let (profile, unseen) = self.profile(plan)?;
            let keeper = match self.pool.take(profile, unseen).await {
                Ok(keeper) => keeper,
                // What it would have covered is not all that has to be by now.
                Err(error @ StartError::Mounted) => {
                    last = Some(error.to_string());
                    continue;
                }
                Err(error) => return Err(unavailable(&error)),
            };
            if let Some(refusal) = profile::refuse_exposed(&plan.place.root, &keeper.report.exposed) {
                return Err(refusal);
            }
            let pipes = self.spare.take(plan.input.is_some() || plan.is_fed).map_err(|error| {
                Refusal::new(
                    ErrorCode::CommandExecutionFailed,
                    format!("cannot make pipes for the command: {error}"),
                )
            })?;
            match send(&keeper, plan, &pipes).await {
                Ok(()) => return Ok(Prepared { keeper, pipes }),
                Err(error) => last = Some(error.to_string()),
            }
        }
        let reason = last.map_or_else(String::new, |error| format!(": {error}"));
        Err(Refusal::new(
            ErrorCode::SandboxUnavailable,
            format!("the sandbox did not take the command{reason}"),
        ))
    }

    fn profile(&self, plan: &Plan) -> Result<(Profile, Unseen), Refusal> {
        let unseen = self.pool.unseen(&plan.hidden);
        let unseen = unseen.map_err(|error| places::not_looked_up(&error).refusal)?;
        profile::refuse_unseen(plan, &unseen)?;
        let root = profile::open_root(plan)?;
        // Whose the very directory is, whatever is at its path by now.
        let itself = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        let identity = identity::settle(&plan.identity, &itself, self.server_uid)
            .map_err(|error| Refusal::new(ErrorCode::ConfigurationError, error.to_string()))?;
        profile::refuse_turnable(plan, &unseen)?;
        let profile = profile::of(plan, root.as_fd(), &unseen, identity, self.server_uid)?;
        let closed = self.pool.closed().to_vec();
        Ok((Profile { closed, ..profile }, unseen))
    }
}

struct Prepared {
    keeper: Keeper,
    pipes: Pipes,
}

fn unavailable(error: &StartError) -> Refusal {
    // Not something the machine lacks.
    if let StartError::Keeper(ZygoteError::Setup(SetupError::Moved)) = error {
        let message =
            "the working directory was moved or replaced while the command was being prepared; nothing was run";
        return Refusal::new(ErrorCode::CwdNotFound, message);
    }
    if let StartError::Temporary(replaced @ TemporaryError::Replaced { .. }) = error {
        return Refusal::new(ErrorCode::SandboxUnavailable, replaced.to_string());
    }
    // Nor this; and whoever can start the server anew should know that it helps.
    if let StartError::Keeper(ZygoteError::Gone | ZygoteError::Wire(_)) = error {
        return Refusal::new(ErrorCode::SandboxUnavailable, ZYGOTE_GONE);
    }
    if let StartError::Keeper(ZygoteError::Setup(SetupError::LeftOut { layer })) = error {
        let why = match layer {
            Layer::Netns => "the network is allowed",
            Layer::ExecList => "any program may run",
            Layer::Uid => "commands run as the server's own user",
            _ => "its profile does not use it",
        };
        let message = format!(
            "`command_policy.require` names the layer `{layer}`, which this call does not have: {why}; take it off that list, or \
             change what leaves it out"
        );
        return Refusal::new(ErrorCode::SandboxUnavailable, message);
    }
    let mut message = error.to_string();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    Refusal::new(
        ErrorCode::SandboxUnavailable,
        format!("{message}; `countersign doctor` explains what this machine lacks"),
    )
}

/// Sends the launch with its descriptors.
async fn send(keeper: &Keeper, plan: &Plan, pipes: &Pipes) -> Result<(), wire::WireError> {
    let env = environment::build(plan, &keeper.home, &keeper.tmp.path);
    let mut launch = Launch {
        argv: Vec::new(),
        env,
        cwd: c_string(plan.place.cwd.path.as_os_str().as_bytes()),
        exec: profile::exec_rights(plan),
        cpu_seconds: Some(cpu_seconds(plan)),
        ends_after_ms: Some(ends_after_ms(plan)),
        programs: Vec::new(),
        body: Body::Exec {
            unchanged: Unchanged::default(),
        },
    };
    let mut fds: Vec<BorrowedFd<'_>> = vec![plan.place.cwd.handle.as_fd()];
    fds.extend(pipes.theirs());
    let opened: Vec<Arc<Program>>;
    match &plan.act {
        PlannedAct::Process { program, argv } => {
            opened = vec![open(program)];
            launch.argv = opened[0].arguments(argv.iter().map(|arg| c_string(arg.as_bytes())).collect());
            launch.body = Body::Exec {
                unchanged: unchanged(program, &opened[0]),
            };
        }
        PlannedAct::Shell { bash, line, .. } => {
            opened = vec![open(bash)];
            let argv = ["bash", "--norc", "--noprofile", "-c", "--", line];
            launch.argv = argv.iter().map(|arg| c_string(arg.as_bytes())).collect();
        }
        PlannedAct::Tree { tree, programs } => {
            let mut distinct: Vec<Arc<Program>> = Vec::new();
            let references = tree
                .commands()
                .zip(programs)
                .map(|(command, program)| {
                    program
                        .as_ref()
                        .map(|program| reference(&mut distinct, &command.name, program))
                })
                .collect();
            let script = Script {
                tree: tree.clone(),
                programs: references,
            };
            launch.body = Body::Run {
                payload: postcard::to_stdvec(&script).map_err(wire::WireError::Encode)?,
            };
            opened = distinct;
        }
    }
    fds.extend(opened.iter().map(|program| program.executable()));
    launch.programs = opened.iter().map(|program| opened_again(program, plan)).collect();
    let mut outgoing = wire::Outgoing::new(&launch)?;
    let deadline = Instant::now() + TAKEN_WITHIN;
    while !outgoing.send(keeper.line.as_fd(), &fds)? {
        if Instant::now() >= deadline {
            return Err(wire::WireError::Send(io::ErrorKind::TimedOut.into()));
        }
        tokio::time::sleep(ROOM_LOOK).await;
    }
    Ok(())
}

fn reference(distinct: &mut Vec<Arc<Program>>, name: &str, found: &FoundProgram) -> ProgramRef {
    let program = open(found);
    let lead = program.arguments(vec![c_string(name.as_bytes())]);
    let unchanged = unchanged(found, &program);
    let index = distinct
        .iter()
        .position(|other| Arc::ptr_eq(other, &program))
        .unwrap_or_else(|| {
            distinct.push(program);
            distinct.len() - 1
        });
    ProgramRef { index, lead, unchanged }
}

/// The file that policy looked at.
fn open(found: &FoundProgram) -> Arc<Program> {
    found
        .opened
        .get::<Program>()
        .expect("every program of a plan was opened by the machine")
}

/// What is looked at again just before it runs. Programs of the machine are left out of that: nobody but its owner writes
/// them, who may well be updating one.
fn unchanged(found: &FoundProgram, program: &Program) -> Unchanged {
    Unchanged {
        scripts: program.script_checks(),
        executable: (!found.on_trusted_path).then(|| program.executable_identity()),
    }
}

/// The path of a program, unless it is one of the machine's own.
fn opened_again(program: &Program, plan: &Plan) -> CString {
    let path = program.executable_path();
    let is_in_root = path.starts_with(&plan.place.root);
    match MACHINE.iter().any(|place| path.starts_with(place)) && !is_in_root {
        true => CString::default(),
        false => c_string(path.as_os_str().as_bytes()),
    }
}

/// Where the machine's own programs lie.
const MACHINE: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// When the keeper ends what we should have ended long before.
fn ends_after_ms(plan: &Plan) -> u64 {
    let after = plan.timeout + 2 * limits::TERMINATE_GRACE + HELD_UP;
    u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
}

/// Arguments hold no NUL: they were checked when the call was read.
fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("checked when the call was read")
}

/// What a command may burn before the kernel ends it: all its cores for all its time.
fn cpu_seconds(plan: &Plan) -> u64 {
    let cores = plan.limits.cpu.get().div_ceil(1_000).max(1);
    (plan.timeout.as_secs() + 1).saturating_mul(cores)
}

/// An empty standard input.
pub(crate) fn null() -> std::io::Result<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from)
}
