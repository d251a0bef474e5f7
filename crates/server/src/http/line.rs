//! The wire to one client, as far as we may lose patience with it: a client that does not finish the
//! head of its request, takes no bytes for a while, or whose stream has overflowed, is cut off.
//!
//! hyper could time out heads as well, at the price of a new timer for each request. Here one alarm per
//! connection is looked at when it rings.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::limits::{HEAD_PATIENCE, WRITE_PATIENCE};

/// What a connection and the requests on it know of each other.
#[derive(Default)]
pub(super) struct Wire {
    cut: Notify,
    /// Requests that have begun.
    begun: AtomicUsize,
    /// Requests whose response has not left yet.
    open: AtomicUsize,
}

/// A request on its way. The client need not send anything until it is dropped.
pub(super) struct Underway(Arc<Wire>);

/// The same for an answer that is made elsewhere.
#[derive(Clone)]
pub(crate) struct Hold {
    _underway: Arc<Underway>,
}

impl From<Underway> for Hold {
    fn from(underway: Underway) -> Self {
        Self {
            _underway: Arc::new(underway),
        }
    }
}

impl Wire {
    pub(super) fn begin(self: &Arc<Self>) -> Underway {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Underway(Arc::clone(self))
    }

    /// Whether no request is on its way, so that nobody would miss the connection.
    pub(super) fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// Ends the connection, which hyper would leave open until the client reads on.
    pub(super) fn cut(&self) {
        self.cut.notify_one();
    }

    pub(super) async fn is_cut(&self) {
        self.cut.notified().await;
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that fails once the other side has been too slow.
pub(super) struct Line<S> {
    stream: S,
    wire: Arc<Wire>,
    head: Option<Head>,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The head of a request that is being waited for.
struct Head {
    /// How many requests had begun before it.
    after: usize,
    due: Instant,
    /// Rings when this head or an earlier one is due.
    alarm: Pin<Box<Sleep>>,
}

impl<S> Line<S> {
    pub(super) fn new(stream: S, wire: Arc<Wire>) -> Self {
        Self {
            stream,
            wire,
            head: None,
            stalled: None,
        }
    }

    /// Called when there is nothing to read.
    fn wait_for_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.wire.open.load(Ordering::Relaxed) > 0 {
            return Poll::Pending;
        }
        let after = self.wire.begun.load(Ordering::Relaxed);
        let head = match &mut self.head {
            Some(head) if head.after == after => head,
            Some(head) => {
                head.after = after;
                head.due = Instant::now() + HEAD_PATIENCE;
                head
            }
            none => {
                let due = Instant::now() + HEAD_PATIENCE;
                let alarm = Box::pin(sleep_until(due));
                none.insert(Head { after, due, alarm })
            }
        };
        while head.alarm.as_mut().poll(context).is_ready() {
            if head.due <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            head.alarm.as_mut().reset(head.due);
        }
        Poll::Pending
    }

    fn judge<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_PATIENCE)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => self.wait_for_head(context),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(shut, context)
    }
}
