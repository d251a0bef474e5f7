//! What Claude asks before it acts, and how it is answered.

use std::path::Path;

use countersign_gateway::job::driver::{AgentAnswer, AgentQuestion, FileChange, FileChangeKind, QuestionAbout};
use serde_json::{Value, json};

use super::absolute;
use crate::speech::text_at;

/// The question in a `can_use_tool` request.
pub(super) fn question(request: &Value, id: &str, cwd: &Path) -> AgentQuestion {
    let tool = text_at(request, &["tool_name"]).unwrap_or("unknown");
    let input = request.get("input").cloned().unwrap_or(Value::Null);
    let about = match tool {
        "Bash" => QuestionAbout::Command {
            command: text_at(&input, &["command"]).unwrap_or_default().to_owned(),
            cwd: Some(cwd.to_owned()),
        },
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => match change(tool, &input, cwd) {
            Some(change) => QuestionAbout::Patch {
                changes: vec![change],
                grant_root: false,
            },
            None => any_tool(tool, input),
        },
        _ => any_tool(tool, input),
    };
    let reason = text_at(request, &["decision_reason"]).or_else(|| text_at(request, &["description"]));
    AgentQuestion {
        id: id.to_owned(),
        about,
        reason: reason.map(str::to_owned),
        wants_more: wants_more(request, cwd),
    }
}

/// Whether it asks for a place outside of where it works, or to be let out of its own sandbox.
fn wants_more(request: &Value, cwd: &Path) -> bool {
    let is_outside = text_at(request, &["blocked_path"]).is_some_and(|path| !absolute(cwd, path).starts_with(cwd));
    let is_let_out = request.pointer("/input/dangerouslyDisableSandbox") == Some(&Value::Bool(true));
    is_outside || is_let_out
}

fn any_tool(name: &str, input: Value) -> QuestionAbout {
    QuestionAbout::Tool {
        name: name.to_owned(),
        input,
    }
}

/// The file that an edit is about, with lines as a diff shows them.
fn change(tool: &str, input: &Value, cwd: &Path) -> Option<FileChange> {
    let path = text_at(input, &["file_path"]).or_else(|| text_at(input, &["notebook_path"]))?;
    let lines = |sign: char, text: &str| text.lines().map(|line| format!("{sign}{line}\n")).collect::<String>();
    let edit = |edit: &Value| {
        let (old, new) = (text_at(edit, &["old_string"])?, text_at(edit, &["new_string"])?);
        Some(format!("@@\n{}{}", lines('-', old), lines('+', new)))
    };
    let diff = match tool {
        "Write" => text_at(input, &["content"]).map(|content| lines('+', content)),
        "Edit" => edit(input),
        "MultiEdit" => input
            .get("edits")
            .and_then(Value::as_array)
            .map(|edits| edits.iter().filter_map(edit).collect()),
        _ => text_at(input, &["new_source"]).map(|source| lines('+', source)),
    };
    let kind = if tool == "Write" && !absolute(cwd, path).exists() {
        FileChangeKind::Create
    } else {
        FileChangeKind::Modify
    };
    Some(FileChange {
        path: path.to_owned(),
        kind,
        diff,
    })
}

/// The answer to a `can_use_tool` request. What is allowed is exactly what was asked for.
pub(super) fn answer(id: &str, input: &Value, answer: AgentAnswer) -> Value {
    let decision = match answer {
        AgentAnswer::Allow => json!({"behavior": "allow", "updatedInput": input}),
        AgentAnswer::Deny { reason } => json!({"behavior": "deny", "message": reason}),
    };
    json!({"type": "control_response",
        "response": {"subtype": "success", "request_id": id, "response": decision}})
}

/// The answer to a request that nobody here knows: an error, never a yes.
pub(super) fn refusal(id: &str, subtype: &str) -> Value {
    json!({"type": "control_response",
        "response": {"subtype": "error", "request_id": id, "error": format!("`{subtype}` is not offered here")}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: Value) -> QuestionAbout {
        question(&request, "1", Path::new("/nonexistent")).about
    }

    #[test]
    fn commands_edits_and_tools_are_told_apart() {
        assert_eq!(
            asked(json!({"tool_name": "Bash", "input": {"command": "ls"}})),
            QuestionAbout::Command {
                command: "ls".to_owned(),
                cwd: Some("/nonexistent".into())
            }
        );
        let patch = |kind, diff: &str| QuestionAbout::Patch {
            changes: vec![FileChange {
                path: "a".to_owned(),
                kind,
                diff: Some(diff.to_owned()),
            }],
            grant_root: false,
        };
        assert_eq!(
            asked(json!({"tool_name": "Write", "input": {"file_path": "a", "content": "x\ny"}})),
            patch(FileChangeKind::Create, "+x\n+y\n")
        );
        assert_eq!(
            asked(json!({"tool_name": "Edit", "input": {"file_path": "a", "old_string": "x", "new_string": "y"}})),
            patch(FileChangeKind::Modify, "@@\n-x\n+y\n")
        );
        assert_eq!(
            asked(json!({"tool_name": "WebFetch", "input": {"url": "u"}})),
            QuestionAbout::Tool {
                name: "WebFetch".to_owned(),
                input: json!({"url": "u"})
            }
        );
        // An edit that does not say which file is shown as it came.
        assert!(matches!(
            asked(json!({"tool_name": "Edit", "input": {}})),
            QuestionAbout::Tool { .. }
        ));
    }
}
