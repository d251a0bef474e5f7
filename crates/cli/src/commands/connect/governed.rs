//! `connect claude-code --governed`: a hook in Claude Code's settings, so that it asks here before it uses a
//! tool of its own. Other hooks stay, and stay where they are; ours is known by what it calls.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use jsonc_parser::cst::{CstArray, CstNode};
use serde_json::{Value, json};

use super::json::{self, Dialect};
use super::own::line;
use super::server::Server;
use super::{Change, Outcome};
use crate::cli::{Client, Connect, Scope};
use crate::config::{Flags, Surroundings};
use crate::edited::{self, Found, Keep};
use crate::start::BadUsage;
use crate::terminal::{Page, Tone, told};

/// Tools that act. Reading files is what Claude Code's own rules are for.
const MATCHER: &str = "Bash|Edit|MultiEdit|NotebookEdit|WebFetch|Write";
/// How long Claude Code waits for the hook. It lets a tool through that a hook was too late for.
const TIMEOUT_SECONDS: u64 = 600;
/// How long the hook waits for a person.
const WAIT_SECONDS: u64 = 580;
/// What our hook calls.
const CALLED: &str = "hook claude-code";

struct Plan {
    file: PathBuf,
    /// The directory that the file has to be in, where agents could have put a link in its place.
    project: Option<PathBuf>,
    hook: Value,
}

pub(super) fn run(flags: &Flags, asked: &Connect, surroundings: &Surroundings) -> anyhow::Result<()> {
    let plan = Plan::of(flags, asked, surroundings)?;
    let outcome = if asked.write { Some(write(&plan)?) } else { None };
    let mut page = Page::stdout();
    match (&outcome, asked.json) {
        (outcome, true) => page.json(&as_json(&plan, outcome.as_ref()))?,
        (None, false) => proposal(&mut page, &plan)?,
        (Some(outcome), false) => report(&mut page, &plan, outcome)?,
    }
    page.flush()
}

impl Plan {
    fn of(flags: &Flags, asked: &Connect, surroundings: &Surroundings) -> anyhow::Result<Self> {
        match asked.client {
            Client::ClaudeCode => {}
            Client::ClaudeDesktop | Client::Codex | Client::Cursor | Client::Vscode => {
                let message = "only `claude-code` asks before it uses its own tools; leave `--governed` out";
                return Err(BadUsage(message.to_owned()).into());
            }
        }
        let file = match asked.scope {
            Scope::User => {
                let home = || surroundings.home.as_ref().map(|home| home.join(".claude"));
                let named = surroundings.variable("CLAUDE_CONFIG_DIR").map(PathBuf::from);
                let directory = named.or_else(home).ok_or_else(|| {
                    BadUsage("there is no home directory to find Claude Code's settings in; set `HOME`".to_owned())
                })?;
                surroundings.current_dir.join(directory).join("settings.json")
            }
            Scope::Project => surroundings.current_dir.join(".claude/settings.json"),
        };
        let Server::Started { command, args, env, .. } = Server::of(flags, asked, surroundings)? else {
            return Err(BadUsage("`--governed` takes no address of a server".to_owned()).into());
        };
        let mut words = vec![command];
        words.extend(args.into_iter().filter(|word| word != "stdio"));
        words.extend(["hook", "claude-code", "--wait-seconds"].map(str::to_owned));
        words.push(WAIT_SECONDS.to_string());
        // A shell runs it, and an assignment before the command is the shell's own word.
        let variables: Vec<String> = env
            .iter()
            .map(|(name, value)| format!("{name}={} ", line(std::slice::from_ref(value))))
            .collect();
        let command = format!("{}{}", variables.concat(), line(&words));
        Ok(Self {
            file,
            project: (asked.scope == Scope::Project).then(|| surroundings.current_dir.clone()),
            hook: json!({"matcher": MATCHER,
                "hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_SECONDS}]}),
        })
    }
}

/// Brings the hook into the settings, unless it is there already.
fn write(plan: &Plan) -> anyhow::Result<Outcome> {
    let found = Found::look(&plan.file)?;
    let keep = match &plan.project {
        None => Keep::Private,
        Some(project) => {
            found.check_inside(project)?;
            Keep::Shared
        }
    };
    let in_vain = |cause: anyhow::Error| {
        anyhow::anyhow!(
            "cannot edit `{}`: {cause:#}; nothing was changed, and `countersign connect claude-code --governed` prints \
             what belongs there",
            plan.file.display()
        )
    };
    let change = match get(found.text()).map_err(in_vain)? {
        Some(present) if present == plan.hook => Change::Nothing,
        Some(_) => Change::Updated,
        None => Change::Added,
    };
    let mut backup = None;
    if change != Change::Nothing {
        let text = put(found.text(), &plan.hook).map_err(in_vain)?;
        backup = found.replace(&text, keep)?;
    }
    Ok(Outcome {
        change,
        entry: plan.hook.clone(),
        backup,
    })
}

/// Our hook in a text.
fn get(text: &str) -> anyhow::Result<Option<Value>> {
    let root = json::parse(text, Dialect::Strict)?;
    let Some(top) = json::top(&root)? else {
        return Ok(None);
    };
    let Some(hooks) = json::only(&top, "hooks")? else {
        return Ok(None);
    };
    let hooks = hooks.object_value().context("`hooks` is not an object")?;
    let Some(before) = json::only(&hooks, "PreToolUse")? else {
        return Ok(None);
    };
    let before = before.array_value().context("`hooks.PreToolUse` is not an array")?;
    Ok(ours(&before).and_then(|hook| hook.to_serde_value()))
}

/// The text with our hook in it, read back before anybody relies on it.
fn put(text: &str, hook: &Value) -> anyhow::Result<String> {
    let root = json::parse(text, Dialect::Strict)?;
    let top = match json::top(&root)? {
        Some(top) => top,
        None => root.object_value_or_set(),
    };
    let before = top.object_value_or_set("hooks").array_value_or_set("PreToolUse");
    match ours(&before).and_then(|hook| hook.as_object()) {
        Some(present) => json::fill(&present, hook.as_object().context("a hook is an object")?),
        None => drop(before.append(json::input(hook))),
    }
    let mut new = root.to_string();
    if text.trim().is_empty() {
        new = format!("{}\n", new.trim());
    }
    let new = edited::with_newlines_of(text, new);
    ensure!(
        get(&new)?.as_ref() == Some(hook),
        "the edited text would not say what it should"
    );
    Ok(new)
}

/// The entry whose only hook is ours.
fn ours(before: &CstArray) -> Option<CstNode> {
    let is_ours = |entry: &CstNode| {
        let Some(entry) = entry.to_serde_value() else {
            return false;
        };
        let command = |hook: &Value| hook["command"].as_str().map(str::to_owned);
        let commands: Vec<_> = entry["hooks"].as_array().into_iter().flatten().map(command).collect();
        matches!(commands.as_slice(), [Some(command)] if command.contains("countersign") && command.contains(CALLED))
    };
    before.elements().into_iter().find(is_ours)
}

fn proposal(page: &mut Page, plan: &Plan) -> anyhow::Result<()> {
    let file = page.paint(Tone::Strong, &plan.file.display().to_string());
    page.line(format_args!("Claude Code reads this from {file}:"))?;
    page.line("")?;
    told(page.raw().write_all(put("", &plan.hook)?.as_bytes()))?;
    page.line("")?;
    page.line("the same with `--write` edits the file, and leaves everything else in it as it is")?;
    notes(page, plan)
}

fn report(page: &mut Page, plan: &Plan, outcome: &Outcome) -> anyhow::Result<()> {
    let file = plan.file.display();
    let governed = page.paint(Tone::Good, "governed");
    match outcome.change {
        Change::Nothing => return page.line(format_args!("already {governed}: `{file}` has the hook")),
        Change::Added => page.line(format_args!("{governed}: added the hook to `{file}`"))?,
        Change::Updated | Change::ReplacedAnothers => {
            page.line(format_args!("{governed}: brought the hook in `{file}` up to date"))?;
        }
    }
    if let Some(backup) = &outcome.backup {
        page.line(format_args!("the file as it was is `{}`", backup.display()))?;
    }
    notes(page, plan)
}

/// What the person still has to know or do.
fn notes(page: &mut Page, plan: &Plan) -> anyhow::Result<()> {
    page.line(
        "then: sessions that start from now on ask before they use a tool that acts; `countersign approvals watch` or \
         the console of `countersign serve` shows the questions",
    )?;
    let mut notes = vec![
        "for `claude -p` the same is done by `--permission-prompt-tool mcp__countersign__approval_prompt`, once \
         `countersign connect claude-code` has named the server",
    ];
    if plan.project.is_some() {
        notes.push("agents can write to the project, and so to this hook; `--scope user` is out of their reach");
    }
    for note in notes {
        page.line(format_args!("{}: {note}", page.paint(Tone::Caution, "note")))?;
    }
    Ok(())
}

fn as_json(plan: &Plan, outcome: Option<&Outcome>) -> Value {
    json!({
        "client": "claude-code",
        "file": plan.file,
        "entry": plan.hook,
        "written": outcome.is_some_and(|outcome| outcome.change != Change::Nothing),
        "backup": outcome.and_then(|outcome| outcome.backup.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(command: &str) -> Value {
        json!({"matcher": "Bash", "hooks": [{"type": "command", "command": command, "timeout": 9}]})
    }

    fn ours() -> Value {
        hook("/bin/countersign hook claude-code")
    }

    #[test]
    fn a_hook_joins_the_others_and_leaves_every_byte_of_them() {
        let others = "{\n  \"model\" : \"x\",\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\"matcher\":\"Read\",   \"hooks\":[{\"type\":\"command\",\"command\":\"log it\"}]}\n    ],\n    \"Stop\": []\n  }\n}\n";
        let new = put(others, &ours()).unwrap();
        for line in others
            .lines()
            .filter(|line| line.contains("Read") || line.contains("model"))
        {
            assert!(new.contains(line.trim_end_matches(',')), "{line}: {new}");
        }
        let value: Value = serde_json::from_str(&new).unwrap();
        assert_eq!(value["hooks"]["PreToolUse"][1], ours());
        assert_eq!(value["hooks"]["Stop"], json!([]));
        assert_eq!(put(&new, &ours()).unwrap(), new, "twice is once");
    }

    #[test]
    fn only_our_own_hook_is_brought_up_to_date() {
        let mixed = json!({"matcher": "Bash", "hooks": [
            {"type": "command", "command": "countersign hook claude-code"}, {"type": "command", "command": "mine"}]});
        let before =
            json!({"hooks": {"PreToolUse": [mixed, hook("/old/countersign hook claude-code --wait-seconds 1")]}});
        let new: Value = serde_json::from_str(&put(&before.to_string(), &ours()).unwrap()).unwrap();
        assert_eq!(new["hooks"]["PreToolUse"], json!([mixed, ours()]));
    }

    #[test]
    fn settings_that_say_something_else_are_left_alone() {
        for strange in [r#"{"hooks": 5}"#, r#"{"hooks": {"PreToolUse": {}}}"#, "[]", "{"] {
            assert!(get(strange).is_err(), "{strange}");
        }
        for empty in ["", "{}", r#"{"hooks": {}}"#] {
            assert_eq!(get(empty).unwrap(), None, "{empty}");
        }
    }
}
