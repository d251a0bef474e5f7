//! What a command reads from our standard input, passed on as it comes.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Seek as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::audit::Pending;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{major, minor};
use tokio::sync::mpsc;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for the command to read them; then whoever writes to us waits, as for a pipe that is full.
const PIECES_WAITING_MAX: usize = 1;

/// Our standard input, of which nothing is read before the command runs.
#[derive(Clone, Default)]
pub(super) struct Feeding(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    Unread,
    /// A thread reads it.
    Read(Arc<tokio::sync::Mutex<mpsc::Receiver<Vec<u8>>>>),
}

impl Feeding {
    /// None where there is nothing to read: a person, who is not part of what is run, or what is known to be empty.
    pub(super) fn of_stdin() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Ok(None);
        }
        let file = File::from(stdin.as_fd().try_clone_to_owned()?);
        Ok((!is_empty(file)?).then(Self::default))
    }

    /// The next piece; an empty one is the end.
    pub(super) fn next(&self) -> Pending<Vec<u8>> {
        let pieces = self.pieces();
        Box::pin(async move { pieces.lock().await.recv().await.unwrap_or_default() })
    }

    fn pieces(&self) -> Arc<tokio::sync::Mutex<mpsc::Receiver<Vec<u8>>>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Read(pieces) => pieces.clone(),
            State::Unread => {
                let (sender, receiver) = mpsc::channel(PIECES_WAITING_MAX);
                // Nobody waits for this thread: it may stand in a read that never ends, and goes when we do.
                std::thread::spawn(move || read_all(&sender));
                let pieces = Arc::new(tokio::sync::Mutex::new(receiver));
                *state = State::Read(pieces.clone());
                pieces
            }
        }
    }
}

/// Reads until the end, or until nobody takes it. What cannot be read has ended.
fn read_all(pieces: &mpsc::Sender<Vec<u8>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let count = match stdin.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return crate::start::say(&format!(
                    "countersign: standard input cannot be read any further: {error}"
                ));
            }
        };
        piece.truncate(count);
        if pieces.blocking_send(piece).is_err() {
            return;
        }
    }
}

/// Whether nothing will ever come, as far as that is known without waiting.
fn is_empty(mut input: File) -> io::Result<bool> {
    let found = input.metadata()?;
    if found.is_file() {
        return Ok(input.stream_position()? >= found.len());
    }
    if found.file_type().is_char_device() {
        // `/dev/null`, by the number that the kernel gives it.
        return Ok((major(found.rdev()), minor(found.rdev())) == (1, 3));
    }
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    poll(&mut polled, Some(&at_once))?;
    let told = polled[0].revents();
    Ok(told.contains(PollFlags::HUP) && !told.contains(PollFlags::IN))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_known_to_be_empty_is_not_passed_on() {
        let of_pipe = |written: &[u8]| {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(written).unwrap();
            (File::from(std::os::fd::OwnedFd::from(reader)), writer)
        };
        assert!(is_empty(File::open("/dev/null").unwrap()).unwrap());
        assert!(!is_empty(File::open("/dev/zero").unwrap()).unwrap());
        assert!(!is_empty(File::open("/etc/passwd").unwrap()).unwrap());
        let (reader, writer) = of_pipe(b"");
        assert!(
            !is_empty(reader.try_clone().unwrap()).unwrap(),
            "somebody may still write"
        );
        drop(writer);
        assert!(is_empty(reader).unwrap());
        let (reader, writer) = of_pipe(b"x");
        drop(writer);
        assert!(!is_empty(reader).unwrap());
    }
}
