//! Bodies of requests, read within limits of size and time. A body that is too large is never held, and neither are
//! more bytes of unfinished bodies than a machine has room for: some come from whoever knows the address.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use countersign_gateway::error::{ErrorCode, Refusal};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

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
                let refusal = Refusal::new(ErrorCode::InvalidRequest, "the rest of the body did not come in time");
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
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::BoxError;
    use http_body::Frame;
    use tokio::sync::mpsc;

    use super::*;

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

    /// A body, and how to send it.
    fn sent() -> (mpsc::Sender<&'static str>, Sent) {
        let (sender, pieces) = mpsc::channel(4);
        (sender, Sent(pieces))
    }

    async fn read_small(body: Sent) -> Result<Bytes, StatusCode> {
        read(&HeaderMap::new(), body, 100).await.map_err(|(status, _)| status)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_in_time_is_read_whole() {
        let (sender, body) = sent();
        let reading = tokio::spawn(read_small(body));
        for piece in ["a", "b", "c"] {
            tokio::time::sleep(BODY_PIECE_PATIENCE - Duration::from_millis(1)).await;
            sender.send(piece).await.unwrap();
        }
        drop(sender);
        assert_eq!(reading.await.unwrap().unwrap(), "abc");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_trickles_without_end_is_given_up() {
        let (sender, body) = sent();
        sender.send("a").await.unwrap();
        let began = Instant::now();
        assert_eq!(read_small(body).await, Err(StatusCode::REQUEST_TIMEOUT));
        assert_eq!(began.elapsed().as_secs(), BODY_PIECE_PATIENCE.as_secs());
        drop(sender);
        let (sender, body) = sent();
        let trickle = tokio::spawn(async move {
            while sender.send("a").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let began = Instant::now();
        assert_eq!(read_small(body).await, Err(StatusCode::REQUEST_TIMEOUT));
        assert_eq!(began.elapsed().as_secs(), BODY_PATIENCE.as_secs());
        trickle.await.unwrap();
    }
}
