//! Values that a secret's name holds together with others, or in lines below it: `{"password": ["X"]}`,
//! `{"token": {"value": "X"}}`, and YAML that goes on in the next line. In a language such a list may be a command, and a
//! line below anything may be one in a script, so these are hidden only where nobody runs them.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::name::{PARTS, ends_with, is_secret_name};
use super::pairs::{QUOTE, quoted};
use super::spans::{closing, opening, token_end};
use super::{colours, compiled, is_name};

/// A name and the beginning of its list.
static LIST: LazyLock<Regex> = LazyLock::new(|| behind_name(r"\[[ \t\r\n]*"));

/// A name and the value in its object.
static OBJECT: LazyLock<Regex> =
    LazyLock::new(|| behind_name(&format!(r"\{{[^{{}}]*?(?-u:\b)(?i-u:value){QUOTE}?[ \t]*[:=][ \t]*")));

fn behind_name(what: &str) -> Regex {
    compiled(&format!(
        r"([A-Za-z0-9_.\-]*(?i-u:{PARTS})[A-Za-z0-9_.\-]*){QUOTE}?[ \t]*(?:=>|:?=|:)[ \t]*{what}"
    ))
}

pub(super) fn spans(text: &str) -> Vec<Range<usize>> {
    colours::through(text, |text| {
        let mut spans = Vec::new();
        if text.contains('[') {
            spans.extend(behind(text, &LIST, items));
        }
        if text.contains('{') {
            spans.extend(behind(text, &OBJECT, value));
        }
        if text.contains(':') {
            spans.extend(below(text));
        }
        spans
    })
}

/// Whether a list or an object begins here, rather than a value.
pub(super) fn begin(value: &str) -> bool {
    let inner = value.strip_prefix(['[', '{']).map(str::trim_start);
    inner.is_some_and(|inner| opening(inner).is_some())
}

/// What stands behind the names of secrets; no part of it is looked at twice.
fn behind(text: &str, pattern: &Regex, values: impl Fn(&str, usize) -> Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    let mut resume = 0;
    while let Some(found) = pattern.captures_at(text, resume) {
        resume = found.get_match().end();
        if is_secret_name(&found[1]) {
            spans.extend(values(text, resume));
            resume = spans.last().map_or(resume, |last| resume.max(last.end));
        }
    }
    spans
}

/// Each of the quoted texts from here on.
fn items(text: &str, mut at: usize) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    loop {
        let rest = text[at..].trim_start_matches([' ', '\t', '\r', '\n', ',']);
        let Some(quote) = opening(rest) else {
            return items;
        };
        let start = text.len() - rest.len() + quote.len();
        let end = start + closing(&text[start..], quote);
        items.push(start..end);
        at = (end + quote.len()).min(text.len());
    }
}

fn value(text: &str, from: usize) -> Vec<Range<usize>> {
    let word = || {
        let word = &text[from..token_end(text, from)];
        from..from + word.trim_end_matches(['}', ']']).len()
    };
    vec![quoted(text, from).unwrap_or_else(word)]
}

/// Values in lines of their own below a name.
fn below(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    // How deep the name stands.
    let mut name = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let indented = line.trim_start();
        if indented.is_empty() {
            continue;
        }
        let depth = line.len() - indented.len();
        let item = indented.strip_prefix("- ").map(str::trim_start);
        let says = item.unwrap_or(indented);
        let is_below = |name: usize| depth > name || depth == name && item.is_some();
        let from = start + line.len() - says.len();
        match alone(says.trim_end()).filter(|_| name.is_some_and(is_below)) {
            Some(value) => spans.push(from + value.start..from + value.end),
            None => name = names_what_follows(says.trim_end()).then_some(from - start),
        }
    }
    spans
}

/// Whether a line names a secret and says no more.
fn names_what_follows(says: &str) -> bool {
    let name = says.strip_suffix(':').map(|name| name.trim_matches(['"', '\'']));
    name.is_some_and(|name| is_name(name) && is_secret_name(one_of(name)))
}

/// What several are called, if they are passwords.
fn one_of(names: &str) -> &str {
    let one = names
        .strip_suffix('s')
        .filter(|one| ends_with(one, "password") || ends_with(one, "passphrase"));
    one.unwrap_or(names)
}

/// The value of a line that has nothing else: one word, or what stands between quotes.
fn alone(says: &str) -> Option<Range<usize>> {
    let says = says.trim_end_matches(',');
    if let Some(quote) = opening(says) {
        let end = quote.len() + closing(&says[quote.len()..], quote);
        return (end + quote.len() == says.len()).then_some(quote.len()..end);
    }
    let begins_other = says.starts_with(['#', '|', '>', '{', '[', '}', ']', '&', '*', '!', '$', '-']);
    let is_word = !begins_other && !says.ends_with(':') && !says.contains(char::is_whitespace);
    is_word.then_some(0..says.len())
}
