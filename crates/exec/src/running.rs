//! Following a command that was let go: its streams, its deadline, its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::execution::How;
use countersign_gateway::execution::live::Live;
use countersign_gateway::limits;
use countersign_gateway::policy::plan::Plan;
use countersign_gateway::tools::exec::request::Stream;
use countersign_sandbox::{Ending, Outcome, Reply, Step, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// How long what is left in the pipes is read after the tree is gone.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a keeper may take to report after it was told to kill.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
const FIRST_READ_BYTES: usize = 4 << 10;
const READ_BYTES: usize = 64 << 10;

/// The three streams of a command: the ends that travel, and ours.
pub(crate) struct Pipes(pub(crate) OurEnds, [OwnedFd; 3]);

pub(crate) struct OurEnds {
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

impl Pipes {
    pub(crate) fn new(with_input: bool) -> io::Result<Self> {
        let (stdin, their_stdin) = if with_input {
            let (reader, writer) = io::pipe()?;
            (Some(pipe::Sender::from_owned_fd(writer.into())?), reader.into())
        } else {
            (None, crate::executor::null()?)
        };
        let (stdout, their_stdout) = output_pipe()?;
        let (stderr, their_stderr) = output_pipe()?;
        Ok(Self(
            OurEnds { stdin, stdout, stderr },
            [their_stdin, their_stdout, their_stderr],
        ))
    }

    pub(crate) fn theirs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.1.iter().map(AsFd::as_fd)
    }
}

fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(reader.into())?, writer.into()))
}

/// Lets the prepared command go and follows it to its end.
pub(crate) async fn follow(socket: &mut UnixStream, ends: OurEnds, plan: &Plan, live: &Live) -> (How, Option<Reply>) {
    if wire::send_control(socket.as_fd(), wire::GO).is_err() {
        return (lost(), None);
    }
    let OurEnds { stdin, stdout, stderr } = ends;
    let feed = feed(stdin, plan.input.as_deref());
    let pump = async { tokio::join!(pump(stdout, Stream::Stdout, live), pump(stderr, Stream::Stderr, live)) };
    tokio::pin!(feed, pump);
    let mut fed = false;
    let mut pumped = false;
    let (how, reply) = {
        let end = supervise(socket, plan.timeout, live);
        tokio::pin!(end);
        loop {
            tokio::select! {
                ended = &mut end => break ended,
                _ = &mut pump, if !pumped => pumped = true,
                () = &mut feed, if !fed => fed = true,
            }
        }
    };
    // The tree is gone, so the pipes have an end; the bound is for a kernel that disagrees.
    if !pumped {
        let _ = tokio::time::timeout(DRAIN, pump).await;
    }
    (how, reply)
}

/// Waits for the keeper's reply; at the deadline or when cancelled ends the tree, gently and then not.
async fn supervise(socket: &mut UnixStream, timeout: Duration, live: &Live) -> (How, Option<Reply>) {
    let mut inbox = Vec::new();
    let ended_by = tokio::select! {
        reply = receive(socket, &mut inbox) => return settle(reply),
        () = tokio::time::sleep(timeout) => How::TimedOut,
        () = live.cancelled() => How::Cancelled,
    };
    for (control, patience) in [(wire::TERMINATE, limits::TERMINATE_GRACE), (wire::KILL, KILL_PATIENCE)] {
        if wire::send_control(socket.as_fd(), control).is_err() {
            return (ended_by, None);
        }
        match tokio::time::timeout(patience, receive(socket, &mut inbox)).await {
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

async fn receive(socket: &mut UnixStream, inbox: &mut Vec<u8>) -> Option<Reply> {
    loop {
        match wire::decode_reply(inbox) {
            Ok(Some((reply, _))) => return Some(reply),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "a keeper answered what nobody understands");
                return None;
            }
        }
        if socket.read_buf(inbox).await.unwrap_or(0) == 0 {
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

fn lost() -> How {
    let message = "the sandbox died under the command, and the command with it";
    How::NotStarted(Refusal::new(ErrorCode::CommandExecutionFailed, message))
}

fn not_launched(step: Step, errno: i32) -> Refusal {
    let cause = io::Error::from_raw_os_error(errno);
    match step {
        Step::Exec => Refusal::new(
            ErrorCode::CommandExecutionFailed,
            format!("the program could not be started: {cause}"),
        ),
        Step::Directory => {
            let message = format!(
                "the command could not enter its working directory: {cause}; it runs as a user without rights there, or the directory is gone"
            );
            Refusal::new(ErrorCode::CommandExecutionFailed, message)
        }
        Step::Script => Refusal::new(
            ErrorCode::CommandExecutionFailed,
            "the script changed between the check and the start",
        ),
        other => Refusal::new(
            ErrorCode::SandboxUnavailable,
            format!("{other} failed: {cause}; nothing was run"),
        ),
    }
}

/// Writes the input; a command that does not read it, or closes it, just does not get the rest.
async fn feed(stdin: Option<pipe::Sender>, input: Option<&str>) {
    if let (Some(mut stdin), Some(input)) = (stdin, input) {
        let _ = stdin.write_all(input.as_bytes()).await;
    }
}

async fn pump(mut from: pipe::Receiver, stream: Stream, live: &Live) {
    let mut buffer = Vec::with_capacity(FIRST_READ_BYTES);
    loop {
        // Most commands say little; who fills the buffer gets a larger one.
        if buffer.len() == buffer.capacity() {
            buffer.reserve(READ_BYTES);
        }
        buffer.clear();
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => live.push(stream, &buffer),
        }
    }
}
