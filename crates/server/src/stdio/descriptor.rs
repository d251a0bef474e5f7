//! Standard input and output without a thread in between, where the kernel allows it.
//!
//! Pipes are opened anew through `/proc/self/fd`, so that only our own open file description becomes
//! non-blocking and nobody who shares the original (a shell, our own standard error) is surprised by
//! it. Sockets, which Node gives its children, cannot be opened anew; their description is made
//! non-blocking while we serve and blocking again afterwards. Files and terminals have no readiness
//! to wait for: they are read on a thread of our own, which may be left behind in a read when the
//! server ends, and written through the runtime's blocking pool.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as BlockingSocket;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, Stdout};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;

/// Bytes between the reading thread and us.
const HANDOVER_BYTES: usize = 64 << 10;

pub(super) fn input() -> io::Result<Input> {
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(match kind_of(&descriptor)? {
        Kind::Pipe => match pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
            Ok(pipe) => Input::Pipe(pipe),
            // No /proc, or a pipe that belongs to another user.
            Err(_) => Input::Thread(read_on_a_thread(descriptor)?),
        },
        Kind::Socket => Input::Socket(Socket::new(descriptor)?),
        Kind::Other => Input::Thread(read_on_a_thread(descriptor)?),
    })
}

pub(super) fn output() -> io::Result<Output> {
    let descriptor = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(match kind_of(&descriptor)? {
        Kind::Pipe => match pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
            Ok(pipe) => Output::Pipe(pipe),
            Err(_) => Output::Blocking(tokio::io::stdout()),
        },
        Kind::Socket => Output::Socket(Socket::new(descriptor)?),
        Kind::Other => Output::Blocking(tokio::io::stdout()),
    })
}

enum Kind {
    Pipe,
    Socket,
    Other,
}

fn kind_of(descriptor: &OwnedFd) -> io::Result<Kind> {
    let file_type = File::from(descriptor.try_clone()?).metadata()?.file_type();
    Ok(if file_type.is_fifo() {
        Kind::Pipe
    } else if file_type.is_socket() {
        Kind::Socket
    } else {
        Kind::Other
    })
}

fn read_on_a_thread(descriptor: OwnedFd) -> io::Result<DuplexStream> {
    let (ours, mut theirs) = tokio::io::duplex(HANDOVER_BYTES);
    let runtime = Handle::current();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut file = File::from(descriptor);
        let mut buffer = vec![0; HANDOVER_BYTES];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => {
                    if runtime.block_on(theirs.write_all(&buffer[..read])).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Dropping our end is the end of input.
                Err(error) => {
                    tracing::warn!(%error, "cannot read standard input");
                    return;
                }
            }
        }
    })?;
    Ok(ours)
}

/// A socket that is non-blocking for as long as this lives.
pub(super) struct Socket {
    stream: UnixStream,
    original: BlockingSocket,
}

impl Socket {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let original = BlockingSocket::from(descriptor);
        let stream = original.try_clone()?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: UnixStream::from_std(stream)?,
            original,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = self.original.set_nonblocking(false) {
            tracing::debug!(%error, "cannot make the socket blocking again");
        }
    }
}

pub(super) enum Input {
    Pipe(pipe::Receiver),
    Socket(Socket),
    Thread(DuplexStream),
}

impl AsyncRead for Input {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buf),
            Self::Socket(socket) => Pin::new(&mut socket.stream).poll_read(cx, buf),
            Self::Thread(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

pub(super) enum Output {
    Pipe(pipe::Sender),
    Socket(Socket),
    Blocking(Stdout),
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_write(cx, buf),
            Self::Socket(socket) => Pin::new(&mut socket.stream).poll_write(cx, buf),
            Self::Blocking(stdout) => Pin::new(stdout).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_flush(cx),
            Self::Socket(socket) => Pin::new(&mut socket.stream).poll_flush(cx),
            Self::Blocking(stdout) => Pin::new(stdout).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_shutdown(cx),
            Self::Socket(socket) => Pin::new(&mut socket.stream).poll_shutdown(cx),
            Self::Blocking(stdout) => Pin::new(stdout).poll_shutdown(cx),
        }
    }
}
