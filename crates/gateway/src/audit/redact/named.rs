//! Secrets that a call gives by name: a command may print them again without the name.

use std::ops::Range;

use super::name::tells_count;
use super::script::Script;
use super::shapes::TOKENS;
use super::spans::named_spans;
use super::{files, is_secret_name, structures, words};

/// Values of secret variables.
pub fn in_variables<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> impl Iterator<Item = &'v str> {
    let secret = variables
        .into_iter()
        .filter(|(name, value)| is_secret_name(name) && !tells_count(name, value));
    secret.map(|(_, value)| value)
}

/// The same of a shell line, as its words are without their quotes.
pub fn in_line(line: &str) -> Vec<String> {
    let script = Script::read(line);
    let mut values: Vec<String> = in_text(line).map(str::to_owned).collect();
    for command in &script.commands {
        let words: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
        values.extend(in_args(&words).into_iter().map(str::to_owned));
        let said = command
            .iter()
            .filter(|word| word.is_secret)
            .map(|word| word.text.trim());
        let said = said.filter(|text| !text.is_empty() && !text.starts_with('$'));
        values.extend(said.map(str::to_owned));
    }
    values.sort_unstable();
    values.dedup();
    values
}

/// Values behind secret names of any text.
pub fn in_text(text: &str) -> impl Iterator<Item = &str> {
    let is_value = |value: &&str| !value.starts_with('$');
    let spans = named_spans(text).into_iter().chain(structures::spans(text));
    spans.map(|span| &text[span]).filter(is_value)
}

/// Whether a text that is meant to be a name gives a secret away: `token=X`, or a token itself. `auth:login` is a name.
pub fn is_given_by(text: &str) -> bool {
    let is_assigned = |span: &Range<usize>| text[..span.start].ends_with('=');
    TOKENS.is_match(text) || named_spans(text).iter().any(is_assigned)
}

/// Values behind secret names among the words of a program and its arguments.
pub fn in_args<'v>(words: &[&'v str]) -> Vec<&'v str> {
    let mut values = Vec::new();
    for (at, (word, secret)) in words.iter().zip(words::hidden(words)).enumerate() {
        match secret {
            Some(secret) => values.push(&word[secret]),
            None if files::sent_by(word, &words[..at]).is_some() => {}
            None => values.extend(in_text(word)),
        }
    }
    values
}
