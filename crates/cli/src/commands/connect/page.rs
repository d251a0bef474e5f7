//! What is said: the entry and where it belongs, or what was done to the file.

use serde_json::{Value, json};

use super::server::{self, Server, TOKEN_VARIABLE};
use super::{Change, Outcome, Plan, own};
use crate::cli::Client;
use crate::terminal::{Page, Tone, told};

/// What belongs in the file, for somebody who puts it there.
pub(super) fn proposal(page: &mut Page, plan: &Plan<'_>) -> anyhow::Result<()> {
    let file = page.paint(Tone::Strong, &plan.file.display().to_string());
    page.line(format_args!("{} reads this from {file}:", plan.profile.title))?;
    page.line("")?;
    told(page.raw().write_all(plan.snippet()?.as_bytes()))?;
    page.line("")?;
    if let Some(command) = own::command(plan) {
        page.line("its own command for the same:")?;
        page.line("")?;
        page.line(format_args!("    {command}"))?;
        page.line("")?;
    }
    page.line("the same with `--write` edits the file, and leaves everything else in it as it is")?;
    page.line(format_args!("then: {}", plan.profile.afterwards))?;
    notes(page, plan)
}

/// What was done.
pub(super) fn report(page: &mut Page, plan: &Plan<'_>, outcome: &Outcome) -> anyhow::Result<()> {
    let (name, file) = (&plan.asked.name, plan.file.display());
    let connected = page.paint(Tone::Good, "connected");
    match outcome.change {
        Change::Nothing => {
            return page.line(format_args!("already {connected}: `{file}` has the entry `{name}`"));
        }
        Change::Added => page.line(format_args!("{connected}: added the entry `{name}` to `{file}`"))?,
        Change::Updated => page.line(format_args!(
            "{connected}: brought the entry `{name}` in `{file}` up to date"
        ))?,
        Change::ReplacedAnothers => page.line(format_args!(
            "{connected}: replaced the entry `{name}` in `{file}`, which was not ours"
        ))?,
    }
    if let Some(backup) = &outcome.backup {
        page.line(format_args!("the file as it was is `{}`", backup.display()))?;
    }
    page.line(format_args!("then: {}", plan.profile.afterwards))?;
    notes(page, plan)
}

pub(super) fn as_json(plan: &Plan<'_>, outcome: Option<&Outcome>) -> Value {
    let proposed = Value::Object(plan.entry.clone());
    json!({
        "client": plan.profile.word,
        "file": plan.file,
        "entry": outcome.map_or(&proposed, |outcome| &outcome.entry),
        "written": outcome.is_some_and(|outcome| outcome.change != Change::Nothing),
        "backup": outcome.and_then(|outcome| outcome.backup.as_ref()),
    })
}

/// What the person still has to know or do.
fn notes(page: &mut Page, plan: &Plan<'_>) -> anyhow::Result<()> {
    let notes = about_server(plan).into_iter().chain(about_project(plan));
    for note in notes.chain(about_its_own_shell(plan)) {
        page.line(format_args!("{}: {note}", page.paint(Tone::Caution, "note")))?;
    }
    Ok(())
}

fn about_server(plan: &Plan<'_>) -> Vec<String> {
    let (title, name) = (plan.profile.title, &plan.asked.name);
    match &plan.server {
        Server::Started { left_out, .. } => {
            let secret = |variable: &&str| {
                format!(
                    "`{variable}` is set here and may hold a password, so it is not in the entry; set it where {title} starts"
                )
            };
            left_out.iter().map(secret).collect()
        }
        Server::Running { sends_token: false, .. } if plan.asked.no_token => Vec::new(),
        Server::Running { sends_token: false, .. } => vec![
            "agents on this machine need no token there; with `--with-token` it sends one, and the record tells it from others"
                .to_owned(),
        ],
        Server::Running { url, sends_token: true } => {
            let mut notes = vec![format!(
                "{title} sends the token that it finds in `{TOKEN_VARIABLE}`; `countersign tokens create --role agent \
                 --name {name}` makes one, `--no-token` does without"
            )];
            if server::is_readable_on_the_way(url) {
                notes.push(format!("`{url}` is not encrypted; the token can be read on the way"));
            }
            notes
        }
    }
}

/// Connecting adds tools and takes none away.
fn about_its_own_shell(plan: &Plan<'_>) -> Option<String> {
    let advice = plan.profile.own_tools?;
    let title = plan.profile.title;
    Some(format!(
        "{title} keeps its own shell, which does not pass through here; {advice}"
    ))
}

fn about_project(plan: &Plan<'_>) -> Vec<String> {
    if plan.project.is_none() {
        return Vec::new();
    }
    let mut notes =
        vec!["agents can write to the project, and so to this entry; `--scope user` is out of their reach".to_owned()];
    if let Server::Started { .. } = plan.server {
        notes.push("the entry names paths of this machine; whoever shares the project has others".to_owned());
    }
    if plan.asked.client == Client::Codex {
        notes.push("Codex reads it only in a project that it trusts".to_owned());
    }
    notes
}
