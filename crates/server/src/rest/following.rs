//! A job's events as they come, as server-sent events whose ids are places in its session.
//!
//! A stream looks when something happened to a job of this process, when the board was heard of, and once in
//! a while for what other processes wrote. It ends with the job, with its reader's token or login, with the
//! server, and with its reader. A reader that comes back to the end of a job that has ended gets no content,
//! by which browsers know to stay away.

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_gateway::ids::JobId;
use tokio::time::{Instant, sleep, sleep_until};

use super::asked::Asked;
use super::events::{End, still_may};
use super::failure::Failure;
use super::jobs::{event, named};
use super::stream::{self, Sender};
use crate::limits::{EVENTS_AT_ONCE, EVENTS_LOOK_EVERY, EVENTS_PAUSE, KEEP_ALIVE_EVERY, RETRY_AFTER};

pub(super) async fn follow(asked: Asked) -> Result<Response, Failure> {
    let id = named(&asked);
    let job = asked.api.office.jobs.find(&asked.caller, &id).await?;
    let resumed = asked.values.whole("last-event-id");
    let after = resumed.or(asked.values.whole("after")).unwrap_or(0);
    if job.has_ended() && resumed.is_some() {
        let (_, next) = asked.api.office.jobs.logs(&asked.caller, &id, after, 1).await?;
        if next == after {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    let permit = asked.api.shared.stream(&asked.caller)?;
    let (sender, body) = stream::body(&asked.extensions, permit);
    tokio::spawn(async move {
        let (reader, ended) = (sender.clone(), sender);
        tokio::select! {
            _ = run(&asked, &id, after, &reader) => {}
            () = ended.closed() => {}
        }
    });
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that collect answers before they pass them on would keep the client waiting.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

async fn run(asked: &Asked, id: &JobId, mut after: u64, reader: &Sender) -> Result<(), End> {
    let (api, desk) = (&asked.api, &asked.api.office.jobs);
    let mut stirred = api.office.job_news.stirred();
    let mut heard = api.office.board.changes();
    let mut stopping = api.stopping.clone();
    let (mut alive, mut checked) = (Instant::now() + KEEP_ALIVE_EVERY, Instant::now());
    reader.send(opening(after)).await?;
    loop {
        if checked.elapsed() >= EVENTS_LOOK_EVERY {
            still_may(asked).await?;
            checked = Instant::now();
        }
        stirred.mark_unchanged();
        heard.mark_unchanged();
        // Looked at before its events are read: those of a job that has ended are all there.
        let has_ended = desk.find(&asked.caller, id).await.is_ok_and(|job| job.has_ended());
        let read = desk.logs(&asked.caller, id, after, EVENTS_AT_ONCE).await;
        let (events, next, is_read) = match read {
            Ok((events, next)) => (events, next, true),
            Err(refusal) => {
                tracing::warn!(
                    reason = refusal.message,
                    "a job's events could not be read, trying again"
                );
                (Vec::new(), after, false)
            }
        };
        let frames: String = events
            .iter()
            .map(|stored| format!("id: {}\ndata: {}\n\n", stored.seq, event(stored)))
            .collect();
        if !frames.is_empty() {
            reader.send(frames.into()).await?;
            alive = Instant::now() + KEEP_ALIVE_EVERY;
        }
        let is_whole = next == after;
        after = next;
        if is_whole && is_read && has_ended {
            reader
                .send(Bytes::from(format!("id: {after}\nevent: end\ndata: {{}}\n\n")))
                .await?;
            return Ok(());
        }
        if is_whole {
            let look = alive.min(Instant::now() + EVENTS_LOOK_EVERY);
            tokio::select! {
                Ok(()) = stirred.changed() => {}
                Ok(()) = heard.changed() => {}
                () = sleep_until(look) => {}
                _ = stopping.wait_for(|stop| *stop) => return Err(End::Over),
            }
            if alive <= Instant::now() {
                reader.send(Bytes::from_static(b": keep-alive\n\n")).await?;
                alive = Instant::now() + KEEP_ALIVE_EVERY;
            }
        }
        // What comes close together is read together.
        sleep(EVENTS_PAUSE).await;
    }
}

/// Tells the reader where it stands before there is anything to say.
fn opening(after: u64) -> Bytes {
    format!("id: {after}\nretry: {}\n\n", RETRY_AFTER.as_millis()).into()
}
