//! Answers that are written while they are made: a bounded channel with a response's body at its end.
//!
//! Whoever writes waits for whoever reads, so no client makes memory grow; one that takes no bytes for too
//! long is cut by its connection, and the writer notices.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::Extensions;
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::http::Hold;
use crate::limits::PIECES_WAITING_MAX;

/// The end that is written to.
#[derive(Clone)]
pub(crate) struct Sender(mpsc::Sender<Piece>);

type Piece = Result<Bytes, io::Error>;

/// The reader has gone.
#[derive(Debug)]
pub(crate) struct Gone;

/// A body that carries what the sender is given, and holds its permit and its connection until it ends.
pub(crate) fn body(extensions: &Extensions, permit: OwnedSemaphorePermit) -> (Sender, Body) {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING_MAX);
    let body = Body::new(Streamed {
        receiver,
        _hold: extensions.get::<Hold>().cloned(),
        _permit: permit,
    });
    (Sender(sender), body)
}

impl Sender {
    pub(crate) async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.0.send(Ok(bytes)).await.map_err(|_| Gone)
    }

    /// Ends the body so that its reader knows that it is not whole.
    pub(crate) async fn fail(&self, reason: String) {
        // Who has gone need not be told.
        let _ = self.0.send(Err(io::Error::other(reason))).await;
    }

    /// Resolves when nobody reads any more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// The same end for code that blocks.
pub(crate) struct Pipe(Sender);

impl Pipe {
    pub(crate) fn new(sender: Sender) -> Self {
        Self(sender)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        let sent = self.0.0.blocking_send(piece);
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Streamed {
    receiver: mpsc::Receiver<Piece>,
    _hold: Option<Hold>,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = self.receiver.poll_recv(context);
        next.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
