//! Sessions: the clients that are or were here.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::session::lifetime::Session;

use super::Console;
use super::access::Reader;
use super::event;
use super::page::{self, Failure, Frame, Place};
use super::text::{self, Html};
use super::time::Moment;

const SESSIONS_MAX: usize = 200;
const CELL_CHARS: usize = 120;

#[derive(Template)]
#[template(path = "sessions.html")]
struct Sessions {
    frame: Frame,
    open: Vec<Line>,
    ended: Vec<Line>,
}

struct Line {
    client: Html,
    state: &'static str,
    tone: &'static str,
    transport: &'static str,
    protocol: Html,
    credential: Html,
    created: Moment,
    last: Moment,
    /// What the record calls it. The id itself would open the session.
    mark: String,
}

pub(super) async fn page(State(console): State<Arc<Console>>, reader: Reader) -> Result<Response, Failure> {
    let found = console.office.records.known_sessions(None, SESSIONS_MAX).await?;
    let now = console.clock.now();
    let lines = |is_open| {
        let chosen = found
            .iter()
            .rev()
            .filter(move |session| session.state().is_open() == is_open);
        chosen.map(|session| Line::of(session, now)).collect()
    };
    let sessions = Sessions {
        frame: Frame::of(&console, &reader, Some(Place::Sessions)).await?,
        open: lines(true),
        ended: lines(false),
    };
    Ok(page::html(StatusCode::OK, &sessions))
}

impl Line {
    fn of(session: &Session, now: Timestamp) -> Self {
        let client = &session.client;
        let named: Vec<&str> = [&client.name, &client.version]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let named = match named.is_empty() {
            true => "has not said its name".to_owned(),
            false => named.join(" "),
        };
        let cell = |text: &str| text::shown(text, CELL_CHARS);
        Self {
            client: cell(&named),
            state: session.state().as_str(),
            tone: event::tone_of(session.state().as_str()),
            transport: session.transport.as_str(),
            protocol: cell(client.protocol_version.as_deref().unwrap_or_default()),
            credential: cell(session.credential.as_str()),
            created: Moment::of(session.created_at, now),
            last: Moment::of(session.last_activity_at, now),
            mark: session.id.mark(),
        }
    }
}
