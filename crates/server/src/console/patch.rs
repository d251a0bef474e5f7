//! What a patch would do to files, line by line: S1's FileChange, with a unified diff where one was given.

use serde_json::Value;

use super::text::{self, Html};
use crate::limits::TEXT_CHARS_SHOWN;

/// One file.
pub(super) struct Change {
    pub(super) path: Html,
    /// `create`, `modify` or `delete`, or whatever else was said.
    pub(super) kind: Html,
    pub(super) lines: Vec<Line>,
    pub(super) added: usize,
    pub(super) removed: usize,
}

/// A line of a diff, or of what a new file begins with.
pub(super) struct Line {
    pub(super) tone: &'static str,
    pub(super) text: Html,
}

/// The changes of a question; what is no list of changes is shown as it stands.
pub(super) fn changes(given: Option<Value>) -> Vec<Change> {
    match given {
        Some(Value::Array(items)) => items.iter().map(change).collect(),
        // Codex names files by their path.
        Some(Value::Object(files)) => files
            .iter()
            .map(|(path, change)| {
                let mut change = self::change(change);
                change.path = text::shown(path, TEXT_CHARS_SHOWN);
                change
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The files of a unified diff, each with its lines; what only names files is left out.
pub(super) fn files(diff: &str) -> Vec<Change> {
    let mut files: Vec<File<'_>> = Vec::new();
    let mut in_hunk = false;
    for line in diff.lines() {
        let begins = line.starts_with("diff --git ") || (!in_hunk && line.starts_with("--- "));
        let has_lines = files.last().is_none_or(|file| !file.lines.is_empty() || file.has_new);
        if line.starts_with("diff --git ") || (begins && has_lines) {
            files.push(File::default());
            in_hunk = false;
        }
        let Some(file) = files.last_mut() else { continue };
        if !in_hunk && let Some(old) = line.strip_prefix("--- ") {
            file.old = old;
        } else if !in_hunk && let Some(new) = line.strip_prefix("+++ ") {
            (file.new, file.has_new) = (new, true);
        } else if line.starts_with("@@") || in_hunk {
            in_hunk = true;
            file.lines.push(line);
        }
    }
    files.into_iter().map(File::shown).collect()
}

/// One file of a diff while it is read.
#[derive(Default)]
struct File<'a> {
    old: &'a str,
    new: &'a str,
    has_new: bool,
    lines: Vec<&'a str>,
}

impl File<'_> {
    fn shown(self) -> Change {
        const NONE: &str = "/dev/null";
        let (kind, path) = match (self.old, self.new) {
            (NONE, new) => ("create", new.strip_prefix("b/").unwrap_or(new)),
            (old, NONE) => ("delete", old.strip_prefix("a/").unwrap_or(old)),
            (_, new) => ("modify", new.strip_prefix("b/").unwrap_or(new)),
        };
        // Inside a hunk every line has its sign, whatever it looks like.
        let tone = |text: &str| match text.as_bytes().first() {
            Some(b'+') => "added",
            Some(b'-') => "removed",
            Some(b'@') => "place",
            _ => "context",
        };
        let lines: Vec<Line> = self.lines.iter().map(|text| line(tone(text), text)).collect();
        let count = |tone| lines.iter().filter(|line| line.tone == tone).count();
        Change {
            path: text::shown(path, TEXT_CHARS_SHOWN),
            kind: text::shown(kind, TEXT_CHARS_SHOWN),
            added: count("added"),
            removed: count("removed"),
            lines,
        }
    }
}

fn change(value: &Value) -> Change {
    let of = |names: &[&str]| names.iter().find_map(|name| value[*name].as_str()).unwrap_or_default();
    let kind = of(&["type", "kind"]);
    let diff = of(&["diff", "unified_diff", "unifiedDiff"]);
    let preview = of(&["contentPreview", "content"]);
    let lines: Vec<Line> = match (diff, kind) {
        ("", "create" | "add") => preview.lines().map(|text| line("added", &format!("+{text}"))).collect(),
        ("", "delete") => preview
            .lines()
            .map(|text| line("removed", &format!("-{text}")))
            .collect(),
        ("", _) => preview.lines().map(|text| line("context", text)).collect(),
        (diff, _) => diff.lines().map(|text| line(tone(text), text)).collect(),
    };
    let count = |tone| lines.iter().filter(|line| line.tone == tone).count();
    Change {
        path: text::shown(of(&["path"]), TEXT_CHARS_SHOWN),
        kind: text::shown(kind, TEXT_CHARS_SHOWN),
        added: count("added"),
        removed: count("removed"),
        lines,
    }
}

fn line(tone: &'static str, text: &str) -> Line {
    Line {
        tone,
        text: text::shown(text, TEXT_CHARS_SHOWN),
    }
}

fn tone(line: &str) -> &'static str {
    match line.as_bytes().first() {
        Some(b'+') if !line.starts_with("+++ ") => "added",
        Some(b'-') if !line.starts_with("--- ") => "removed",
        Some(b'@') => "place",
        _ => "context",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_diff_counts_what_comes_and_goes() {
        let given = json!([{"path": "a<b>", "type": "modify", "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n+more"}]);
        let changes = changes(Some(given));
        assert_eq!((changes[0].added, changes[0].removed), (2, 1));
        assert_eq!(changes[0].path.to_string(), "a&lt;b&gt;");
        let tones: Vec<_> = changes[0].lines.iter().map(|line| line.tone).collect();
        assert_eq!(tones, ["context", "context", "place", "removed", "added", "added"]);
    }

    #[test]
    fn a_diff_of_several_files_is_shown_file_by_file() {
        let diff = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- gone\n+new\n same\n\
                    diff --git a/y b/y\nnew file mode 100644\n--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+first\n";
        let shown: Vec<_> = files(diff)
            .iter()
            .map(|it| (it.path.to_string(), it.kind.to_string(), it.added, it.removed))
            .collect();
        assert_eq!(
            shown,
            [
                ("x".to_owned(), "modify".to_owned(), 1, 1),
                ("y".to_owned(), "create".to_owned(), 1, 0)
            ]
        );
        let plain = "--- a/x\n+++ b/x\n@@\n-1\n+2\n";
        assert_eq!(files(plain).len(), 1);
        assert!(files("").is_empty() && files("no diff at all").is_empty());
    }

    #[test]
    fn a_new_file_is_all_new() {
        let given = json!([{"path": "x", "type": "create", "contentPreview": "one\ntwo"}]);
        let changes = changes(Some(given));
        assert_eq!((changes[0].added, changes[0].removed), (2, 0));
    }
}
