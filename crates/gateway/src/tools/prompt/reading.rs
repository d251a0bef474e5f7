//! What Claude Code means by a use of one of its tools.

use std::path::{Component, Path};

use serde_json::Value;

use crate::job::driver::{AgentQuestion, FileChange, FileChangeKind, QuestionAbout};

/// Places in a project that say what an agent may do there. Whoever changes them asks for more than a change
/// of files.
const GOVERNING: [&str; 5] = [".claude", ".codex", ".countersign", ".git", ".mcp.json"];

/// The question in a use of a tool, told apart by what it does: a command, a change of files, or anything else.
pub fn question(tool: &str, input: &Value, id: &str, cwd: &Path, exists: fn(&Path) -> bool) -> AgentQuestion {
    let about = match tool {
        "Bash" => match input["command"].as_str() {
            Some(command) => QuestionAbout::Command {
                command: command.to_owned(),
                cwd: Some(cwd.to_owned()),
            },
            None => any_tool(tool, input),
        },
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => match change(tool, input, cwd, exists) {
            Some(change) => QuestionAbout::Patch {
                changes: vec![change],
                grant_root: false,
            },
            None => any_tool(tool, input),
        },
        _ => any_tool(tool, input),
    };
    AgentQuestion {
        id: id.to_owned(),
        about,
        reason: None,
        // It asks to be let out of its own sandbox.
        wants_more: input["dangerouslyDisableSandbox"] == Value::Bool(true),
    }
}

/// Whether a change of files reaches beyond the place of work, or changes what governs the agent there.
pub fn reaches_out(about: &QuestionAbout, place: &Path) -> bool {
    let QuestionAbout::Patch { changes, .. } = about else {
        return false;
    };
    changes.iter().any(|change| {
        let path = place.join(&change.path);
        let is_within = path.starts_with(place) && !path.components().any(|part| part == Component::ParentDir);
        let inner = path.strip_prefix(place).unwrap_or(&path);
        let governs = |part: Component<'_>| GOVERNING.iter().any(|name| part.as_os_str().eq_ignore_ascii_case(name));
        !is_within || inner.components().any(governs)
    })
}

fn any_tool(name: &str, input: &Value) -> QuestionAbout {
    QuestionAbout::Tool {
        name: name.to_owned(),
        input: input.clone(),
    }
}

/// The file that an edit is about, with lines as a diff shows them.
fn change(tool: &str, input: &Value, cwd: &Path, exists: fn(&Path) -> bool) -> Option<FileChange> {
    let path = input["file_path"]
        .as_str()
        .or_else(|| input["notebook_path"].as_str())?;
    let lines = |sign: char, text: &str| text.lines().map(|line| format!("{sign}{line}\n")).collect::<String>();
    let edit = |edit: &Value| {
        let (old, new) = (edit["old_string"].as_str()?, edit["new_string"].as_str()?);
        Some(format!("@@\n{}{}", lines('-', old), lines('+', new)))
    };
    let diff = match tool {
        "Write" => input["content"].as_str().map(|content| lines('+', content)),
        "Edit" => edit(input),
        "MultiEdit" => input["edits"]
            .as_array()
            .map(|edits| edits.iter().filter_map(edit).collect()),
        _ => input["new_source"].as_str().map(|source| lines('+', source)),
    };
    let kind = if tool == "Write" && !exists(&cwd.join(path)) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(tool: &str, input: Value) -> QuestionAbout {
        question(tool, &input, "1", Path::new("/nonexistent"), |_| false).about
    }

    fn patch(path: &str, kind: FileChangeKind, diff: &str) -> QuestionAbout {
        QuestionAbout::Patch {
            changes: vec![FileChange {
                path: path.to_owned(),
                kind,
                diff: Some(diff.to_owned()),
            }],
            grant_root: false,
        }
    }

    #[test]
    fn commands_edits_and_tools_are_told_apart() {
        assert_eq!(
            asked("Bash", json!({"command": "ls"})),
            QuestionAbout::Command {
                command: "ls".to_owned(),
                cwd: Some("/nonexistent".into())
            }
        );
        assert_eq!(
            asked("Write", json!({"file_path": "a", "content": "x\ny"})),
            patch("a", FileChangeKind::Create, "+x\n+y\n")
        );
        assert_eq!(
            asked("Edit", json!({"file_path": "a", "old_string": "x", "new_string": "y"})),
            patch("a", FileChangeKind::Modify, "@@\n-x\n+y\n")
        );
        let edits = json!([{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}]);
        assert_eq!(
            asked("MultiEdit", json!({"file_path": "a", "edits": edits})),
            patch("a", FileChangeKind::Modify, "@@\n-a\n+b\n@@\n-c\n+d\n")
        );
        assert_eq!(
            asked("NotebookEdit", json!({"notebook_path": "n.ipynb", "new_source": "x"})),
            patch("n.ipynb", FileChangeKind::Modify, "+x\n")
        );
        assert_eq!(
            asked("WebFetch", json!({"url": "u"})),
            QuestionAbout::Tool {
                name: "WebFetch".to_owned(),
                input: json!({"url": "u"})
            }
        );
        // What does not say which file, or which command, is shown as it came.
        for tool in ["Edit", "Bash"] {
            assert!(matches!(asked(tool, json!({})), QuestionAbout::Tool { .. }), "{tool}");
        }
    }

    #[test]
    fn an_edit_outside_of_the_workspace_or_of_what_governs_the_agent_asks_for_more() {
        let reaches = |path: &str| {
            let about = patch(path, FileChangeKind::Modify, "+x\n");
            reaches_out(&about, Path::new("/work"))
        };
        for inside in ["a", "src/a.rs", "/work/a", "claude/settings.json", "a..b/c"] {
            assert!(!reaches(inside), "{inside}");
        }
        for outside in [
            "/etc/passwd",
            "../a",
            "/work/../etc/passwd",
            "/workshop/a",
            ".claude/settings.json",
            "/work/.Claude/settings.local.json",
            ".mcp.json",
            "sub/.git/hooks/pre-commit",
            ".countersign/config.yaml",
        ] {
            assert!(reaches(outside), "{outside}");
        }
        let out = json!({"command": "ls", "dangerouslyDisableSandbox": true});
        assert!(question("Bash", &out, "1", Path::new("/work"), |_| false).wants_more);
    }
}
