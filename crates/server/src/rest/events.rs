//! `/events`: the record as it grows, as server-sent events whose ids are places in the chain.
//!
//! A stream looks when this process has written, when the board was heard of, and once in a while for what
//! other processes of the state directory wrote without a word. It ends with the server, with its reader's
//! token or login, and with its reader.

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::row::Row;
use countersign_gateway::session::{Caller, Transport};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::asked::Asked;
use super::failure::Failure;
use super::stream::{self, Gone, Sender};
use crate::limits::{ANSWER_BYTES_MAX, EVENTS_AT_ONCE, EVENTS_LOOK_EVERY, EVENTS_PAUSE, KEEP_ALIVE_EVERY, RETRY_AFTER};
use crate::office;

pub(super) async fn follow(asked: Asked) -> Result<Response, Failure> {
    let permit = asked.api.shared.stream(&asked.caller)?;
    let resumed = asked.values.whole("last-event-id").or(asked.values.whole("after"));
    let head = asked.api.office.records.head().await?;
    let after = match resumed {
        // Whoever waited there would hear nothing, and take it for quiet.
        Some(seq) if seq > head => {
            let message =
                format!("there is no event {seq} in this record, which ends at {head}; begin anew without it");
            return Err(Failure::malformed(message));
        }
        Some(seq) => seq,
        None => head,
    };
    let (sender, body) = stream::body(&asked.extensions, permit);
    let wanted = Wanted::of(&asked);
    tokio::spawn(async move {
        let (reader, ended) = (sender.clone(), sender);
        tokio::select! {
            _ = run(&asked, &wanted, after, &reader) => {}
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

/// What the reader wants to hear of.
struct Wanted {
    /// Empty for all.
    types: Vec<String>,
    correlation_id: Option<String>,
}

impl Wanted {
    fn of(asked: &Asked) -> Self {
        Self {
            types: asked.values.words("type").unwrap_or_default().to_vec(),
            correlation_id: asked.values.text("correlation_id").map(str::to_owned),
        }
    }

    /// As far as the store can tell.
    fn filter(&self, after: u64) -> Filter {
        Filter {
            event_type: match self.types.as_slice() {
                [only] => EventType::parse(only),
                _ => None,
            },
            correlation_id: self.correlation_id.clone(),
            after: Some(after),
            limit: EVENTS_AT_ONCE,
            bytes_max: Some(ANSWER_BYTES_MAX),
            ..Filter::everything()
        }
    }

    fn takes(&self, row: &Row) -> bool {
        self.types.is_empty() || self.types.contains(&row.event_type)
    }
}

/// Why a stream ends by itself.
pub(super) enum End {
    Gone,
    /// The reader may read no more, or the server stops.
    Over,
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

async fn run(asked: &Asked, wanted: &Wanted, mut after: u64, reader: &Sender) -> Result<(), End> {
    let api = &asked.api;
    let mut written = api.office.records.grown();
    let mut heard = api.office.board.changes();
    let mut stopping = api.stopping.clone();
    let mut alive = Instant::now() + KEEP_ALIVE_EVERY;
    let mut checked = Instant::now();
    reader.send(opening(after)).await?;
    loop {
        if checked.elapsed() >= EVENTS_LOOK_EVERY {
            still_may(asked).await?;
            checked = Instant::now();
        }
        written.mark_unchanged();
        heard.mark_unchanged();
        let rows = match api.office.records.events(wanted.filter(after)).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "events could not be read, trying again");
                Vec::new()
            }
        };
        if let Some(last) = rows.last() {
            after = last.place;
        }
        let frames: Vec<u8> = rows.iter().filter(|row| wanted.takes(row)).flat_map(frame).collect();
        if !frames.is_empty() {
            reader.send(frames.into()).await?;
            alive = Instant::now() + KEEP_ALIVE_EVERY;
        }
        if rows.is_empty() {
            wait(&mut written, &mut heard, &mut stopping, alive).await?;
            if alive <= Instant::now() {
                reader.send(Bytes::from_static(b": keep-alive\n\n")).await?;
                alive = Instant::now() + KEEP_ALIVE_EVERY;
            }
        }
        // What comes close together is read together.
        sleep(EVENTS_PAUSE).await;
    }
}

async fn wait(
    written: &mut watch::Receiver<u64>,
    heard: &mut watch::Receiver<u64>,
    stopping: &mut watch::Receiver<bool>,
    alive: Instant,
) -> Result<(), End> {
    let look = alive.min(Instant::now() + EVENTS_LOOK_EVERY);
    tokio::select! {
        // A sender that is gone says no more; the next look is soon enough.
        Ok(()) = written.changed() => Ok(()),
        Ok(()) = heard.changed() => Ok(()),
        () = sleep_until(look) => Ok(()),
        _ = stopping.wait_for(|stop| *stop) => Err(End::Over),
    }
}

/// Whether whoever opened the stream could open it still.
pub(super) async fn still_may(asked: &Asked) -> Result<(), End> {
    let api = &asked.api;
    let in_force = if office::is_of_browser(&asked.headers) {
        let login = office::logged_in(&*api.office.logins, &asked.headers).await;
        // A store that cannot be asked for a moment ends nobody's login.
        login.map_or(true, |who| who.is_some())
    } else {
        // Whoever needed no token has none that could end.
        let needed_none = asked.caller.credential == Caller::anonymous_agent(Transport::Rest).credential;
        needed_none || api.credentials.is_in_force(&asked.caller.credential)
    };
    if in_force { Ok(()) } else { Err(End::Over) }
}

/// Tells the reader where it stands before there is anything to say.
fn opening(after: u64) -> Bytes {
    format!("id: {after}\nretry: {}\n\n", RETRY_AFTER.as_millis()).into()
}

/// A damaged row is left out; proving names it.
fn frame(row: &Row) -> Vec<u8> {
    match row.to_json() {
        Ok(line) => format!("id: {}\ndata: {line}\n\n", row.place).into_bytes(),
        Err(_) => Vec::new(),
    }
}
