//! Secrets that a call gives by name: a command may print them again without the name.

use super::spans::named_spans;
use super::{Expected, expected_after, is_group, is_name, is_secret_name};

/// Values of secret variables.
pub fn in_variables<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> impl Iterator<Item = &'v str> {
    let secret = variables.into_iter().filter(|(name, _)| is_secret_name(name));
    secret.map(|(_, value)| value)
}

/// Values behind secret names of a shell line, or of any text.
pub fn in_text(text: &str) -> impl Iterator<Item = &str> {
    let is_value = |value: &&str| !value.starts_with('$');
    named_spans(text).into_iter().map(|span| &text[span]).filter(is_value)
}

/// Values behind secret names among the arguments of a program.
pub fn in_args<'v>(args: impl IntoIterator<Item = &'v str>) -> Vec<&'v str> {
    let mut values = Vec::new();
    let mut expected = Expected::Anything;
    for arg in args {
        match (expected, arg.split_once('=')) {
            (Expected::Secret, _) if !arg.starts_with("--") => values.push(arg),
            (_, Some((name, value))) if is_name(name) && is_secret_name(name) => values.push(value),
            (Expected::UserAndPassword, _) => values.extend(password(arg)),
            (Expected::Secret | Expected::Anything, _) => values.extend(in_text(arg)),
        }
        expected = expected_after(arg);
    }
    values
}

fn password(arg: &str) -> Option<&str> {
    let (_, password) = arg.split_once(':')?;
    (!is_group(password)).then_some(password)
}
