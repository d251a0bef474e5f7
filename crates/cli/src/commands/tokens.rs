//! `tokens`: the credentials of those who come over HTTP, made, listed and revoked at the machine.

use std::time::Duration;

use anyhow::Context as _;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::IdSource;
use countersign_gateway::limits;
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
        Tokens::Create {
            role,
            name,
            run,
            expires_in,
            json,
        } => {
            let role = Role::parse(role).with_context(|| format!("`{role}` is not a role"))?;
            let name = TokenName::parse(name).map_err(|error| BadUsage(format!("`--name`: {error}")))?;
            let run = match run {
                Some(run) => Some(OfRun::read(role, run, expires_in.as_deref())?),
                None => None,
            };
            create(flags, role, &name, run.as_ref(), Form::of(*json))
        }
        Tokens::Login { json } => login(flags, Form::of(*json)),
        Tokens::List { json } => list(flags, Form::of(*json)),
        Tokens::Revoke { token } => revoke(flags, token),
    }
}

/// The run that a token is for, and how long it lasts.
struct OfRun<'a> {
    id: &'a str,
    lives: Duration,
}

impl<'a> OfRun<'a> {
    fn read(role: Role, id: &'a str, expires_in: Option<&str>) -> anyhow::Result<Self> {
        if role != Role::Agent {
            let message = format!(
                "a run's token is its agent's; `--run` does not go with role `{}`",
                role.as_str()
            );
            return Err(BadUsage(message).into());
        }
        let max = limits::RUN_TOKEN_TIME_MAX;
        let lives = match expires_in {
            None => limits::RUN_TOKEN_TIME_DEFAULT,
            Some(text) => spoken(text)
                .filter(|lives| !lives.is_zero() && *lives <= max)
                .ok_or_else(|| {
                    BadUsage(format!(
                        "`--expires-in` is a time such as `90m` or `24h`, at most 7d; not `{text}`"
                    ))
                })?,
        };
        Ok(Self { id, lives })
    }
}

/// `90s`, `30m`, `24h`, `7d`.
fn spoken(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let count = text.strip_suffix(unit)?;
    let is_whole = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = count.parse().ok().filter(|_| is_whole)?;
    count.checked_mul(seconds).map(Duration::from_secs)
}

fn create(flags: &Flags, role: Role, name: &TokenName, run: Option<&OfRun<'_>>, form: Form) -> anyhow::Result<()> {
    let record = record(flags)?;
    let ids = IdSource::random();
    let Made { credential, token } = match run {
        Some(run) => record.create_run_token(name, run.id, run.lives, wiring::person(), &ids)?,
        None => record.create_token(role, name, None, wiring::person(), &ids)?,
    };
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
        Form::Text => page.found(&tokens.iter().map(cells).collect::<Vec<_>>())?,
    }
    page.flush()
}

fn revoke(flags: &Flags, named: &str) -> anyhow::Result<()> {
    let record = record(flags)?;
    let mut page = Page::stdout();
    match record.revoke_token(named, wiring::person(), &IdSource::random())? {
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
    let state = match (token.revoked_at, token.expires_at) {
        (Some(at), _) => Cell::new(Tone::Bad, format!("revoked {at}")),
        (None, Some(at)) if token.has_expired(Clock::system().now()) => Cell::new(Tone::Bad, format!("expired {at}")),
        (None, _) => Cell::new(Tone::Good, "in force"),
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
    Started::load(flags)?.store(Durability::Power)
}
