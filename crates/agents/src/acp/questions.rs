//! What an agent asks before it acts. The choices that it offers are told apart by their kind, never by their
//! place or name, and only ones that hold this once are taken.

use std::path::Path;

use countersign_gateway::job::driver::{
    AgentAnswer, AgentQuestion, FileChange, FileChangeKind, ItemKind, QuestionAbout,
};
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
    let about = match (kind(field("kind")), changes(field("content"))) {
        (_, changes) if !changes.is_empty() => QuestionAbout::Patch {
            changes,
            grant_root: false,
        },
        (ItemKind::Command, _) => QuestionAbout::Command {
            command: command(field("rawInput")).unwrap_or_else(|| title.to_owned()),
            cwd: Some(
                field("rawInput")
                    .and_then(|input| text_at(input, &["cwd"]))
                    .map_or(cwd, Path::new)
                    .to_owned(),
            ),
        },
        _ => QuestionAbout::Tool {
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

/// A command as one line, whether it is given as words or as a line.
fn command(input: Option<&Value>) -> Option<String> {
    match input?.get("command")? {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
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
