//! Bytes and descriptors over a local stream socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::check;

/// More descriptors than any message of ours carries; the kernel's own bound is 253.
pub(crate) const DESCRIPTORS_MAX: usize = 250;

#[repr(C, align(8))]
struct Control([u8; control_bytes()]);

const fn control_bytes() -> usize {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) as usize }
}

/// Sends the beginning of `bytes` together with all of `fds`; returns how many bytes went.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > DESCRIPTORS_MAX {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; control_bytes()]);
    // SAFETY: an all-zero msghdr is valid and empty.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = (fds.len() * size_of::<RawFd>()) as u32;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: arithmetic only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as _;
        // SAFETY: the control buffer is aligned and large enough for one header with DESCRIPTORS_MAX
        // descriptors, which was checked above.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
            let mut place: *mut RawFd = libc::CMSG_DATA(header).cast();
            for fd in fds {
                place.write_unaligned(fd.as_raw_fd());
                place = place.add(1);
            }
        }
    }
    // SAFETY: the message points at buffers that outlive the call.
    check(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) } as i64)
        .map(|sent| sent as usize)
}

/// Whether nobody is at the other end any more.
pub(crate) fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    is_raised(socket, libc::POLLRDHUP)
}

/// Whether a descriptor has one of these events, or an error, at this moment.
pub(crate) fn is_raised(fd: BorrowedFd<'_>, events: libc::c_short) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one pollfd, and no waiting.
    check(i64::from(unsafe { libc::poll(&raw mut poll, 1, 0) })).is_ok_and(|found| found != 0)
}

/// What one reception brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes, and every descriptor that came with them. None is the end.
    Whole(usize),
    /// So many bytes, but we have no room for all of their descriptors. The bytes are gone from the socket, so whoever
    /// reads frames goes on to the end of this one.
    WithoutDescriptors(usize),
}

/// Receives at most `bytes.len()` bytes and any descriptors that come with them.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<Received> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; control_bytes()]);
    // SAFETY: an all-zero msghdr is valid and empty.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let received = loop {
        // SAFETY: the message points at writable buffers that outlive the call.
        match check(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) } as i64) {
            Ok(received) => break received as usize,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    };
    // SAFETY: the kernel filled the control buffer with well-formed headers; each descriptor in it is new
    // and ours alone.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let payload = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let place: *const RawFd = libc::CMSG_DATA(header).cast();
                for index in 0..payload / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(place.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(if message.msg_flags & libc::MSG_CTRUNC == 0 {
        Received::Whole(received)
    } else {
        Received::WithoutDescriptors(received)
    })
}

/// Waits until the descriptor can be written.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    match check(unsafe { libc::poll(&raw mut poll, 1, -1) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(error),
        _ => Ok(()),
    }
}

/// Waits until the descriptor can be read or its other end is gone.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    poll_readable(fd, -1).map(drop)
}

/// The same, no longer than this.
pub(crate) fn wait_readable_for(fd: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if poll_readable(fd, left.as_millis().min(i32::MAX as u128) as i32)? {
            return Ok(());
        }
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// False when the time was over, or a signal came, before there was anything.
fn poll_readable(fd: BorrowedFd<'_>, patience_ms: i32) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    match check(unsafe { libc::poll(&raw mut poll, 1, patience_ms) }) {
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(false),
        polled => polled.map(|found| found > 0),
    }
}
