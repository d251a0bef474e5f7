//! News for pages that are open: that the queue changed and how many wait, and, for those that follow it,
//! that the record grew or that something happened to a job. What changed they fetch.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::approval::ApprovalFilter;
use countersign_gateway::audit::RecordError;
use countersign_gateway::ids::JobId;
use countersign_gateway::limits::JOB_EVENTS_AT_ONCE;
use countersign_gateway::session::Caller;
use serde::Deserialize;
use tokio::time::Instant;

use super::Console;
use super::access::Reader;
use crate::office;
use crate::rest::stream::{self, Sender};

/// News of one moment are told together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How soon what other processes wrote is noticed, by a page that follows the record.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How soon a page notices that its login has ended.
const LOGIN_CHECKED_EVERY: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub(super) struct Wanted {
    /// Whether the record is followed.
    #[serde(default)]
    record: String,
    /// The job that is followed.
    #[serde(default)]
    job: String,
}

pub(super) async fn news(
    State(console): State<Arc<Console>>,
    reader: Reader,
    Query(wanted): Query<Wanted>,
    request: Request,
) -> Response {
    let Ok(permit) = Arc::clone(&console.pages).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")]).into_response();
    };
    let headers = request.headers().clone();
    let (sender, body) = stream::body(request.extensions(), permit);
    let follows = Follows {
        record: !wanted.record.is_empty(),
        job: (!wanted.job.is_empty()).then(|| (reader.0, JobId::trusted(wanted.job))),
    };
    tokio::spawn(tell(console, headers, follows, sender));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Tells a page until it is closed, or its login ends.
async fn tell(console: Arc<Console>, headers: HeaderMap, follows: Follows, page: Sender) {
    let mut changes = console.office.board.changes();
    let mut stirred = console.office.job_news.stirred();
    let mut grown = console.office.records.grown();
    let mut stopping = console.stopping.clone();
    let mut told = None;
    let mut checked: Option<Instant> = None;
    loop {
        changes.mark_unchanged();
        grown.mark_unchanged();
        stirred.mark_unchanged();
        // A login is looked at now and then, not for each piece of news.
        if checked.is_none_or(|at| at.elapsed() >= LOGIN_CHECKED_EVERY) {
            if let Ok(None) = office::logged_in(&*console.office.logins, &headers).await {
                let _ = page.send(Bytes::from_static(b"event: gone\ndata: {}\n\n")).await;
                return;
            }
            checked = Some(Instant::now());
        }
        let news = since(&console, &follows, &mut told).await;
        if page.send(news.into()).await.is_err() {
            return;
        }
        let pause = match follows {
            Follows {
                record: false,
                job: None,
            } => LOGIN_CHECKED_EVERY,
            Follows { .. } => LOOK_EVERY,
        };
        let is_over = tokio::select! {
            _ = changes.changed() => false,
            _ = grown.changed(), if follows.record => false,
            _ = stirred.changed(), if follows.job.is_some() => false,
            () = tokio::time::sleep(pause) => false,
            () = page.closed() => true,
            // Told or dropped, both mean stop.
            _ = stopping.wait_for(|stop| *stop) => true,
        };
        if is_over {
            return;
        }
        tokio::time::sleep(TOGETHER).await;
    }
}

/// What a page follows beside the queue.
struct Follows {
    record: bool,
    /// As whom.
    job: Option<(Caller, JobId)>,
}

/// What a page was told last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    waiting: usize,
    /// When the newest question was asked.
    newest: i64,
    /// Any change of any question moves one of its versions.
    versions: u64,
    head: u64,
    /// The followed job's version, its session's last event, and how much of a message is written.
    job: (u64, u64, usize),
}

/// What is new since it was last told; a sign of life where nothing is.
async fn since(console: &Console, follows: &Follows, told: &mut Option<Seen>) -> String {
    let Ok(now) = look(console, follows, told.as_ref()).await else {
        return ": the record is away\n\n".to_owned();
    };
    let before = told.replace(now);
    let is_other = |part: fn(&Seen) -> (usize, i64, u64)| before.as_ref().map(part) != Some(part(&now));
    let mut news = String::new();
    if is_other(|seen| (seen.waiting, seen.newest, seen.versions)) {
        news.push_str(&format!("event: queue\ndata: {{\"waiting\":{}}}\n\n", now.waiting));
    }
    if follows.record && is_other(|seen| (0, 0, seen.head)) {
        news.push_str(&format!("event: record\ndata: {{\"seq\":{}}}\n\n", now.head));
    }
    if follows.job.is_some() && before.map(|seen| seen.job) != Some(now.job) {
        news.push_str(&format!("event: job\ndata: {{\"seq\":{}}}\n\n", now.job.1));
    }
    if news.is_empty() {
        news.push_str(": still here\n\n");
    }
    news
}

async fn look(console: &Console, follows: &Follows, before: Option<&Seen>) -> Result<Seen, RecordError> {
    let job = match &follows.job {
        Some((caller, id)) => job(console, caller, id, before.map_or(0, |seen| seen.job.1)).await,
        None => (0, 0, 0),
    };
    let open = console.office.board.list(ApprovalFilter::open()).await?;
    Ok(Seen {
        waiting: open.len(),
        newest: open.last().map_or(0, |approval| approval.created_at.as_millis()),
        versions: open.iter().map(|approval| approval.version).sum(),
        head: match follows.record {
            true => console.office.records.head().await?,
            false => 0,
        },
        job,
    })
}

/// How far a job is; one that cannot be looked at stands still.
async fn job(console: &Console, caller: &Caller, id: &JobId, mut after: u64) -> (u64, u64, usize) {
    let desk = &console.office.jobs;
    let (Ok(job), Ok(session)) = (desk.find(caller, id).await, desk.session(caller, id).await) else {
        return (0, after, 0);
    };
    while let Ok((_, next)) = desk.logs(caller, id, after, JOB_EVENTS_AT_ONCE).await {
        if next == after {
            break;
        }
        after = next;
    }
    let unfinished = desk.unfinished(&session).await;
    (job.version, after, unfinished.map_or(0, |text| text.len()))
}
