//! Following a command that was let go: its streams, its deadline, its end.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use countersign_gateway::error::{ADVICE, ErrorCode, Refusal};
use countersign_gateway::execution::live::Live;
use countersign_gateway::execution::{How, advice};
use countersign_gateway::limits;
use countersign_gateway::policy::plan::Plan;
use countersign_gateway::tools::exec::request::Stream;
use countersign_sandbox::{Ending, Outcome, Reply, Step, streams, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use crate::pool::Line;

/// How long what is left in the pipes is read after the tree is gone.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a keeper may take to report after it was told to kill.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// A command that ends within this time is not followed: each thing it says would wake us for its own sake,
/// and the pipes hold what it says until then. One that fills them waits no longer than this.
const UNFOLLOWED: Duration = Duration::from_millis(2);
/// Time between two looks at streams that cannot be watched.
const UNWATCHED_LOOK: Duration = Duration::from_millis(5);
const FIRST_READ_BYTES: usize = 4 << 10;
const READ_BYTES: usize = 64 << 10;
/// The kernel's number for a file that it does not know how to execute (`ENOEXEC`).
const NO_FORMAT: i32 = 8;
/// The kernel's number for what is not permitted (`EACCES`).
const DENIED: i32 = 13;
/// More than a pipe holds.
const READS_MAX: usize = 32;

/// The three streams of a command: the ends that travel, and ours.
pub(crate) struct Pipes {
    ours: OurEnds,
    theirs: [OwnedFd; 3],
}

struct OurEnds {
    stdin: Option<pipe::Sender>,
    stdout: Output,
    stderr: Output,
}

impl Pipes {
    /// For a command without input.
    fn new() -> io::Result<Self> {
        let (stdout, their_stdout) = streams::output()?;
        let (stderr, their_stderr) = streams::output()?;
        let ours = OurEnds {
            stdin: None,
            stdout: Output {
                stream: Stream::Stdout,
                from: stdout,
            },
            stderr: Output {
                stream: Stream::Stderr,
                from: stderr,
            },
        };
        let theirs = [crate::executor::null()?, their_stdout.into(), their_stderr.into()];
        Ok(Self { ours, theirs })
    }

    /// The same for a command with input.
    fn fed(mut self) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        self.ours.stdin = Some(pipe::Sender::from_owned_fd(writer.into())?);
        self.theirs[0] = reader.into();
        Ok(self)
    }

    pub(crate) fn theirs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.theirs.iter().map(AsFd::as_fd)
    }
}

/// Streams for the next command, made while this one runs: then nobody waits for that.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Option<Pipes>>);

impl Spare {
    pub(crate) fn take(&self, with_input: bool) -> io::Result<Pipes> {
        let spare = self.pipes().take();
        let pipes = spare.map_or_else(Pipes::new, Ok)?;
        if with_input { pipes.fed() } else { Ok(pipes) }
    }

    /// What fails here is tried again, and told, when it is needed.
    pub(crate) fn refill(&self) {
        let mut spare = self.pipes();
        if spare.is_none() {
            *spare = Pipes::new().ok();
        }
    }

    fn pipes(&self) -> std::sync::MutexGuard<'_, Option<Pipes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a command ended, and the ends of its streams, if they are still open: to close them can wait.
pub(crate) struct Followed {
    pub(crate) how: How,
    pub(crate) reply: Option<Reply>,
    pub(crate) emptied: Option<Emptied>,
}

/// Streams from which everything was read.
pub(crate) struct Emptied {
    _stdout: Output,
    _stderr: Output,
}

/// Lets the prepared command go and follows it to its end.
pub(crate) async fn follow(line: &mut Line, pipes: Pipes, spare: &Spare, plan: &Plan, live: &Live) -> Followed {
    let ended = |(how, reply)| Followed {
        how,
        reply,
        emptied: None,
    };
    if wire::send_control(line.as_fd(), wire::GO).is_err() {
        let message = "the sandbox died before the command was let go";
        let refusal = Refusal::new(ErrorCode::CommandExecutionFailed, message);
        return ended((How::NotStarted(refusal), None));
    }
    let Pipes { ours, theirs } = pipes;
    drop(theirs);
    spare.refill();
    let OurEnds {
        stdin,
        mut stdout,
        mut stderr,
    } = ours;
    let mut fed = stdin.is_none();
    let mut feed = pin!(feed(stdin, plan.input.as_deref(), live));
    let mut end = pin!(supervise(line, plan.timeout, live));
    let soon = tokio::time::timeout(UNFOLLOWED, async {
        loop {
            tokio::select! {
                ended = &mut end => break ended,
                () = &mut feed, if !fed => fed = true,
            }
        }
    });
    let followed = AtomicBool::new(true);
    if let Ok((how, reply)) = soon.await {
        let all = stdout.take_rest(live) & stderr.take_rest(live);
        if !all {
            drain(pump_both(stdout, stderr, live, &followed), &followed).await;
            return ended((how, reply));
        }
        let emptied = Some(Emptied {
            _stdout: stdout,
            _stderr: stderr,
        });
        return Followed { how, reply, emptied };
    }
    let mut pump = pin!(pump_both(stdout, stderr, live, &followed));
    let mut pumped = false;
    let told = loop {
        tokio::select! {
            told = &mut end => break told,
            () = &mut pump, if !pumped => pumped = true,
            () = &mut feed, if !fed => fed = true,
        }
    };
    if !pumped {
        drain(pump, &followed).await;
    }
    ended(told)
}

/// The tree is gone, so the pipes have an end; the bound is for a kernel that disagrees. Nobody has to make room for
/// what is left: it is no more than pipes hold.
async fn drain(pump: impl Future<Output = ()>, followed: &AtomicBool) {
    followed.store(false, Ordering::Relaxed);
    let _ = tokio::time::timeout(DRAIN, pump).await;
}

async fn pump_both(stdout: Output, stderr: Output, live: &Live, followed: &AtomicBool) {
    tokio::join!(stdout.pump(live, followed), stderr.pump(live, followed));
}

/// Waits until whoever follows the output has room for more, as long as the command is `followed`. What ends that
/// polls this again.
async fn room(live: &Live, followed: &AtomicBool) {
    let mut room = pin!(live.room());
    std::future::poll_fn(|context| match followed.load(Ordering::Relaxed) {
        true => room.as_mut().poll(context),
        false => Poll::Ready(()),
    })
    .await;
}

/// Waits for the keeper's reply; at the deadline or when cancelled ends the tree, gently and then not.
async fn supervise(line: &mut Line, timeout: Duration, live: &Live) -> (How, Option<Reply>) {
    let mut inbox = Vec::new();
    let ended_by = tokio::select! {
        reply = receive(line, &mut inbox) => return settle(reply),
        () = tokio::time::sleep(timeout) => How::TimedOut,
        () = live.cancelled() => How::Cancelled,
    };
    for (control, patience) in [(wire::TERMINATE, limits::TERMINATE_GRACE), (wire::KILL, KILL_PATIENCE)] {
        if wire::send_control(line.as_fd(), control).is_err() {
            return (ended_by, None);
        }
        match tokio::time::timeout(patience, receive(line, &mut inbox)).await {
            // A launch that had already failed when its time was up did not time out.
            Ok(Some(reply @ (Reply::LaunchFailed { .. } | Reply::Stale | Reply::Aborted))) => {
                return settle(Some(reply));
            }
            Ok(reply) => return (ended_by, reply),
            Err(_) => {}
        }
    }
    // The keeper is beyond words; closing its socket is the last one.
    (ended_by, None)
}

async fn receive(line: &mut Line, inbox: &mut Vec<u8>) -> Option<Reply> {
    loop {
        match wire::decode_reply(inbox) {
            Ok(Some((reply, _))) => return Some(reply),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "a keeper answered what nobody understands");
                return None;
            }
        }
        if line.read(inbox).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn settle(reply: Option<Reply>) -> (How, Option<Reply>) {
    let how = match &reply {
        Some(Reply::Exited(ending)) => ended(ending),
        Some(Reply::LaunchFailed { step, errno }) => How::NotStarted(not_launched(*step, *errno)),
        Some(Reply::Aborted) => How::NotStarted(Refusal::new(ErrorCode::Cancelled, "the command was not let go")),
        Some(Reply::Stale) => {
            let message = "the workspace changed while the command was being prepared; try again";
            How::NotStarted(Refusal::new(ErrorCode::CommandExecutionFailed, message))
        }
        None => lost(),
    };
    (how, reply)
}

fn ended(ending: &Ending) -> How {
    let code = match ending.outcome {
        Outcome::Code(code) => Some(code),
        Outcome::Signal(_) => None,
    };
    if ending.hits.barred {
        let message = "it made what git would take hooks and configuration of others from, such as `.git/commondir`; it was \
                       ended for that, with everything it started, and what it made there was removed";
        return How::Lost(Refusal::new(ErrorCode::CommandExecutionFailed, message));
    }
    if ending.hits.time {
        return How::TimedOut;
    }
    if ending.hits.memory {
        return How::MemoryLimit(code);
    }
    if ending.hits.pids {
        return How::ProcessLimit(code);
    }
    if ending.hits.cpu {
        return How::CpuLimit(code);
    }
    match ending.outcome {
        Outcome::Code(code) => How::Exited(code),
        Outcome::Signal(signal) => How::Signalled(signal),
    }
}

/// What is said of a program that is not what policy, or a person, was shown.
pub(crate) const CHANGED: &str = "the program changed between the check and the start";

fn lost() -> How {
    let message = "the sandbox died under the command, and the command with it";
    How::Lost(Refusal::new(ErrorCode::CommandExecutionFailed, message))
}

fn not_launched(step: Step, errno: i32) -> Refusal {
    let cause = io::Error::from_raw_os_error(errno);
    match step {
        Step::Exec => Refusal::new(
            ErrorCode::CommandExecutionFailed,
            format!("the program could not be started: {}", not_executed(errno)),
        ),
        Step::Directory => {
            let message = format!(
                "the command could not enter its working directory: {cause}; it runs as a user without rights there, or the directory is gone"
            );
            Refusal::new(ErrorCode::CommandExecutionFailed, message)
        }
        Step::Unchanged => Refusal::new(ErrorCode::CommandExecutionFailed, CHANGED),
        other => Refusal::new(
            ErrorCode::SandboxUnavailable,
            format!("{other} failed: {cause}; nothing was run"),
        ),
    }
}

/// The refusal of a program that the kernel did not let the command execute, with what to do about it.
pub(crate) fn advised(mut refusal: Refusal, reply: Option<&Reply>, plan: &Plan) -> Refusal {
    if let Some(Reply::LaunchFailed {
        step: Step::Exec,
        errno: DENIED,
    }) = reply
        && let Some(advice) = advice::on_unreadable(plan)
    {
        refusal.message = format!("{}; {advice}", refusal.message);
        return refusal.with(ADVICE, advice);
    }
    refusal
}

/// Why the kernel did not execute a program. A shell would take a text without a first line for a script of its own.
pub(crate) fn not_executed(errno: i32) -> String {
    let cause = io::Error::from_raw_os_error(errno);
    if errno == NO_FORMAT {
        format!("{cause}; a script needs a first line that names its interpreter, such as `#!/bin/sh`")
    } else {
        cause.to_string()
    }
}

/// Writes the input, or what comes for as long as something does; a command that does not read it, or closes it, just
/// does not get the rest.
async fn feed(stdin: Option<pipe::Sender>, input: Option<&str>, live: &Live) {
    let Some(mut stdin) = stdin else { return };
    if let Some(input) = input {
        let _ = stdin.write_all(input.as_bytes()).await;
        return;
    }
    loop {
        let piece = live.fed().await;
        if piece.is_empty() || stdin.write_all(&piece).await.is_err() {
            return;
        }
    }
}

/// Our end of a stream that the command writes.
struct Output {
    stream: Stream,
    from: io::PipeReader,
}

impl Output {
    /// Takes what lies in the pipe; whether that was all there will ever be. Whoever else holds the other end
    /// may go on writing, and is not listened to here for ever.
    fn take_rest(&mut self, live: &Live) -> bool {
        let mut buffer = [0; FIRST_READ_BYTES];
        for _ in 0..READS_MAX {
            match self.from.read(&mut buffer) {
                Ok(0) => return true,
                Ok(count) => live.push(self.stream, &buffer[..count]),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        false
    }

    async fn look_every_now_and_then(mut self, live: &Live, followed: &AtomicBool) {
        while !self.take_rest(live) {
            room(live, followed).await;
            tokio::time::sleep(UNWATCHED_LOOK).await;
        }
    }

    async fn pump(self, live: &Live, followed: &AtomicBool) {
        // A user has so many watches, which commands of the same user can use up; then it is looked every now and then.
        let mut from = match self
            .from
            .try_clone()
            .map(OwnedFd::from)
            .and_then(pipe::Receiver::from_owned_fd_unchecked)
        {
            Ok(from) => from,
            Err(error) => {
                tracing::warn!(%error, "what a command says cannot be watched for, and is looked for instead");
                return self.look_every_now_and_then(live, followed).await;
            }
        };
        let mut buffer = Vec::with_capacity(FIRST_READ_BYTES);
        loop {
            // Most commands say little; who fills the buffer gets a larger one.
            if buffer.len() == buffer.capacity() {
                buffer.reserve(READ_BYTES);
            }
            buffer.clear();
            match from.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => live.push(self.stream, &buffer),
            }
            room(live, followed).await;
        }
    }
}
