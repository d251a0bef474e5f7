//! Bodies of requests, read within limits of size and time. A body that is too large is never held, and neither are
//! more bytes of unfinished bodies than a machine has room for: some come from whoever knows the address.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use countersign_gateway::error::{ErrorCode, Refusal};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use crate::limits::{BODY_PATIENCE, BODY_PIECE_PATIENCE, DISCARD_PATIENCE, DISCARDED_BYTES_MAX, UNFINISHED_BYTES_MAX};

/// Why a body was not read, and the status that says so.
pub(crate) type Unread = (StatusCode, Refusal);

/// A body as it comes, off the wire or through the router.
pub(crate) trait Coming: Body<Data = Bytes> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Coming for B {}

pub(crate) async fn read(headers: &HeaderMap, mut body: impl Coming, bytes_max: usize) -> Result<Bytes, Unread> {
    if let Some(announced) = headers.get(header::CONTENT_LENGTH) {
        let announced: Option<u64> = announced.to_str().ok().and_then(|text| text.parse().ok());
        if announced.is_none_or(|bytes| bytes > bytes_max as u64) {
            discard(body);
            return Err(too_large(bytes_max));
        }
    }
    let Some(first) = piece(&mut body, BODY_PIECE_PATIENCE).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > bytes_max {
        discard(body);
        return Err(too_large(bytes_max));
    }
    if body.is_end_stream() {
        // Nearly every message comes in one piece, and need not be copied.
        return Ok(first);
    }
    let deadline = Instant::now() + BODY_PATIENCE;
    let mut held = room(first.len()).await?;
    let mut whole = Vec::from(first);
    loop {
        let patience = BODY_PIECE_PATIENCE.min(deadline.saturating_duration_since(Instant::now()));
        let Some(next) = piece(&mut body, patience).await? else {
            return Ok(whole.into());
        };
        if whole.len() + next.len() > bytes_max {
            discard(body);
            return Err(too_large(bytes_max));
        }
        // A single body may be longer, where the operator says so; it then takes all there is.
        let left = UNFINISHED_BYTES_MAX - held.num_permits();
        held.merge(room(next.len().min(left)).await?);
        whole.extend_from_slice(&next);
    }
}

/// What all bodies that have not come to their end may take together, byte by byte.
static ROOM: Semaphore = Semaphore::const_new(UNFINISHED_BYTES_MAX);

/// Room for so many bytes, as soon as there is some: whoever stalls loses theirs.
async fn room(bytes: usize) -> Result<SemaphorePermit<'static>, Unread> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let room = timeout(BODY_PIECE_PATIENCE, ROOM.acquire_many(bytes)).await;
    room.ok().and_then(Result::ok).ok_or_else(|| {
        let message = "too many bodies are on their way at once; come again in a moment";
        let refusal = Refusal::new(ErrorCode::QueueFull, message);
        (StatusCode::SERVICE_UNAVAILABLE, refusal)
    })
}

/// A body that a route reads by itself, held to the same times: whoever sends it slowly, or not at all, does not keep
/// the connection for ever.
pub(crate) struct Punctual<B> {
    body: B,
    deadline: Option<Instant>,
    /// Until when the next piece must come, once one is waited for.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<B> Punctual<B> {
    pub(crate) fn new(body: B) -> Self {
        Self {
            body,
            deadline: None,
            patience: None,
        }
    }
}

/// Nothing came for too long.
#[derive(Debug, thiserror::Error)]
#[error("the rest of the body did not come in time")]
struct Late;

impl<B: Coming> Body for Punctual<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(piece) = Pin::new(&mut self.body).poll_frame(cx) {
            self.patience = None;
            return Poll::Ready(piece.map(|piece| piece.map_err(Into::into)));
        }
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + BODY_PATIENCE);
        let patience = self
            .patience
            .get_or_insert_with(|| Box::pin(sleep_until(deadline.min(now + BODY_PIECE_PATIENCE))));
        patience.as_mut().poll(cx).map(|()| Some(Err(Late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The next bytes; none at the end.
async fn piece(body: &mut impl Coming, patience: Duration) -> Result<Option<Bytes>, Unread> {
    loop {
        let begun = Instant::now();
        match timeout(patience, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers say nothing to us.
                Err(_) => {}
            },
            // A body that keeps time itself may be first to lose patience.
            Ok(Some(Err(_))) if begun.elapsed() < patience => {
                let refusal = Refusal::new(ErrorCode::InvalidRequest, "the body ended early");
                return Err((StatusCode::BAD_REQUEST, refusal));
            }
            Ok(Some(Err(_))) | Err(_) => {
                let refusal = Refusal::new(ErrorCode::InvalidRequest, Late.to_string());
                return Err((StatusCode::REQUEST_TIMEOUT, refusal));
            }
        }
    }
}

/// Reads on for a while and keeps nothing: a client that sends first and reads later would otherwise
/// find its connection reset before it read why.
fn discard(mut body: impl Coming) {
    tokio::spawn(async move {
        let deadline = Instant::now() + DISCARD_PATIENCE;
        let mut bytes = 0;
        while bytes < DISCARDED_BYTES_MAX {
            match timeout_at(deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Ok(Some(Err(_)) | None) | Err(_) => return,
            }
        }
    });
}

fn too_large(bytes_max: usize) -> Unread {
    let message = format!("a body has at most {bytes_max} bytes");
    let refusal = Refusal::new(ErrorCode::InvalidRequest, message).with("body_bytes_max", bytes_max);
    (StatusCode::PAYLOAD_TOO_LARGE, refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use tokio::sync::mpsc;

    /// A body whose pieces come when they are sent.
    struct Sent(mpsc::Receiver<&'static str>);

    impl Body for Sent {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let piece = self.0.poll_recv(cx);
            piece.map(|piece| piece.map(|text| Ok(Frame::data(Bytes::from(text)))))
        }
    }

    fn punctual() -> (mpsc::Sender<&'static str>, axum::body::Body) {
        let (sender, pieces) = mpsc::channel(4);
        (sender, axum::body::Body::new(Punctual::new(Sent(pieces))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_in_time_is_read_whole() {
        let (sender, body) = punctual();
        let reading = tokio::spawn(to_bytes(body, 100));
        for piece in ["a", "b", "c"] {
            tokio::time::sleep(BODY_PIECE_PATIENCE - Duration::from_millis(1)).await;
            sender.send(piece).await.unwrap();
        }
        drop(sender);
        assert_eq!(reading.await.unwrap().unwrap(), "abc");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_trickles_without_end_is_given_up() {
        let (sender, body) = punctual();
        sender.send("a").await.unwrap();
        let began = Instant::now();
        assert!(to_bytes(body, 100).await.is_err());
        assert_eq!(began.elapsed().as_secs(), BODY_PIECE_PATIENCE.as_secs());
        drop(sender);
        let (sender, body) = punctual();
        let trickle = tokio::spawn(async move {
            while sender.send("a").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let began = Instant::now();
        assert!(to_bytes(body, 100).await.is_err());
        assert_eq!(began.elapsed().as_secs(), BODY_PATIENCE.as_secs());
        trickle.await.unwrap();
    }
}
