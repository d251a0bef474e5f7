//! News for pages that are open: that the queue changed, and how many wait. What changed they fetch.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::ApprovalFilter;
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::Console;
use super::access::Reader;
use crate::limits::KEEP_ALIVE_EVERY;
use crate::office;

/// News of one moment are told together.
const TOGETHER: Duration = Duration::from_millis(100);
/// News that a page may be behind; it is told only that something changed.
const BEHIND_MAX: usize = 8;

pub(super) async fn stream(State(console): State<Arc<Console>>, _: Reader, headers: HeaderMap) -> Response {
    let Ok(permit) = Arc::clone(&console.pages).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")]).into_response();
    };
    let secret = office::cookie(&headers).unwrap_or_default().to_owned();
    let (sender, news) = mpsc::channel(BEHIND_MAX);
    tokio::spawn(tell(console, secret, sender));
    let mut response = Response::new(Body::new(News { news, _permit: permit }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Tells a page until it is closed, or its login ends.
async fn tell(console: Arc<Console>, secret: String, page: mpsc::Sender<Bytes>) {
    let mut changes = console.office.board.changes();
    loop {
        changes.mark_unchanged();
        let news = match console.office.logins.who(&secret).await {
            Ok(Some(_)) => match console.office.board.list(ApprovalFilter::open()).await {
                Ok(open) => format!("event: queue\ndata: {{\"waiting\":{}}}\n\n", open.len()),
                Err(_) => ": the record is away\n\n".to_owned(),
            },
            Ok(None) => "event: gone\ndata: {}\n\n".to_owned(),
            Err(_) => ": the record is away\n\n".to_owned(),
        };
        let is_over = news.starts_with("event: gone");
        if page.send(news.into()).await.is_err() || is_over {
            return;
        }
        tokio::select! {
            _ = changes.changed() => tokio::time::sleep(TOGETHER).await,
            () = tokio::time::sleep(KEEP_ALIVE_EVERY) => {}
            () = page.closed() => return,
        }
    }
}

struct News {
    news: mpsc::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for News {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.news.poll_recv(context).map(|news| news.map(|news| Ok(Frame::data(news))))
    }
}
