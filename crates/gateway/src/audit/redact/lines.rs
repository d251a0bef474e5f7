//! Secrets by the line that they stand in: tables, files of logins, values that reach to the end of a line or over
//! several.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::compiled;
use super::name::is_secret_name;
use super::spans::token_end;

/// A name and its value, alone in their line, as tables put them.
static CELLS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r#"(?m)^[ \t]*"?([A-Za-z0-9_.\-]+)(?:"?[ ]*\t[ \t]*"?|[ ]+\|[ ]+|",")([^ \t\r\n|"][^\t\r\n|"]*)"?\r?$"#)
});

/// What `libpq` finds passwords in: machine, port, database, user, password.
static LOGINS: LazyLock<Regex> = LazyLock::new(|| {
    const FIELD: &str = r"(?:[^:\s\\]|\\.)+";
    compiled(&format!(
        r"(?m)^{FIELD}:(?:[0-9]{{3,5}}|\*):{FIELD}:{FIELD}:({FIELD})\r?$"
    ))
});

/// A name behind which YAML says that the lines below are its value.
static BLOCKS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r#"(?m)^([ ]*(?:-[ ]+)?)["']?([A-Za-z0-9_.\-]+)["']?:[ \t]+([|>][+\-0-9]{0,2}[ \t]*\r?\n)"#)
});

/// Values beside the name of a secret.
pub(super) fn cells(text: &str) -> impl Iterator<Item = Range<usize>> {
    let cells = CELLS.captures_iter(text).filter(|it| is_secret_name(&it[1]));
    cells.filter_map(|it| Some(it.get(2)?.range()))
}

/// Passwords of logins.
pub(super) fn logins(text: &str) -> impl Iterator<Item = Range<usize>> {
    LOGINS.captures_iter(text).filter_map(|it| Some(it.get(1)?.range()))
}

/// Values below the name of a secret, from the sign behind it on: a shell would take that for a pipe, and what comes
/// then for a command.
pub(super) fn blocks(text: &str) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for found in BLOCKS.captures_iter(text).filter(|it| is_secret_name(&it[2])) {
        let is_within = |last: &Range<usize>| found.get_match().start() < last.end;
        if !blocks.last().is_some_and(is_within) {
            blocks.extend(found.get(3).and_then(|sign| block(text, found[1].len(), sign.range())));
        }
    }
    blocks
}

/// The lines below that stand deeper than what they are the value of, from what announces them on.
pub(super) fn block(text: &str, depth: usize, sign: Range<usize>) -> Option<Range<usize>> {
    let mut end = sign.end;
    for line in text[sign.end..].split_inclusive('\n') {
        let is_deeper = line.len() - line.trim_start_matches(' ').len() > depth;
        if !is_deeper && !line.trim().is_empty() {
            break;
        }
        end += line.len();
    }
    let end = text[..end].trim_end().len();
    (end > sign.end).then_some(sign.start..end)
}

/// Whether a line that ends here says nothing yet.
pub(super) fn is_begun(before: &str) -> bool {
    const NEARBY_CHARS: usize = 64;
    let from = before.char_indices().rev().nth(NEARBY_CHARS).map_or(0, |(at, _)| at);
    let line = before[from..].rsplit_once('\n').map(|(_, line)| line);
    let line = line.or((from == 0).then_some(before));
    line.is_some_and(|line| matches!(line.trim(), "" | "-" | "export" | "set"))
}

/// Where a value of several words ends that nothing is put around: with its line, or where something else is named.
pub(super) fn phrase_end(text: &str, first: usize) -> usize {
    let mut end = first;
    loop {
        let behind = text[end..].trim_start_matches([' ', '\t']);
        let from = text.len() - behind.len();
        let next = token_end(text, from);
        let word = &text[from..next];
        let is_other = word.is_empty() || word.contains('=') || word.ends_with(':') || word.starts_with(['#', '-']);
        if from == end || is_other {
            return end;
        }
        end = next;
    }
}
