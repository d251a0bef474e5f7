//! Frames between the server, the zygote and the keepers, over local stream sockets.
//!
//! A frame is a tag byte, a length (four bytes, little endian) and a body in postcard; descriptors travel
//! with its first bytes. Between a launch and its reply the server sends single bytes instead: first [`GO`]
//! or [`ABORT`], read by the prepared child itself, then [`TERMINATE`] and [`KILL`] as needed. A byte that
//! arrives when the launch is already over is skipped by the keeper, so no side ever has to wait for the
//! other before it speaks.
//!
//! The `send_*` and `receive_*` functions block, also on a non-blocking socket. An event loop can instead feed what
//! it reads to [`decode_reply`].

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::launch::{Launch, Reply};
use crate::sys::sockets::{self, Received};

/// Opens the gate: the command runs.
pub const GO: u8 = b'g';
/// Closes the gate: the command never runs.
pub const ABORT: u8 = b'a';
/// TERM for the whole tree.
pub const TERMINATE: u8 = b't';
/// KILL for the whole tree.
pub const KILL: u8 = b'k';

/// First byte of every frame; different from all control bytes.
const FRAME: u8 = 0xC5;
const HEADER_BYTES: usize = 5;
/// Largest body. Linux takes about 2 MiB of arguments and environment, so nothing useful is longer.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// Why a frame could not be sent or understood.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("cannot encode a frame")]
    Encode(#[source] postcard::Error),
    #[error("cannot decode a frame")]
    Decode(#[source] postcard::Error),
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("a frame starts with an unknown byte {0:#04x}")]
    UnknownTag(u8),
    #[error("cannot send a frame")]
    Send(#[source] io::Error),
    #[error("cannot receive a frame")]
    Receive(#[source] io::Error),
    /// The frame was read to its end, so the next one can be.
    #[error("a frame came with more files than this process may open")]
    NoRoom,
    #[error("the other end is gone")]
    Closed,
}

impl WireError {
    /// Whether both sides still agree where the next frame begins.
    pub(crate) fn leaves_in_step(&self) -> bool {
        match self {
            // Nothing was sent, or all of it was read.
            WireError::Encode(_) | WireError::TooLong(_) | WireError::NoRoom => true,
            WireError::Decode(_)
            | WireError::UnknownTag(_)
            | WireError::Send(_)
            | WireError::Receive(_)
            | WireError::Closed => false,
        }
    }
}

/// Sends a launch and its descriptors (working directory, stdin, stdout, stderr, programs).
pub fn send_launch(socket: BorrowedFd<'_>, launch: &Launch, fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    send(socket, launch, fds)
}

/// A launch that is being sent: it may be longer than a socket holds, and a keeper may not be reading.
pub struct Outgoing {
    frame: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    pub fn new(launch: &Launch) -> Result<Self, WireError> {
        let frame = encode(launch)?;
        Ok(Self { frame, sent: 0 })
    }

    /// Sends what there is room for, on a socket that does not block; whether that was the last of it. The descriptors
    /// (as [`send_launch`] knows them) go with the first of it.
    pub fn send(&mut self, socket: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) -> Result<bool, WireError> {
        while self.sent < self.frame.len() {
            let fds = if self.sent == 0 { fds } else { &[] };
            match offer(socket, &self.frame[self.sent..], fds)? {
                Some(sent) => self.sent += sent,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Sends one control byte.
pub fn send_control(socket: BorrowedFd<'_>, control: u8) -> Result<(), WireError> {
    send_frame(socket, &[control], &[])
}

/// Blocks until the keeper has answered.
pub fn receive_reply(socket: BorrowedFd<'_>) -> Result<Reply, WireError> {
    let mut fds = Vec::new();
    receive(socket, &mut fds)?.ok_or(WireError::Closed)
}

/// The reply at the start of what was read so far and its length, or `None` when more must be read.
pub fn decode_reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>, WireError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let end = HEADER_BYTES + body_bytes(header)?;
    match bytes.get(HEADER_BYTES..end) {
        None => Ok(None),
        Some(body) => Ok(Some((postcard::from_bytes(body).map_err(WireError::Decode)?, end))),
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, WireError> {
    let mut frame = vec![FRAME, 0, 0, 0, 0];
    frame = postcard::to_extend(value, frame).map_err(WireError::Encode)?;
    let body = frame.len() - HEADER_BYTES;
    match u32::try_from(body) {
        Ok(length) if body <= FRAME_BYTES_MAX => frame[1..HEADER_BYTES].copy_from_slice(&length.to_le_bytes()),
        _ => return Err(WireError::TooLong(body)),
    }
    Ok(frame)
}

pub(crate) fn send<T: Serialize>(socket: BorrowedFd<'_>, value: &T, fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    send_frame(socket, &encode(value)?, fds)
}

fn send_frame(socket: BorrowedFd<'_>, mut bytes: &[u8], mut fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    while !bytes.is_empty() {
        match offer(socket, bytes, fds)? {
            Some(sent) => {
                bytes = &bytes[sent..];
                fds = &[];
            }
            None => sockets::wait_writable(socket).map_err(WireError::Send)?,
        }
    }
    Ok(())
}

/// How many bytes were taken; `None` when a socket that does not block has no room.
fn offer(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<usize>, WireError> {
    loop {
        match sockets::send(socket, bytes, fds) {
            Ok(sent) => return Ok(Some(sent)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(WireError::Closed),
            Err(error) => return Err(WireError::Send(error)),
        }
    }
}

/// The next frame with its descriptors; `None` when the other end closed between two frames. Control bytes
/// that came too late for the launch they were meant for are skipped.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    fds: &mut Vec<OwnedFd>,
) -> Result<Option<T>, WireError> {
    let mut arriving = Arriving {
        socket,
        fds,
        has_room: true,
    };
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    while filled < HEADER_BYTES {
        match arriving.take(&mut header[filled..])? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(WireError::Closed),
            count => filled += count,
        }
        let late = header[..filled]
            .iter()
            .take_while(|byte| matches!(**byte, GO | ABORT | TERMINATE | KILL))
            .count();
        header.copy_within(late..filled, 0);
        filled -= late;
    }
    let mut body = vec![0; body_bytes(&header)?];
    let mut filled = 0;
    while filled < body.len() {
        match arriving.take(&mut body[filled..])? {
            0 => return Err(WireError::Closed),
            count => filled += count,
        }
    }
    if !arriving.has_room {
        return Err(WireError::NoRoom);
    }
    postcard::from_bytes(&body).map(Some).map_err(WireError::Decode)
}

/// A frame that is being read.
struct Arriving<'a> {
    socket: BorrowedFd<'a>,
    fds: &'a mut Vec<OwnedFd>,
    /// False once a descriptor was lost because we may open no more.
    has_room: bool,
}

impl Arriving<'_> {
    /// Waits for bytes; none is the end.
    fn take(&mut self, bytes: &mut [u8]) -> Result<usize, WireError> {
        loop {
            match sockets::receive(self.socket, bytes, self.fds) {
                Ok(Received::Whole(count)) => return Ok(count),
                Ok(Received::WithoutDescriptors(count)) => {
                    self.has_room = false;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sockets::wait_readable(self.socket).map_err(WireError::Receive)?
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
                Err(error) => return Err(WireError::Receive(error)),
            }
        }
    }
}

fn body_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, WireError> {
    let [tag, length @ ..] = *header;
    match (tag, u32::from_le_bytes(length) as usize) {
        (FRAME, length) if length <= FRAME_BYTES_MAX => Ok(length),
        (FRAME, length) => Err(WireError::TooLong(length)),
        (tag, _) => Err(WireError::UnknownTag(tag)),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::launch::{Body, ExecRights, Step, Unchanged};

    #[test]
    fn late_control_bytes_are_skipped_before_a_frame() {
        let (here, there) = UnixStream::pair().unwrap();
        for control in [GO, TERMINATE, KILL, ABORT] {
            send_control(here.as_fd(), control).unwrap();
        }
        send(here.as_fd(), &Reply::Aborted, &[there.as_fd()]).unwrap();
        let mut fds = Vec::new();
        assert_eq!(receive(there.as_fd(), &mut fds).unwrap(), Some(Reply::Aborted));
        assert_eq!(fds.len(), 1);
        drop(here);
        assert_eq!(receive::<Reply>(there.as_fd(), &mut fds).unwrap(), None);
    }

    #[test]
    fn a_launch_that_nobody_reads_keeps_nobody_waiting() {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let launch = Launch {
            argv: vec![CString::new(vec![b'a'; 2 << 20]).unwrap()],
            env: Vec::new(),
            cwd: c"/".to_owned(),
            exec: ExecRights::Any,
            cpu_seconds: None,
            ends_after_ms: None,
            programs: Vec::new(),
            body: Body::Exec {
                unchanged: Unchanged::default(),
            },
        };
        let mut outgoing = Outgoing::new(&launch).unwrap();
        assert!(!outgoing.send(here.as_fd(), &[there.as_fd()]).unwrap());
        assert!(!outgoing.send(here.as_fd(), &[there.as_fd()]).unwrap());
        let reading = std::thread::spawn(move || {
            let mut fds = Vec::new();
            let received = receive::<Launch>(there.as_fd(), &mut fds).unwrap().unwrap();
            (received.argv, fds.len())
        });
        while !outgoing.send(here.as_fd(), &[]).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(reading.join().unwrap(), (launch.argv, 1));
    }

    #[test]
    fn a_reply_is_decoded_from_pieces() {
        let reply = Reply::LaunchFailed {
            step: Step::Exec,
            errno: 2,
        };
        let frame = encode(&reply).unwrap();
        for end in 0..frame.len() {
            assert!(decode_reply(&frame[..end]).unwrap().is_none());
        }
        assert_eq!(decode_reply(&frame).unwrap(), Some((reply, frame.len())));
    }

    #[test]
    fn foreign_and_endless_frames_are_refused() {
        assert!(matches!(decode_reply(&[1, 0, 0, 0, 0]), Err(WireError::UnknownTag(1))));
        assert!(matches!(
            decode_reply(&[FRAME, 255, 255, 255, 255]),
            Err(WireError::TooLong(_))
        ));
    }
}
