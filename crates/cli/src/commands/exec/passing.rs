//! The output of a command, passed on as it comes. So is what it reads, if anything does.

use std::io::{self, Write as _};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context as _;
use countersign_gateway::audit::Pending;
use countersign_gateway::service::Progress;
use countersign_gateway::tools::exec::request::Stream;
use tokio::sync::watch;

use super::feeding::Feeding;

/// Bytes that wait for their reader before the command has to. It may be more by one read of each stream.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// Takes what the command writes. A thread writes it to our own streams: whoever reads those may not do so for a while.
pub(super) struct Passing {
    pieces: mpsc::Sender<Piece>,
    state: watch::Sender<State>,
    /// What the command reads from us.
    feeding: Option<Feeding>,
}

/// The thread that writes.
pub(super) struct Writer(JoinHandle<anyhow::Result<()>>);

enum Piece {
    Written(Stream, Vec<u8>),
    /// The command has ended.
    End,
}

#[derive(Default)]
struct State {
    /// Bytes that were not passed on yet.
    waiting: usize,
    /// The command has written something.
    any: bool,
    /// Nobody reads it any more, or it cannot be written.
    is_unread: bool,
}

impl Passing {
    pub(super) fn start(feeding: Option<Feeding>) -> (Arc<Self>, Writer) {
        let (pieces, incoming) = mpsc::channel();
        let passing = Arc::new(Self {
            pieces,
            state: watch::Sender::default(),
            feeding,
        });
        let state = passing.state.clone();
        let writer = std::thread::spawn(move || write_all(&incoming, &state));
        (passing, Writer(writer))
    }

    /// Resolves when nobody reads what the command writes.
    pub(super) async fn unread(&self) {
        // The sender lives as long as `self`, so this cannot fail while we wait.
        let _ = self.state.subscribe().wait_for(|state| state.is_unread).await;
    }

    /// Nothing comes any more; whether anything came.
    pub(super) fn end(&self) -> bool {
        // A writer that is gone has told why.
        let _ = self.pieces.send(Piece::End);
        self.state.borrow().any
    }
}

impl Writer {
    /// Waits until everything is passed on.
    pub(super) fn join(self) -> anyhow::Result<()> {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Progress for Passing {
    /// Whoever reads the output wants that alone.
    fn report(&self, _message: &str) {}

    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        self.state.send_modify(|state| {
            state.any = true;
            state.waiting += bytes.len();
        });
        let _ = self.pieces.send(Piece::Written(stream, bytes.to_vec()));
    }

    fn feeds(&self) -> bool {
        self.feeding.is_some()
    }

    fn fed(&self) -> Pending<Vec<u8>> {
        match &self.feeding {
            Some(feeding) => feeding.next(),
            None => Box::pin(std::future::ready(Vec::new())),
        }
    }

    fn room(&self) -> Pending<()> {
        let mut state = self.state.subscribe();
        Box::pin(async move {
            let has_room = |state: &State| state.waiting < WAITING_BYTES_MAX || state.is_unread;
            let _ = state.wait_for(has_room).await;
        })
    }
}

/// Writes what comes until the command has ended, or until it cannot be written.
fn write_all(incoming: &mpsc::Receiver<Piece>, state: &watch::Sender<State>) -> anyhow::Result<()> {
    while let Ok(Piece::Written(stream, bytes)) = incoming.recv() {
        if let Err(error) = write(stream, &bytes) {
            state.send_modify(|state| state.is_unread = true);
            return match error.kind() {
                io::ErrorKind::BrokenPipe => Ok(()),
                _ => Err(error).context("cannot pass on what the command writes"),
            };
        }
        state.send_modify(|state| state.waiting -= bytes.len());
    }
    Ok(())
}

fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
        Stream::Stderr => io::stderr().lock().write_all(bytes),
    }
}
