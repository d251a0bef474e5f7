//! The streams of a command, as whoever reads them needs them.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;

use crate::sys;

/// A pipe that a command writes to. Reading it answers at once; to the command it is like any other.
pub fn output() -> io::Result<(PipeReader, PipeWriter)> {
    let (ours, theirs) = io::pipe()?;
    sys::set_nonblocking(ours.as_fd())?;
    Ok((ours, theirs))
}
