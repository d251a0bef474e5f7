//! `tokens`: the credentials of those who come over HTTP, made, listed and revoked at the machine.

use anyhow::Context as _;
use countersign_gateway::audit::event::{Actor, ActorType};
use countersign_gateway::ids::IdSource;
use countersign_gateway::session::credential::{Credential, TokenName};
use countersign_gateway::session::login::{CODE_LIVES, Logins as _};
use countersign_gateway::session::{Caller, Role, view};
use countersign_store::sqlite::tokens::{Made, Revoked};
use countersign_store::{Durability, Store};
use serde_json::json;

use crate::cli::Tokens;
use crate::commands::audit::{Form, Reading};
use crate::commands::serve::invitation;
use crate::config::Flags;
use crate::start::{self, BadUsage, Started};
use crate::terminal::{Cell, Page, Tone};
use crate::{whereabouts, wiring};

pub(crate) fn run(flags: &Flags, tokens: &Tokens) -> anyhow::Result<()> {
    match tokens {
        Tokens::Create { role, name, run, json } => {
            let role = Role::parse(role).with_context(|| format!("`{role}` is not a role"))?;
            let name = TokenName::parse(name).map_err(|error| BadUsage(format!("`--name`: {error}")))?;
            create(flags, role, &name, run.clone(), Form::of(*json))
        }
        Tokens::Login { json } => login(flags, Form::of(*json)),
        Tokens::List { json } => list(flags, Form::of(*json)),
        Tokens::Revoke { token } => revoke(flags, token),
    }
}

fn create(flags: &Flags, role: Role, name: &TokenName, run: Option<String>, form: Form) -> anyhow::Result<()> {
    let record = record(flags)?;
    let Made { credential, token } = record.create_token(role, name, run, person(), &IdSource::random())?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&json!({
            "id": credential.id.as_str(),
            "role": role.as_str(),
            "name": credential.name,
            "token": token,
        }))?,
        Form::Text => {
            page.line(&token)?;
            page.flush()?;
            start::say(&format!(
                "token `{name}` of role {} made; it is shown this once, only a digest of it is kept",
                role.as_str()
            ));
        }
    }
    page.flush()
}

/// A login for whoever may open the state directory, at the server that runs on it.
fn login(flags: &Flags, form: Form) -> anyhow::Result<()> {
    let started = Started::load(flags)?;
    let state_dir = &started.settings.state_dir;
    let console = whereabouts::find(state_dir).with_context(|| {
        format!(
            "no server runs on `{}`; `countersign serve` starts one, and prints such an address itself",
            state_dir.display()
        )
    })?;
    let record = record(flags)?;
    let person = Caller::person(&wiring::user());
    let code = start::runtime()?.block_on(record.issue(&person))?;
    let mut page = Page::stdout();
    match form {
        Form::Json => page.json(&json!({
            "url": format!("{console}/#token={code}"),
            "token": code,
            "expires_in_seconds": CODE_LIVES.as_secs(),
        }))?,
        Form::Text => page.line(invitation(&console, &code))?,
    }
    page.flush()
}

fn list(flags: &Flags, form: Form) -> anyhow::Result<()> {
    let record = Reading::open(flags)?;
    let tokens = record.tokens()?;
    let mut page = Page::stdout();
    match form {
        Form::Json => {
            let shown = tokens.iter().map(|token| view::token(token).to_string());
            page.array(&shown.collect::<Vec<_>>())?;
        }
        Form::Text => page.table(&tokens.iter().map(cells).collect::<Vec<_>>())?,
    }
    page.flush()
}

fn revoke(flags: &Flags, named: &str) -> anyhow::Result<()> {
    let record = record(flags)?;
    let mut page = Page::stdout();
    match record.revoke_token(named, person(), &IdSource::random())? {
        Revoked::Now(token) => page.line(format_args!(
            "token `{}` ({}) is revoked; running servers know within a second",
            token.name, token.id
        ))?,
        Revoked::Before(token) => page.line(format_args!(
            "token `{}` ({}) was revoked before, at {}",
            token.name,
            token.id,
            token.revoked_at.map_or_else(String::new, |at| at.to_string())
        ))?,
    }
    page.flush()
}

/// Id, role, name, when it was made, whether it is in force, run.
fn cells(token: &Credential) -> Vec<Cell> {
    let state = match token.revoked_at {
        None => Cell::new(Tone::Good, "in force"),
        Some(at) => Cell::new(Tone::Bad, format!("revoked {at}")),
    };
    vec![
        Cell::new(Tone::Quiet, token.id.as_str()),
        Cell::plain(token.role.as_str()),
        Cell::new(Tone::Strong, &token.name),
        Cell::new(Tone::Quiet, token.created_at.to_string()),
        state,
        Cell::plain(token.run.as_deref().unwrap_or_default()),
    ]
}

/// The record, made where there is none yet: a token may come before the first server.
fn record(flags: &Flags) -> anyhow::Result<Store> {
    let started = Started::load(flags)?;
    let options = wiring::options(&started.settings, Durability::Power);
    Store::open(&started.settings.state_dir, options).context("cannot open the record")
}

/// Whoever types this.
fn person() -> Actor {
    Actor {
        kind: ActorType::Human,
        id: wiring::user(),
    }
}
