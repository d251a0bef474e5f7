//! Where log lines go. A client may leave standard error unread, and a terminal may be held; whoever waits for them
//! ends no command at its deadline, so lines are lost instead, and counted.

use std::io::{self, StderrLock, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A pipe with any room takes this much at once.
const PIECE_BYTES: usize = 4096;
/// A reader that is only slow gets this long, once.
const PATIENCE: Duration = Duration::from_millis(100);

/// Lines lost since one was last written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Standard error, as long as somebody reads it.
pub(super) struct LogLines;

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Held from the question to the write: the room is nobody else's.
        let mut stderr = io::stderr().lock();
        let lost = LOST.load(Ordering::Relaxed);
        let patience = if lost == 0 { PATIENCE } else { Duration::ZERO };
        if !has_room(&stderr, patience) {
            LOST.fetch_add(1, Ordering::Relaxed);
            return Ok(line.len());
        }
        if LOST.swap(0, Ordering::Relaxed) > 0 {
            writeln!(stderr, "{lost} lines of this log were lost: nobody read them")?;
        }
        for piece in line.chunks(PIECE_BYTES) {
            if !has_room(&stderr, PATIENCE) {
                break;
            }
            stderr.write_all(piece)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn has_room(stderr: &StderrLock<'_>, patience: Duration) -> bool {
    let mut asked = [PollFd::new(stderr, PollFlags::OUT)];
    let patience = Timespec::try_from(patience).ok();
    // A file that cannot be asked takes what it is given.
    poll(&mut asked, patience.as_ref()).map_or(true, |ready| ready > 0)
}
