//! Redaction: secrets leave a text before the text is recorded.
//!
//! Four kinds are known: values that the operator's environment marks as secret, as they are or encoded, tokens by
//! their shape, values by the name they are given to (`--password X`, `API_KEY=X`, `{"token": X}`), and what
//! the operator's patterns match. Pure: nothing is read from the environment here. Finding nothing
//! allocates nothing; a text without secrets is handed back as it came. What is kept is the name, so
//! that a reader sees that a secret was given, and to what.

mod code;
mod colours;
mod cut;
mod files;
mod forms;
mod keys;
mod lines;
mod manifests;
mod name;
pub mod named;
mod pairs;
mod reach;
mod reading;
mod running;
mod script;
mod shapes;
mod spans;
mod structures;
mod values;
mod variables;
mod words;

use std::borrow::Cow;
use std::ops::Range;

use regex::Regex;
use serde_json::{Map, Value};

pub(crate) use forms::forms;
pub use name::is_secret_name;
use name::{counts_tokens, is_figure};
use reach::Reach;
pub use reading::Reading;
use shapes::{TOKEN_BYTES_MIN, TOKENS};
use spans::named_spans;
use values::Values;
pub use variables::Variables;

/// What stands where a secret stood.
pub const REPLACEMENT: &str = "[redacted]";
/// Shorter secret values are not searched for: they would be found everywhere.
pub const VALUE_BYTES_MIN: usize = 6;
/// Secrets of one call that are searched for, each through all of its output.
const GIVEN_MAX: usize = 320;
/// The first of them are searched for encoded as well.
const ENCODED_MAX: usize = 32;

/// What this installation holds secret beyond what is known by shape and name.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Whatever these match is a secret.
    pub patterns: Vec<Regex>,
    /// Values of secret environment variables.
    pub secret_values: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Redactor {
    patterns: Vec<Regex>,
    values: Values,
    /// What one call brought along.
    given: Vec<String>,
    given_values: Values,
    /// The same where it is too short to be searched for: no value is one of these.
    short: Vec<String>,
}

impl Redactor {
    pub fn new(config: Config) -> Self {
        Self {
            patterns: config.patterns,
            values: in_all_forms(config.secret_values),
            given: Vec::new(),
            given_values: Values::None,
            short: Vec::new(),
        }
    }

    /// One that knows these values as well, as they are or encoded; none where there are none that could be told from
    /// other text.
    pub fn hiding<'v>(&self, values: impl IntoIterator<Item = &'v str>) -> Option<Self> {
        let values = values.into_iter().map(str::trim_end);
        let long = values.filter(|value| value.len() >= VALUE_BYTES_MIN).take(GIVEN_MAX);
        let mut given: Vec<_> = long
            .enumerate()
            .flat_map(|(at, value)| match at < ENCODED_MAX {
                true => forms(value),
                false => vec![value.to_owned()],
            })
            .collect();
        given.sort_unstable();
        given.dedup();
        (!given.is_empty()).then(|| self.knowing(given))
    }

    /// One that knows these values as well, in every form that somebody who was given them may repeat them in.
    #[must_use]
    pub fn confiding<'v>(&self, values: impl IntoIterator<Item = &'v str>) -> Self {
        let values = values.into_iter().map(str::trim).filter(|value| !value.is_empty());
        let (long, short): (Vec<&str>, Vec<&str>) = values.partition(|value| value.len() >= VALUE_BYTES_MIN);
        let mut given: Vec<String> = long.into_iter().flat_map(forms).collect();
        given.sort_unstable();
        given.dedup();
        Self {
            short: short.into_iter().map(str::to_owned).collect(),
            ..self.knowing(given)
        }
    }

    /// One that knows these values as well.
    #[must_use]
    pub fn holding<'v>(&self, values: impl IntoIterator<Item = &'v str>) -> Self {
        let long = values.into_iter().filter(|value| value.len() >= VALUE_BYTES_MIN);
        self.knowing(long.map(str::to_owned).collect())
    }

    fn knowing(&self, given: Vec<String>) -> Self {
        Self {
            given_values: Values::new(&given),
            given,
            ..self.clone()
        }
    }

    pub fn redact_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut spans = self.held_spans(text);
        spans.extend(named_spans(text));
        spans.extend(self.given_values.spans(text));
        spans.extend(structures::spans(text));
        replace(text, spans)
    }

    /// A program or a place that is acted upon. Whatever an agent calls it, only what the operator holds secret is hidden.
    pub fn redact_target<'t>(&self, text: &'t str) -> Cow<'t, str> {
        replace(text, self.held_spans(text))
    }

    /// What is known by its shape or held secret by the operator, wherever it stands.
    fn held_spans(&self, text: &str) -> Vec<Range<usize>> {
        let may_be_token = text.len() >= TOKEN_BYTES_MIN;
        let patterns = self.patterns.iter().chain(may_be_token.then_some(&*TOKENS));
        let matches = patterns.flat_map(|pattern| pattern.find_iter(text));
        let mut spans: Vec<_> = matches.map(|found| found.range()).collect();
        spans.extend(self.values.spans(text));
        spans.retain(|span| !span.is_empty());
        spans
    }

    /// A copy in which no string holds a secret, and no secret name a value.
    pub fn redact_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if self.short.iter().any(|short| short == text.trim()) => Value::from(REPLACEMENT),
            Value::String(text) => Value::from(self.redact_text(text).into_owned()),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                let texts: Vec<_> = items
                    .iter()
                    .filter_map(|item| item.as_str().map(str::to_owned))
                    .collect();
                let shown = self.redact_words(&texts).into_iter().zip(&texts);
                let shown = shown.map(|(shown, text)| match self.short.contains(text) {
                    true => REPLACEMENT.to_owned(),
                    false => shown,
                });
                shown.collect()
            }
            Value::Array(items) => items.iter().map(|item| self.redact_json(item)).collect(),
            Value::Object(fields) => Value::Object(self.redact_fields(fields)),
            Value::Number(number) if self.is_given(&number.to_string()) => Value::from(REPLACEMENT),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// A program and its arguments.
    fn redact_words(&self, words: &[String]) -> Vec<String> {
        let Some((program, args)) = words.split_first() else {
            return Vec::new();
        };
        let shown = match words::hidden(&[program]).first() {
            Some(Some(secret)) => {
                // Whoever lists texts may have listed commands.
                let end = secret.start + Reach::Command.end(&program[secret.clone()]);
                format!("{}{REPLACEMENT}{}", &program[..secret.start], &program[end..])
            }
            Some(None) | None => self.redact_text(program).into_owned(),
        };
        let mut redacted = vec![shown];
        redacted.extend(self.redact_args(program, args));
        redacted
    }

    /// Whether a whole value is one that a call brought along.
    fn is_given(&self, value: &str) -> bool {
        self.given.iter().chain(&self.short).any(|given| given == value)
    }

    /// The value of one field, by the name that it has.
    pub fn redact_field(&self, name: &str, value: &Value) -> Value {
        if counts_tokens(name) {
            figures(value)
        } else if is_secret_name(name) || value.is_string() && name.eq_ignore_ascii_case("pass") {
            blank(value)
        } else if let Value::String(text) = value
            && let Some(reading) = Reading::of_field(name)
        {
            Value::from(self.redact_read(text, reading).into_owned())
        } else {
            self.redact_json(value)
        }
    }

    fn redact_fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let program = ["file", "command"].iter().find_map(|name| fields.get(*name)?.as_str());
        let redacted = fields.iter().map(|(name, value)| {
            let value = match (program, value) {
                (Some(program), Value::Array(items)) if name == "args" => self.redact_items(program, items),
                (_, value) if pairs::holds_secret(fields, name) => blank(value),
                (_, value) => self.redact_field(name, value),
            };
            (self.redact_text(name).into_owned(), value)
        });
        redacted.collect()
    }

    /// Arguments of a program, unless they are none.
    pub fn redact_items(&self, program: &str, items: &[Value]) -> Value {
        let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        match texts {
            Some(args) => self.redact_args(program, &args).into(),
            None => items.iter().map(|item| self.redact_json(item)).collect(),
        }
    }
}

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern written in this file is tried by every test")
}

/// Values in all their forms.
fn in_all_forms(mut values: Vec<String>) -> Values {
    for value in &mut values {
        value.truncate(value.trim_end().len());
    }
    values.retain(|value| value.len() >= VALUE_BYTES_MIN);
    let mut values: Vec<_> = values.iter().flat_map(|value| forms(value)).collect();
    values.sort_unstable();
    values.dedup();
    Values::new(&values)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name_char)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// Puts the replacement in place of all spans, overlapping ones together.
fn replace(text: &str, spans: Vec<Range<usize>>) -> Cow<'_, str> {
    let spans = merged(text, spans);
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    let mut done = 0;
    for span in spans {
        redacted.push_str(&text[done..span.start]);
        redacted.push_str(REPLACEMENT);
        done = span.end;
    }
    redacted.push_str(&text[done..]);
    Cow::Owned(redacted)
}

/// The spans in their order, overlapping ones together; what was replaced before is no secret.
fn merged(text: &str, mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.retain(|span| !span.is_empty() && &text[span.clone()] != REPLACEMENT);
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// `1000:1000` is a user and a group.
fn is_group(password: &str) -> bool {
    password.bytes().all(|byte| byte.is_ascii_digit())
}

/// What a field says that counts the tokens of a model, `tokenUsage`: numbers, and nothing that could be one of
/// the other tokens. Whatever else stands there is taken for a secret.
fn figures(value: &Value) -> Value {
    match value {
        Value::Number(_) => value.clone(),
        Value::String(text) if is_figure(text) => value.clone(),
        Value::Array(items) => items.iter().map(figures).collect(),
        Value::Object(fields) => {
            let figure = |(name, value): (&String, &Value)| {
                let is_secret = is_secret_name(name) && !counts_tokens(name);
                (name.clone(), if is_secret { blank(value) } else { figures(value) })
            };
            Value::Object(fields.iter().map(figure).collect())
        }
        Value::String(_) | Value::Null | Value::Bool(_) => blank(value),
    }
}

/// The value of a secret field, however deep it goes; its shape may stay.
fn blank(value: &Value) -> Value {
    match value {
        Value::String(_) | Value::Number(_) => Value::from(REPLACEMENT),
        Value::Array(items) => items.iter().map(blank).collect(),
        Value::Object(fields) => {
            let blanked = fields.iter().map(|(name, value)| (name.clone(), blank(value)));
            Value::Object(blanked.collect())
        }
        Value::Null | Value::Bool(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests;
