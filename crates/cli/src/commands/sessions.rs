//! `sessions list`: the clients that are or were here, with S2's field names.

use std::time::Duration;

use countersign_gateway::session::lifetime::{Session, SessionState};
use serde_json::{Value, json};

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
            let shown = sessions.iter().map(|session| shown(session, ttl).to_string());
            page.array(&shown.collect::<Vec<_>>())?;
        }
        Form::Text => page.table(&sessions.iter().map(cells).collect::<Vec<_>>())?,
    }
    page.flush()
}

/// S2's McpSession, with whose it is and what it speaks. Fields that have nothing to say are left out.
fn shown(session: &Session, ttl: Duration) -> Value {
    let mut shown = json!({
        "sessionId": session.id.as_str(),
        "transport": session.transport.as_str(),
        "state": session.state().as_str(),
        "createdAt": session.created_at.to_string(),
        "lastActivityAt": session.last_activity_at.to_string(),
        "credential": session.credential.as_str(),
    });
    let client = &session.client;
    let optional = [
        ("clientName", client.name.clone()),
        ("clientVersion", client.version.clone()),
        ("protocolVersion", client.protocol_version.clone()),
        ("expiresAt", expires_at(session, ttl)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            shown[name] = value.into();
        }
    }
    shown
}

/// A session over pipes ends with them, however long it was idle.
fn expires_at(session: &Session, ttl: Duration) -> Option<String> {
    use countersign_gateway::session::Transport;
    match session.transport {
        Transport::Stdio | Transport::Terminal | Transport::Rest | Transport::Console => None,
        Transport::StreamableHttp | Transport::Sse => session.expires_at(ttl).map(|at| at.to_string()),
    }
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
