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
        match timeout(patience, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers say nothing to us.
                Err(_) => {}
            },
            Ok(Some(Err(_))) => {
                let refusal = Refusal::new(ErrorCode::InvalidRequest, "the body ended early");
                return Err((StatusCode::BAD_REQUEST, refusal));
            }
            Err(_) => {
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
