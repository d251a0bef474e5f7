//! `connect`: the entry that lets an MCP client use this server, printed or written into the client's file.
//!
//! The file belongs to somebody else's program. What we do not understand in it stays as it is, an
//! entry that is not ours is left alone unless we are told otherwise, and a copy is kept. Words: a
//! *profile* is what we know about a client; a *server* is what it is to start or to reach; its
//! *entry* is that in the client's own words; a *place* is where in the file the entry stands. What makes
//! Claude Code ask before it uses its own tools is [`governed`].

mod clients;
mod entry;
mod server;

mod json;
mod toml;

mod governed;
mod own;
mod page;

use std::path::PathBuf;

use anyhow::{bail, ensure};
use serde_json::{Map, Value};

use crate::cli::{Connect, Scope};
use crate::config::{Flags, Surroundings};
use crate::edited::{self, Found, Keep};
use crate::start::BadUsage;
use crate::terminal::Page;
use clients::{Profile, Syntax};
use server::Server;

/// What every client accepts in the name of a server.
const NAME_CHARS_MAX: usize = 64;

/// Everything that follows from what was typed, before any file is looked at.
struct Plan<'a> {
    asked: &'a Connect,
    profile: Profile,
    server: Server,
    entry: Map<String, Value>,
    file: PathBuf,
    /// The directory that the file has to be in, where agents could have put a link in its place.
    project: Option<PathBuf>,
}

/// Where the entry stands in the file.
#[derive(Clone, Copy)]
struct Place<'a> {
    section: &'a str,
    name: &'a str,
}

/// What became of the file.
struct Outcome {
    change: Change,
    /// As it is now.
    entry: Value,
    backup: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Nothing,
    Added,
    Updated,
    ReplacedAnothers,
}

pub(crate) fn run(flags: &Flags, asked: &Connect) -> anyhow::Result<()> {
    let surroundings = Surroundings::of_this_process()?;
    if asked.governed {
        return governed::run(flags, asked, &surroundings);
    }
    let plan = Plan::of(flags, asked, &surroundings)?;
    let outcome = if asked.write { Some(write(&plan)?) } else { None };
    let mut page = Page::stdout();
    match (&outcome, asked.json) {
        (outcome, true) => page.json(&page::as_json(&plan, outcome.as_ref()))?,
        (None, false) => page::proposal(&mut page, &plan)?,
        (Some(outcome), false) => page::report(&mut page, &plan, outcome)?,
    }
    page.flush()
}

impl<'a> Plan<'a> {
    fn of(flags: &Flags, asked: &'a Connect, surroundings: &Surroundings) -> anyhow::Result<Self> {
        check_name(&asked.name)?;
        let profile = clients::profile(asked.client);
        let file = profile.file(asked.scope, surroundings)?;
        let server = Server::of(flags, asked, surroundings)?;
        let entry = entry::of(&server, &profile)?;
        Ok(Self {
            asked,
            profile,
            server,
            entry,
            file,
            project: (asked.scope == Scope::Project).then(|| surroundings.current_dir.clone()),
        })
    }

    fn place(&self) -> Place<'_> {
        Place {
            section: self.profile.section,
            name: &self.asked.name,
        }
    }

    /// The text of a file that holds nothing but the entry.
    fn snippet(&self) -> anyhow::Result<String> {
        put("", self.profile.syntax, self.place(), &self.entry)
    }
}

/// Brings the entry into the client's file, unless it is there already.
fn write(plan: &Plan<'_>) -> anyhow::Result<Outcome> {
    let found = Found::look(&plan.file)?;
    let keep = match &plan.project {
        None => Keep::Private,
        Some(project) => {
            found.check_inside(project)?;
            Keep::Shared
        }
    };
    let in_vain = |cause: anyhow::Error| {
        let (file, client) = (plan.file.display(), plan.profile.word);
        anyhow::anyhow!(
            "cannot edit `{file}`: {cause:#}; nothing was changed, and `countersign connect {client}` prints what \
             belongs there"
        )
    };
    let present = get(found.text(), plan.profile.syntax, plan.place()).map_err(in_vain)?;
    let ours = present.as_ref().is_none_or(|entry| entry::is_ours(entry, &plan.server));
    if !ours && !plan.asked.force {
        bail!(
            "`{}` has an entry `{}` that is not ours; `--force` replaces it, `--name` takes another name",
            plan.file.display(),
            plan.asked.name
        );
    }
    let settled = match &present {
        Some(present) if ours => entry::update(present, &plan.entry),
        _ => plan.entry.clone(),
    };
    let entry = Value::Object(settled.clone());
    let change = match present {
        Some(present) if present == entry => Change::Nothing,
        Some(_) if ours => Change::Updated,
        Some(_) => Change::ReplacedAnothers,
        None => Change::Added,
    };
    let mut backup = None;
    if change != Change::Nothing {
        let text = put(found.text(), plan.profile.syntax, plan.place(), &settled).map_err(in_vain)?;
        backup = found.replace(&text, keep)?;
    }
    Ok(Outcome { change, entry, backup })
}

/// The entry in a text.
fn get(text: &str, syntax: Syntax, place: Place<'_>) -> anyhow::Result<Option<Value>> {
    match syntax {
        Syntax::Json(dialect) => json::get(text, dialect, place),
        Syntax::Toml => toml::get(text, place),
    }
}

/// The text with the entry in it, read back before anybody relies on it.
fn put(text: &str, syntax: Syntax, place: Place<'_>, entry: &Map<String, Value>) -> anyhow::Result<String> {
    let new = match syntax {
        Syntax::Json(dialect) => json::put(text, dialect, place, entry)?,
        Syntax::Toml => toml::put(text, place, entry)?,
    };
    let new = edited::with_newlines_of(text, new);
    let there = get(&new, syntax, place)?;
    ensure!(
        there.as_ref().and_then(Value::as_object) == Some(entry),
        "the edited text would not say what it should"
    );
    Ok(new)
}

fn check_name(name: &str) -> Result<(), BadUsage> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(BadUsage(format!(
        "`{name}` cannot be the name of a server; clients take 1 to {NAME_CHARS_MAX} letters, digits, `-` and `_`"
    )))
}
