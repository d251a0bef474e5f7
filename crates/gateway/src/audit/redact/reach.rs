//! How far a secret reaches in the word that it stands in. To most programs a word is data, and all that is left of it
//! is the value. But any program may hand its words to a shell: there the value ends where a shell would end it, and
//! whatever stands behind is another command, which must be seen.

use std::ops::Range;

use super::code::are_cookies;
use super::running::{CONTAINERS, Running};

/// Up to where a value is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the end of the word.
    Word,
    /// To the next field of a form: `token=X&page=2`.
    Field,
    /// To the end of the command that a shell may find in it: `TOKEN=X; ls`.
    Command,
    /// The same in a header, where cookies are no commands: `Cookie: a=X; b=Y`.
    Header,
    /// To the end of the word that a shell is known to find in it: `TOKEN=X ls`.
    Argument,
}

/// What ends a command, or sends what it says elsewhere.
const SEPARATORS: &[char] = &[';', '&', '|', '\n', '\r', '<', '>'];
const BLANKS: &[char] = &[' ', '\t'];

/// Options behind which a variable or a setting is given, for whoever has them.
const GIVE_SETTINGS: &[&str] = &[
    "--build-arg",
    "--env",
    "--extra-vars",
    "--from-literal",
    "--set",
    "--set-string",
    "-backend-config",
    "-var",
];
/// Builtins of the shell that set variables.
const SET_VARIABLES: &[&str] = &["declare", "export", "local", "readonly", "typeset"];
/// Programs that keep what they are given in pairs.
const KEEP_PAIRS: &[&str] = &["fly", "flyctl", "heroku", "supabase", "vault"];
/// Programs that send forms, and options by which they send what is none.
const SEND_FORMS: &[&str] = &["curl", "wget"];
const SEND_PARTS: &[&str] = &["-F", "--form", "--form-string"];

impl Reach {
    /// Of the secret that begins there in that word of a command.
    pub(super) fn of(running: &Running<'_>, at: usize, from: usize) -> Self {
        let (before, word) = (running.before(at), running.word(at));
        let is_pair = word[..from].ends_with('=');
        let is_setting = || {
            GIVE_SETTINGS.contains(&before)
                || word.starts_with("-D")
                || before == "-e" && running.program_is(CONTAINERS)
                || running.sets_variable(at)
                || running.program_is(KEEP_PAIRS)
                || running.program_is(SET_VARIABLES)
        };
        if running.program_is(SEND_FORMS) && is_pair && !SEND_PARTS.contains(&before) {
            Self::Field
        } else if running.takes_data() {
            Self::Word
        } else if running.may_run_named(at, from) {
            Self::Argument
        } else if is_pair && !word.starts_with("--") && !is_setting() {
            Self::Command
        } else if word[..from].ends_with(' ') && !before.starts_with('-') {
            Self::Header
        } else {
            Self::Word
        }
    }

    /// Whether what stands behind may be a command, though nobody knows of one.
    pub(super) fn may_be_command(self) -> bool {
        match self {
            Self::Command | Self::Header => true,
            Self::Word | Self::Field | Self::Argument => false,
        }
    }

    /// Where a value ends that is followed by the rest of its word.
    pub(super) fn end(self, value: &str) -> usize {
        match self {
            Self::Word => value.len(),
            Self::Field => value.find('&').unwrap_or(value.len()),
            Self::Command => first_free(value, |c| SEPARATORS.contains(&c)),
            Self::Header if are_cookies(value) => value.len(),
            Self::Header => Self::Command.end(value),
            Self::Argument => first_free(value, |c| SEPARATORS.contains(&c) || BLANKS.contains(&c)),
        }
    }
}

/// What of a value that was found in a text stands before the next command, if the text is a shell's. Between quotes
/// there is none.
pub(super) fn before_command(text: &str, value: Range<usize>) -> Range<usize> {
    let quote = text[..value.start].chars().next_back();
    let quote = quote.filter(|c| matches!(c, '"' | '\''));
    let behind = text[value.end..].trim_start_matches('\\');
    match quote.is_some_and(|quote| behind.starts_with(quote)) {
        true => value,
        false => value.start..value.start + Reach::Header.end(&text[value]),
    }
}

/// Where the first of these, or a substitution, stands without quotes around it. A quote that is not closed is none.
fn first_free(value: &str, ends: impl Fn(char) -> bool) -> usize {
    let mut quote = None;
    let mut is_escaped = false;
    let mut first = None;
    for (at, c) in value.char_indices() {
        let substitutes = c == '`' || value[at..].starts_with("$(");
        let is_end = substitutes || ends(c);
        if is_end && first.is_none() {
            first = Some(at);
        }
        match (quote, c) {
            _ if std::mem::take(&mut is_escaped) => {}
            (Some(open), _) if open == c => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => is_escaped = true,
            (Some(_), _) if substitutes => return at,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) if is_end => return at,
            (None, _) => {}
        }
    }
    let first = first.filter(|_| quote.is_some());
    first.unwrap_or(value.len())
}

#[cfg(test)]
mod tests;
