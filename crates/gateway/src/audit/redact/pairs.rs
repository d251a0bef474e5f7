//! A name and its value that stand apart, each behind a word of its own: `name: DB_PASSWORD` and below it `value: X`,
//! `{"key": "token", "value": "X"}`, `<add key="Password" value="X"/>`, `define('DB_PASSWORD', 'X')`.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::compiled;
use super::lines;
use super::name::is_secret_name;
use super::spans::{closing, opening, token_end};

/// What stands around words, escaped as it may be.
pub(super) const QUOTE: &str = r#"(?:\\*["']|&quot;|&#34;)"#;
/// What stands between two fields: a comma, the ends of lines, also written out.
const BETWEEN: &str = r"(?:[ \t\r\n,]|\\[nrt])";

/// What both may belong to, as `helm` says it: `env[0].name=TOKEN,env[0].value=X`.
const OWNER: &str = r"(?:[A-Za-z0-9_\-]+(?:\[[0-9]+\])?\.)";

/// A name, and what its value stands behind.
static NAME_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    compiled(&format!(
        r"(?-u:\b)(?i-u:key|name|parameterkey|variable){QUOTE}?[ \t]*[:=][ \t]*{QUOTE}?([A-Za-z0-9_.:\-]+){QUOTE}?{BETWEEN}+{OWNER}?{QUOTE}?((?i-u:parametervalue|value)){QUOTE}?[ \t]*[:=][ \t]*"
    ))
});

/// A value, and the name behind it.
static VALUE_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    compiled(&format!(
        r#"(?-u:\b)(?i-u:parametervalue|value){QUOTE}?[ \t]*[:=][ \t]*(?:"((?:[^"\\\r\n]|\\.)+)"|'([^'\r\n]+)'|([^\s,"']+)){BETWEEN}+{QUOTE}?(?i-u:key|name|parameterkey|variable){QUOTE}?[ \t]*[:=][ \t]*{QUOTE}?([A-Za-z0-9_.:\-]+)"#
    ))
});

/// A function that sets something, and the name that it sets.
static SETTERS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(&format!(
        r"(?i-u:add|append|define|env|environ|header|prop|property|put|set|setdefault|setitem|setproperty|setrequestheader|setenv|putenv|getenv)\([ \t]*{QUOTE}([A-Za-z0-9_.:\-]+){QUOTE}[ \t]*,[ \t]*"
    ))
});

/// Values whose names stand beside them.
pub(super) fn spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    for found in NAME_FIRST.captures_iter(text).filter(|it| is_secret(&it[1])) {
        let value = found.get(2).map_or(0, |word| word.start());
        spans.extend(value_at(text, found.get_match().end(), value));
    }
    for found in VALUE_FIRST.captures_iter(text).filter(|it| is_secret(&it[4])) {
        let value = (1..=3).find_map(|at| found.get(at));
        spans.extend(value.map(|value| value.range()));
    }
    for found in SETTERS.captures_iter(text).filter(|it| is_secret(&it[1])) {
        let from = found.get_match().end();
        spans.extend(quoted(text, from));
    }
    spans
}

/// Whether an object says by one of its fields that another is a secret: the value of a secret's name, and what a
/// Secret of Kubernetes holds.
pub(super) fn holds_secret(fields: &Map<String, Value>, name: &str) -> bool {
    let is_named = || {
        let names = ["name", "Name", "key", "Key", "ParameterKey"].iter();
        let mut names = names.filter_map(|name| fields.get(*name)?.as_str());
        names.any(is_secret)
    };
    match name {
        "value" | "Value" | "ParameterValue" => is_named(),
        "data" | "stringData" => fields.get("kind").and_then(Value::as_str) == Some("Secret"),
        _ => false,
    }
}

/// `Db:Password` names a password.
fn is_secret(name: &str) -> bool {
    is_secret_name(name.rsplit(':').next().unwrap_or_default())
}

pub(super) fn quoted(text: &str, from: usize) -> Option<Range<usize>> {
    let quote = opening(&text[from..])?;
    let from = from + quote.len();
    Some(from..from + closing(&text[from..], quote))
}

/// The value here, whose word stands there: between its quotes, to the end of the line that it is alone in, in the
/// lines below, or one word.
fn value_at(text: &str, from: usize, word: usize) -> Option<Range<usize>> {
    if let Some(quoted) = quoted(text, from) {
        return Some(quoted);
    }
    if !lines::is_begun(&text[..word]) {
        return Some(from..token_end(text, from));
    }
    let line = text[..word].rfind('\n').map_or(0, |end| end + 1);
    let end = text[from..].find('\n').map_or(text.len(), |length| from + length);
    match text[from..end].trim_end() {
        "" => None,
        sign if sign.starts_with(['|', '>']) && sign.len() <= 3 => {
            let sign = from..(end + 1).min(text.len());
            lines::block(text, word - line, sign)
        }
        value => Some(from..from + value.len()),
    }
}

#[cfg(test)]
mod tests;
