//! What an agent asks before it acts. The choices that it offers are told apart by their kind, never by their
//! place or name, and only ones that hold this once are taken.

use std::path::Path;

use countersign_gateway::job::driver::{
    AgentAnswer, AgentQuestion, FileChange, FileChangeKind, ItemKind, QuestionAbout,
};
use countersign_gateway::policy::line::canonical_argv;
use serde_json::{Value, json};

use crate::speech::text_at;

/// The question in a `session/request_permission`; `known` is what was said of the call before.
pub(super) fn question(params: &Value, known: Option<&Value>, id: &str, cwd: &Path) -> AgentQuestion {
    let call = params.get("toolCall").unwrap_or(&Value::Null);
    let field = |name: &str| {
        call.get(name)
            .filter(|value| !value.is_null())
            .or_else(|| known?.get(name))
    };
    let title = field("title").and_then(Value::as_str).unwrap_or("a tool");
    let line = match kind(field("kind")) {
        ItemKind::Command => command(field("rawInput"), title),
        ItemKind::Edit | ItemKind::Tool | ItemKind::Other => None,
    };
    let about = match (line, changes(field("content"))) {
        (None, changes) if !changes.is_empty() => QuestionAbout::Patch {
            changes,
            grant_root: false,
        },
        // Neither hides the other: what would run and what would change are both shown.
        (Some(command), changes) if !changes.is_empty() => QuestionAbout::Tool {
            name: title.to_owned(),
            input: json!({"command": command, "rawInput": field("rawInput"), "content": field("content")}),
        },
        (Some(command), _) => QuestionAbout::Command {
            command,
            cwd: Some(
                field("rawInput")
                    .and_then(|input| text_at(input, &["cwd"]))
                    .map_or(cwd, Path::new)
                    .to_owned(),
            ),
        },
        // What is not known as a command is shown as it came.
        (None, _) => QuestionAbout::Tool {
            name: title.to_owned(),
            input: field("rawInput").cloned().unwrap_or_else(|| call.clone()),
        },
    };
    AgentQuestion {
        id: id.to_owned(),
        about,
        reason: field("rawInput")
            .and_then(|input| text_at(input, &["reason"]).or_else(|| text_at(input, &["description"])))
            .map(str::to_owned),
        wants_more: false,
    }
}

pub(super) fn kind(kind: Option<&Value>) -> ItemKind {
    match kind.and_then(Value::as_str) {
        Some("execute") => ItemKind::Command,
        Some("edit" | "delete" | "move") => ItemKind::Edit,
        _ => ItemKind::Tool,
    }
}

/// A command as one line that means what will run, whether it is given as a line, as words or only as a title. Words are
/// quoted: what policy reads in `git log '#' --output=x` must not end at the `#`.
fn command(input: Option<&Value>, title: &str) -> Option<String> {
    let given = input.and_then(|input| input.get("command"));
    match given.filter(|given| !given.is_null()) {
        None => Some(title.to_owned()),
        Some(Value::String(line)) => Some(line.clone()),
        Some(Value::Array(words)) => {
            let words: Option<Vec<String>> = words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
            let (file, arguments) = words.as_ref()?.split_first()?;
            Some(canonical_argv(file, arguments))
        }
        Some(_) => None,
    }
}

fn changes(content: Option<&Value>) -> Vec<FileChange> {
    let parts = content.and_then(Value::as_array);
    let lines = |sign: char, text: &str| text.lines().map(|line| format!("{sign}{line}\n")).collect::<String>();
    let change = |part: &Value| {
        let path = text_at(part, &["path"]).filter(|_| text_at(part, &["type"]) == Some("diff"))?;
        let (old, new) = (text_at(part, &["oldText"]), text_at(part, &["newText"]));
        let kind = match (old, new) {
            (None, _) => FileChangeKind::Create,
            (Some(_), None) => FileChangeKind::Delete,
            (Some(_), Some(_)) => FileChangeKind::Modify,
        };
        Some(FileChange {
            path: path.to_owned(),
            kind,
            diff: Some(format!(
                "{}{}",
                lines('-', old.unwrap_or("")),
                lines('+', new.unwrap_or(""))
            )),
        })
    };
    parts.into_iter().flatten().filter_map(change).collect()
}

/// The outcome that says this answer, of those that are offered.
pub(super) fn outcome(options: &Value, answer: &AgentAnswer) -> Value {
    let wanted: &[&str] = match answer {
        AgentAnswer::Allow => &["allow_once"],
        AgentAnswer::Deny { .. } => &["reject_once", "reject_always"],
    };
    let offered = options.as_array();
    let of_kind = |kind: &&str| {
        let mut options = offered.into_iter().flatten();
        options
            .find(|option| text_at(option, &["kind"]) == Some(kind))?
            .get("optionId")
    };
    match wanted.iter().find_map(of_kind) {
        Some(option) => json!({"outcome": {"outcome": "selected", "optionId": option}}),
        None => cancelled(),
    }
}

pub(super) fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_are_judged_as_the_words_they_are() {
        let asked = |command: Value| {
            let params = json!({"toolCall": {"toolCallId": "1", "kind": "execute", "title": "title",
                "rawInput": {"command": command}}});
            match question(&params, None, "1", Path::new("/work")).about {
                QuestionAbout::Command { command, .. } => Some(command),
                QuestionAbout::Patch { .. } | QuestionAbout::Tool { .. } => None,
            }
        };
        for (given, line) in [
            (json!("git log # all"), Some("git log # all")),
            (json!(["git", "log", "#", "--output=x"]), Some("git log '#' --output=x")),
            (json!(["bash", "-lc", "ls; rm -r a"]), Some("bash -lc 'ls; rm -r a'")),
            (Value::Null, Some("title")),
            // What cannot be read is no command that a rule could allow.
            (json!(["git", "log", 1]), None),
            (json!([]), None),
            (json!({"line": "ls"}), None),
        ] {
            assert_eq!(asked(given.clone()).as_deref(), line, "{given}");
        }
    }

    #[test]
    fn a_command_that_comes_with_a_change_is_shown_with_it_and_is_not_taken_for_the_change() {
        let change = json!([{"type": "diff", "path": "/work/a", "oldText": "1", "newText": "2"}]);
        let asked = |kind: &str| {
            let params = json!({"toolCall": {"toolCallId": "1", "kind": kind, "title": "title",
                "rawInput": {"command": "rm -r /work/b"}, "content": change.clone()}});
            question(&params, None, "1", Path::new("/work")).about
        };
        match asked("execute") {
            QuestionAbout::Tool { input, .. } => {
                assert_eq!(input["command"], "rm -r /work/b");
                assert_eq!(input["content"], change);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(asked("edit"), QuestionAbout::Patch { .. }));
    }

    #[test]
    fn choices_are_made_by_kind_and_never_for_good() {
        let options = json!([
            {"optionId": "a", "kind": "allow_always"},
            {"optionId": "b", "kind": "reject_once"},
            {"optionId": "c", "kind": "allow_once"},
        ]);
        let selected = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
        let no = AgentAnswer::Deny { reason: String::new() };
        assert_eq!(outcome(&options, &AgentAnswer::Allow), selected("c"));
        assert_eq!(outcome(&options, &no), selected("b"));
        // Where a yes would hold for good, there is no yes.
        let always = json!([{"optionId": "a", "kind": "allow_always"}]);
        assert_eq!(outcome(&always, &AgentAnswer::Allow), cancelled());
    }
}
