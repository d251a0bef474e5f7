//! Values in the text of a program. What stands behind a secret's name there may be code that runs, as in
//! `$password=qx{…}`; only a literal without anything that a language or a shell makes something of is hidden. A literal
//! that the same text runs, or removes, is seen as well, by the name that it was given: `token="reboot"; system(token)`.
//!
//! Texts are not understood here. Whoever cuts a command into literals can still be seen to do so.

mod edits;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::shapes::TOKENS;
use super::spans::{is_mixed, is_scheme};
use super::{compiled, is_name_char};
use edits::Edits;

/// Of which kind a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An interpreter is given it, and runs it.
    Program,
    /// A file in any language, or a text that may become one. Most of those that name secrets are settings.
    File,
}

/// A text, and what is known of it once somebody asks.
pub(super) struct Code<'t> {
    text: &'t str,
    edits: OnceCell<Edits>,
    used: OnceCell<HashSet<&'t str>>,
}

impl<'t> Code<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            edits: OnceCell::new(),
            used: OnceCell::new(),
        }
    }

    /// What of a named value is hidden, by the kind of the text at each place.
    pub(super) fn hidden(&self, span: Range<usize>, kind_at: impl Fn(usize) -> Option<Kind>) -> Option<Range<usize>> {
        let Some(kind) = kind_at(span.start) else {
            return Some(span);
        };
        let value = &self.text[span.clone()];
        if TOKENS.find(value).is_some_and(|found| found.len() == value.len()) {
            return Some(span);
        }
        match kind {
            Kind::File => (!CALLS.is_match(value)).then_some(span),
            Kind::Program => match self.edits().at(span.start) {
                Some(edit) => edit.hidden(self.text, span),
                None => self.literal(span, |at| kind_at(at) == Some(kind)),
            },
        }
    }

    /// The literal of a value, if it is one and nothing is made of it.
    fn literal(&self, span: Range<usize>, is_inside: impl Fn(usize) -> bool) -> Option<Range<usize>> {
        let value = &self.text[span.clone()];
        if are_cookies(value) {
            return Some(span);
        }
        let scheme = value.split_once(' ').filter(|(scheme, _)| is_scheme(scheme));
        let start = span.start + scheme.map_or(0, |(scheme, _)| scheme.len() + 1);
        let length = self.text[start..span.end].find(',');
        let end = length.map_or(span.end, |length| start + length);
        let value = &self.text[start..end];
        let is_secret = is_literal(value) || is_mixed(value) && is_quoted(self.text, start..end);
        let is_seen = || self.is_used(span.start) || goes_on(self.text, end, is_inside);
        (is_secret && !is_seen()).then_some(start..end)
    }

    /// Whether what begins here is hidden to its end, whatever a shell would make of it.
    pub(super) fn is_text_at(&self, at: usize, kind: Option<Kind>) -> bool {
        kind == Some(Kind::Program) && self.edits().at(at).is_some()
    }

    fn edits(&self) -> &Edits {
        self.edits.get_or_init(|| Edits::of(self.text))
    }

    /// Whether the text runs, removes or calls what is given to the name before this place.
    fn is_used(&self, at: usize) -> bool {
        let used = self.used.get_or_init(|| used(self.text));
        !used.is_empty() && (used.contains(name_before(self.text, at)) || used.contains(self.name_of_text(at)))
    }

    /// The name that the text is given to in which a value begins: `user = "ann:X"`.
    fn name_of_text(&self, at: usize) -> &'t str {
        let text = self.text[..at].rsplit_once(['"', '\'']);
        text.map_or("", |(before, _)| name_before(self.text, before.len()))
    }
}

/// Something that runs: a call, a command between backquotes, or what is put in place of an expression.
static CALLS: LazyLock<Regex> = LazyLock::new(|| compiled(r#"[$@#][({]|`|[A-Za-z0-9_\])][({]"#));

/// Names that are given to what runs or removes something, that are written to or read from as commands, and that are
/// called.
static USES: LazyLock<Regex> = LazyLock::new(|| {
    const PATH: &str = r#"(?:\w+(?:\.|->|::|\[["']?|\{["']?))*(\w+)"#;
    const ACTS: &str = r"system|exec\w*|p?open[0-9]?|Popen|spawn\w*|run|call|check_call|check_output|getoutput|\
        getstatusoutput|eval|qx|passthru|shell_exec|proc_open|startfile|capture[23]e?|rmtree|remove|removedirs|rmdir|\
        rm|rmSync|rmdirSync|unlink|unlinkSync|rename|kill|chmod|chown";
    let acts = ACTS.replace("\\\n", "").replace(' ', "");
    compiled(&format!(
        r#"(?-u:\b)(?:{acts})[\s(\[{{"'`$@#&!\\]{{1,8}}{PATH}|`[\s$@#{{\\]*{PATH}|\|&?[\s"'$@#\\]*{PATH}|(\w+)\s*\||(\w+)\("#
    ))
});

fn used(text: &str) -> HashSet<&str> {
    let mut names = HashSet::new();
    let mut from = 0;
    // What one use ends with may begin the next: `system(token(`.
    while let Some(found) = USES.captures_at(text, from) {
        let name = (1..found.len()).find_map(|at| found.get(at));
        let is_set = |name: &regex::Match<'_>| {
            let behind = text[name.end()..].trim_start();
            behind.starts_with('=') && !behind.starts_with("==")
        };
        let name_used = name.filter(|name| !is_set(name));
        // All that leads to it as well: `system(token[1:])`.
        let parts = name_used.map(|name| &text[found.get_match().start()..name.end()]);
        let is_between = |c: char| !c.is_alphanumeric() && c != '_';
        let parts = parts.into_iter().flat_map(|parts| parts.split(is_between));
        names.extend(parts.filter(|part| !part.is_empty()));
        from = name.map_or(found.get_match().end(), |name| name.end());
    }
    names
}

/// The name that a value is given to.
fn name_before(text: &str, at: usize) -> &str {
    let is_between = |c: char| c.is_whitespace() || "\"'\\=:>?+]".contains(c);
    let before = text[..at].trim_end_matches(is_between);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let length = before.len() - before.trim_end_matches(is_part).len();
    &before[before.len() - length..]
}

/// Whether a value is neither code nor a command of more than one word, in any language.
fn is_literal(value: &str) -> bool {
    let is_plain = |c: char| is_name_char(c) || !c.is_ascii() && !c.is_whitespace() || "+/=%@:!#^~?*".contains(c);
    !value.is_empty() && value.chars().all(is_plain) && !is_path(value)
}

/// Whether it stands between quotes, and nothing in it but brackets could be code.
fn is_quoted(text: &str, value: Range<usize>) -> bool {
    let is_open = text[..value.start].ends_with(['"', '\'']);
    is_open && is_literal(&text[value].replace(['(', ')'], ""))
}

/// `a=b; c=d`, as browsers send them.
pub(super) fn are_cookies(value: &str) -> bool {
    let is_one = |pair: &str| {
        pair.split_once('=')
            .is_some_and(|(name, value)| is_literal(name) && is_literal(value))
    };
    value.contains("; ") && value.split("; ").all(is_one)
}

/// `os.system`, which is a name of something, and not a value.
fn is_path(value: &str) -> bool {
    let mut parts = value.split(['.', ':']);
    let is_part = |part: &str| part.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    value.contains(['.', ':']) && parts.all(is_part)
}

/// Whether what ends here is a part of an expression: something is put behind it, or it is called.
fn goes_on(text: &str, end: usize, is_inside: impl Fn(usize) -> bool) -> bool {
    let behind = text[end..].trim_start_matches(['"', '\'', '\\']);
    let from = text.len() - behind.len();
    if behind.starts_with(['(', '`', '{', '[']) && is_inside(from) {
        return true;
    }
    let next = behind.trim_start_matches([' ', '\t']);
    let at = text.len() - next.len();
    from > end && at < text.len() && is_inside(at) && next.starts_with(['+', '.', '%', '*', '"', '\'', '~'])
}

#[cfg(test)]
mod tests;
