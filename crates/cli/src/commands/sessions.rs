//! `sessions list`: the clients that are or were here, with S2's field names.

use countersign_gateway::session::lifetime::{Session, SessionState};
use countersign_gateway::session::view;

use crate::cli::Sessions;
use crate::commands::audit::{Form, Reading};
use crate::config::Flags;
use crate::start::Started;
use crate::terminal::{Cell, Page, Tone};

pub(crate) fn run(flags: &Flags, sessions: &Sessions) -> anyhow::Result<()> {
    match sessions {
        Sessions::List { state, limit, json } => {
            let state = state.as_deref().and_then(SessionState::parse);
            list(flags, state, *limit as usize, Form::of(*json))
        }
    }
}

fn list(flags: &Flags, state: Option<SessionState>, limit: usize, form: Form) -> anyhow::Result<()> {
    let ttl = Started::load(flags)?.settings.session_ttl;
    let record = Reading::open(flags)?;
    let sessions = record.query_sessions(state, limit)?;
    let mut page = Page::stdout();
    match form {
        Form::Json => {
            let shown = sessions.iter().map(|session| view::session(session, ttl).to_string());
            page.array(&shown.collect::<Vec<_>>())?;
        }
        Form::Text => page.found(&sessions.iter().map(cells).collect::<Vec<_>>())?,
    }
    page.flush()
}

/// Last use, state, transport, whose, which client, id.
fn cells(session: &Session) -> Vec<Cell> {
    let tone = match session.state() {
        SessionState::Created => Tone::Caution,
        SessionState::Initialized => Tone::Good,
        SessionState::Closed | SessionState::Expired => Tone::Quiet,
    };
    let client = [&session.client.name, &session.client.version];
    let client: Vec<&str> = client.into_iter().flatten().map(String::as_str).collect();
    vec![
        Cell::new(Tone::Quiet, session.last_activity_at.to_string()),
        Cell::new(tone, session.state().as_str()),
        Cell::plain(session.transport.as_str()),
        Cell::plain(session.credential.as_str()),
        Cell::plain(client.join(" ")),
        Cell::new(Tone::Quiet, session.id.as_str()),
    ]
}
