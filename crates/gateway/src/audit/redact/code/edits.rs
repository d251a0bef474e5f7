//! `s/…/…/` of `sed` and its kin: what stands in it is text, unless a flag says that it runs or where it is written.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::audit::redact::compiled;

pub(super) struct Edits(Vec<Edit>);

pub(super) struct Edit {
    /// What is looked for and what is put in its place.
    parts: Range<usize>,
    is_text: bool,
}

static OPENING: LazyLock<Regex> = LazyLock::new(|| compiled(r"(?:\A|[^A-Za-z0-9_])s[/|#,@!~:]"));

impl Edits {
    pub(super) fn of(text: &str) -> Self {
        let mut edits = Vec::new();
        let mut from = 0;
        while let Some(found) = OPENING.find_at(text, from) {
            let (start, delimiter) = (found.end(), &text[found.end() - 1..found.end()]);
            let middle = ending(text, start, delimiter);
            let end = middle.and_then(|middle| ending(text, middle + 1, delimiter));
            from = end.unwrap_or(start);
            edits.extend(end.map(|end| Edit {
                parts: start..end,
                is_text: is_text(&text[end + 1..]),
            }));
        }
        Self(edits)
    }

    /// The one that this place is in.
    pub(super) fn at(&self, at: usize) -> Option<&Edit> {
        let behind = self.0.partition_point(|edit| edit.parts.start <= at);
        let edit = &self.0[behind.checked_sub(1)?];
        edit.parts.contains(&at).then_some(edit)
    }
}

impl Edit {
    /// What of a value is hidden that begins in it.
    pub(super) fn hidden(&self, text: &str, span: Range<usize>) -> Option<Range<usize>> {
        let span = span.start..span.end.min(self.parts.end);
        // Others than `sed` put code between these, and so does a shell.
        let parts = &text[self.parts.clone()];
        let is_code = parts.contains(['{', '`']) || parts.contains("$(");
        (self.is_text && !is_code && !span.is_empty()).then_some(span)
    }
}

/// Where the next delimiter stands in the same line.
fn ending(text: &str, from: usize, delimiter: &str) -> Option<usize> {
    const PART_BYTES_MAX: usize = 4096;
    let mut is_escaped = false;
    for (at, c) in text.get(from..)?.char_indices().take(PART_BYTES_MAX) {
        match c {
            '\n' => return None,
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' => is_escaped = true,
            c if delimiter.starts_with(c) => return Some(from + at),
            _ => {}
        }
    }
    None
}

/// Whether none of the flags says that the outcome runs, or which file it is written to.
fn is_text(behind: &str) -> bool {
    let mut flags = behind.chars().take_while(char::is_ascii_alphanumeric);
    !flags.any(|flag| matches!(flag, 'e' | 'E' | 'w'))
}
