//! The wire to one client, as far as we may lose patience with it: a client that does not finish the
//! head of its request, takes no bytes for a while, or whose stream has overflowed, is cut off.
//!
//! hyper could time out heads as well, at the price of a new timer for each request. Here one alarm per
//! connection is looked at when it rings.
//!
//! A client that sends no more may have gone, or wait with its sending side closed (`nc -N` does): to TCP
//! both are one FIN. They differ once they are sent something, since only who has gone refuses it. So the
//! end of what a client sends is *noticed* here, even behind requests that wait for their turn, and whoever
//! must know whether it has gone sends it something harmless: a comment in a stream of events, `100
//! Continue` before an answer. A client that was reset is gone at once.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::limits::{HEAD_PATIENCE, PROBE_EVERY, READ_AHEAD_BYTES_MAX, WRITE_PATIENCE};

/// What may stand before any answer, and means nothing to a client that waits for one.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What a connection and the requests on it know of each other.
#[derive(Default)]
pub(super) struct Wire {
    cut: Notify,
    /// Requests that have begun.
    begun: AtomicUsize,
    /// Requests whose response has not left yet.
    open: AtomicUsize,
    /// Whether the client will send nothing more. It may still read.
    ended: AtomicBool,
    /// Requests that are to be cancelled if the client has gone, and have no response yet.
    probed: AtomicUsize,
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

    /// Makes sure until it is dropped that a client which has sent everything is still there.
    pub(super) fn probe(self: &Arc<Self>) -> Probed {
        self.probed.fetch_add(1, Ordering::Relaxed);
        Probed(Arc::clone(self))
    }

    /// Ends the connection, which hyper would leave open until the client reads on.
    pub(super) fn cut(&self) {
        self.cut.notify_one();
    }

    pub(super) async fn is_cut(&self) {
        self.cut.notified().await;
    }
}

impl Underway {
    /// Whether the client will send nothing more.
    pub(super) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request whose client is looked after.
pub(super) struct Probed(Arc<Wire>);

impl Drop for Probed {
    fn drop(&mut self) {
        self.0.probed.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that fails once the other side has been too slow.
pub(super) struct Line<S> {
    stream: S,
    wire: Arc<Wire>,
    head: Option<Head>,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What came while nobody read.
    ahead: Vec<u8>,
    /// Whether somebody waits for what comes next, and so learns of the end by itself.
    is_read: bool,
    /// What has not been written of the last probe, and when the next one is due.
    probe: &'static [u8],
    probe_due: Option<Pin<Box<Sleep>>>,
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
            ahead: Vec::new(),
            is_read: false,
            probe: &[],
            probe_due: None,
        }
    }

    fn has_ended(&self) -> bool {
        self.wire.ended.load(Ordering::Relaxed)
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

impl<S: AsyncRead + Unpin> Line<S> {
    /// Reads what hyper does not ask for while a request is answered, so that the end behind it is seen.
    /// What is further away than so many bytes is not.
    fn look_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.is_read || self.wire.is_idle() {
            return Ok(());
        }
        while !self.has_ended() && self.ahead.len() < READ_AHEAD_BYTES_MAX {
            let mut space = [MaybeUninit::uninit(); 4_096];
            let mut piece = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(context, &mut piece) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read?,
            }
            match piece.filled() {
                [] => self.wire.ended.store(true, Ordering::Relaxed),
                bytes => self.ahead.extend_from_slice(bytes),
            }
            // Whoever was polled before this must look again.
            context.waker().wake_by_ref();
        }
        Ok(())
    }
}

impl<S: AsyncWrite + Unpin> Line<S> {
    /// Writes the next probe when it is due. Two of them tell: the first one makes a client that has gone
    /// say so, the second one fails then.
    fn poll_probe(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.finish_probe(context))?;
        if !self.has_ended() || self.wire.probed.load(Ordering::Relaxed) == 0 {
            self.probe_due = None;
            return Poll::Ready(Ok(()));
        }
        loop {
            match &mut self.probe_due {
                Some(due) => match due.as_mut().poll(context) {
                    Poll::Pending => return Poll::Ready(Ok(())),
                    Poll::Ready(()) => due.as_mut().reset(Instant::now() + PROBE_EVERY),
                },
                none => *none = Some(Box::pin(sleep(PROBE_EVERY))),
            }
            self.probe = PROBE;
            ready!(self.finish_probe(context))?;
        }
    }

    /// Nothing else may stand in the middle of a probe.
    fn finish_probe(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.probe.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, self.probe))?;
            self.probe = &self.probe[written..];
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let taken = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..taken]);
            self.ahead.drain(..taken);
            return Poll::Ready(Ok(()));
        }
        if self.has_ended() {
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.is_read = read.is_pending();
        match read {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => self.wait_for_head(context),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.finish_probe(context))?;
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.finish_probe(context))?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper comes here each time it is polled, once everything it has to say is written.
        self.look_ahead(context)?;
        ready!(self.poll_probe(context))?;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(shut, context)
    }
}
