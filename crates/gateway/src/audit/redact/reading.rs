//! Texts that run, or that somebody is asked about before they do: nothing that could be a command is hidden in them.
//! What nobody runs is hidden as in any other text.

use std::borrow::Cow;
use std::ops::Range;

use super::code::{Code, Kind};
use super::reach::Reach;
use super::running::{Running, Use};
use super::script::{self, Script};
use super::spans::{looks_chosen, named_spans};
use super::{Redactor, TOKENS, files, keys, merged, replace, structures, words};

/// What becomes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A shell runs it.
    Line,
    /// An interpreter runs it.
    Program,
    /// Anything may run any part of it.
    Code,
    /// A shell or anything else may run it, also where it was given as a secret.
    Anything,
    /// Nobody runs it.
    Data,
    /// A program takes all of it for a secret.
    Secret,
}

impl Reading {
    /// Of the field of this name, if its text runs or becomes a file that may.
    pub(super) fn of_field(name: &str) -> Option<Self> {
        match name {
            "cmd" | "command" | "line" => Some(Self::Line),
            "code" | "content" | "diff" | "new_string" | "newText" | "patch" | "script" => Some(Self::Code),
            _ => None,
        }
    }

    /// Of what a shell line reads.
    pub fn of_input_to_line(line: &str, input: &str) -> Self {
        let script = Script::read(line);
        let commands = script.commands.iter();
        let commands: Vec<Vec<&str>> = commands
            .map(|command| command.iter().map(|word| word.text.as_str()).collect())
            .collect();
        Self::of_input(&commands, input)
    }

    /// Of what a program reads.
    pub fn of_input_to_program(program: &str, args: &[String], input: &str) -> Self {
        let words = [program].into_iter().chain(args.iter().map(String::as_str));
        Self::of_input(&[words.collect()], input)
    }

    /// Whether something runs it.
    pub(super) fn runs(self) -> bool {
        match self {
            Self::Line | Self::Program | Self::Code | Self::Anything => true,
            Self::Data | Self::Secret => false,
        }
    }

    /// Any of the commands may be the one that reads it.
    fn of_input(commands: &[Vec<&str>], input: &str) -> Self {
        let runs = |words: &Vec<&str>| Running::new(words).may_run(input);
        if commands.iter().any(|words| Running::new(words).all == Use::Code) {
            Self::Program
        } else if commands.iter().any(runs) {
            Self::Code
        } else if commands.iter().any(|words| words::read_secret(words)) {
            Self::Secret
        } else {
            Self::Data
        }
    }
}

impl Redactor {
    /// A line that a shell runs.
    pub fn redact_line<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.redact_read(text, Reading::Line)
    }

    /// Text in any language, of which any part may run.
    pub fn redact_script<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.redact_read(text, Reading::Code)
    }

    pub fn redact_read<'t>(&self, text: &'t str, reading: Reading) -> Cow<'t, str> {
        replace(text, self.read_spans(text, reading))
    }

    /// How many characters of it are not shown for being secret.
    pub fn withheld_chars(&self, text: &str, reading: Reading) -> usize {
        let spans = merged(text, self.read_spans(text, reading));
        spans.into_iter().map(|span| text[span].chars().count()).sum()
    }

    fn read_spans(&self, text: &str, reading: Reading) -> Vec<Range<usize>> {
        if reading == Reading::Secret {
            return std::iter::once(0..text.trim_end().len()).collect();
        }
        if reading == Reading::Anything {
            return self.spans_of_anything(text);
        }
        let found = self.found(text);
        if found.is_empty() && !words::may_hold_any(text) {
            return Vec::new();
        }
        let script = match reading {
            Reading::Line => Script::read(text),
            Reading::Program | Reading::Anything => Script::of_code(text, Kind::Program),
            Reading::Code => Script::of_code(text, Kind::File),
            Reading::Data | Reading::Secret => Script::of_text(text),
        };
        self.within_words(text, found, &script)
    }

    fn found(&self, text: &str) -> Found {
        Found {
            held: self.held_spans(text),
            named: named_spans(text).into_iter().filter(|span| !span.is_empty()).collect(),
            given: self.given_values.spans(text),
        }
    }

    /// What is hidden however it is read, but not for being known as a whole: it may be a command all the same.
    fn spans_of_anything(&self, text: &str) -> Vec<Range<usize>> {
        let whole = text.trim_end().len();
        let mut found = self.found(text);
        let shaped: Vec<_> = TOKENS.find_iter(text).map(|found| found.range()).collect();
        let is_part = |span: &Range<usize>| (span.start, span.end) != (0, whole) || shaped.contains(span);
        found.held.retain(is_part);
        found.named.retain(is_part);
        found.given.retain(is_part);
        let read = |script: &Script| merged(text, self.within_words(text, found.clone(), script));
        let code = Script::of_code(text, Kind::Program);
        let mut hidden = both(&read(&Script::read(text)), &read(&code));
        // Whoever is shown them could use them; but for keys, which were read above, they are one word each.
        hidden.extend(
            shaped
                .into_iter()
                .filter(|span| !text[span.clone()].contains(char::is_whitespace)),
        );
        hidden
    }

    /// Arguments of a program: a secret may stand in the argument behind its name.
    pub fn redact_args(&self, program: &str, args: &[String]) -> Vec<String> {
        let words: Vec<&str> = [program].into_iter().chain(args.iter().map(String::as_str)).collect();
        let hidden = words::hidden(&words).into_iter().enumerate().skip(1);
        let running = Running::new(&words);
        let file = running.file();
        let has_targets = !running.takes_data() && !words::take_secrets(program, &words);
        let is_target = |arg: &str, secret: &Option<Range<usize>>| {
            let is_word = !arg.starts_with('-') && !arg.contains("://");
            has_targets && is_word && secret.is_none()
        };
        let redacted = args.iter().zip(hidden).map(|(arg, (at, secret))| {
            let mut found = self.found(arg);
            if file == Some(at) {
                let known = self.values.spans(arg);
                found.held.retain(|span| span.start > 0 || known.contains(span));
                found.named.retain(|span| span.start > 0);
            }
            if let Some(name) = files::sent_by(arg, &words[..at]) {
                found.named.retain(|span| span.start <= name.len());
            }
            if file == Some(at) || is_target(arg, &secret) {
                found.given.retain(|span| looks_made(&arg[span.clone()]));
            }
            let script = match secret {
                Some(_) if running.is_program(at, true) => Script::of_argument(arg, Use::Code),
                // Unlike in a text, a value given in one argument reaches to its end, spaces included.
                Some(secret) if !running.may_run_named(at, secret.start) => {
                    let reach = Reach::of(&running, at, secret.start);
                    found.named.push(secret);
                    Script::of_named(arg, reach)
                }
                Some(secret) => {
                    found.named.push(secret);
                    Script::read(arg).without_verbs()
                }
                None if found.is_empty() && !words::may_hold_any(arg) => return arg.clone(),
                None if running.is_script(at, false) => Script::of_argument(arg, running.of_word(at)),
                None => Script::of_argument(arg, running.of_word(at)).without_verbs(),
            };
            replace(arg, self.within_words(arg, found, &script)).into_owned()
        });
        redacted.collect()
    }

    /// These and what the words of its commands hold, each within its word; and what nobody would run.
    fn within_words(&self, text: &str, found: Found, script: &Script) -> Vec<Range<usize>> {
        let mut named = script.before_commands(text, found.named);
        for command in &script.commands {
            let hidden = command.iter().zip(script::hidden(command));
            named.extend(hidden.filter_map(|(word, secret)| Some(word.written(secret?))));
        }
        let hides = |span: &Range<usize>| {
            let value = &text[span.clone()];
            let runs = script.runs_at(span.start) && !TOKENS.is_match(value);
            // A token is no less one for standing where a program would. What an interpreter runs may be a file of that name.
            let is_verb = script.is_verb_at(span.start) && !(script.is_program_at(span.start) && is_token(value));
            !runs && !is_verb
        };
        let code = Code::new(text);
        let named = named.into_iter().filter(hides);
        let named = named.filter_map(|span| code.hidden(span, |at| script.code_at(at)));
        // What was called a secret elsewhere is acted upon here.
        let is_target = |at: usize| script.is_target_at(at) || script.code_at(at) == Some(Kind::Program);
        let given = found
            .given
            .into_iter()
            .filter(|span| hides(span) || script.is_program_at(span.start) && names_no_program(&text[span.clone()]));
        let given = given.filter(|span| !is_target(span.start) || looks_made(&text[span.clone()]));
        let spans = found.held.into_iter().filter(hides).chain(named).chain(given);
        let kept = spans.flat_map(|span| match code.is_text_at(span.start, script.code_at(span.start)) {
            true => vec![span],
            false => script.within_word(span),
        });
        let mut kept: Vec<_> = kept.collect();
        kept.extend(keys::spans(text));
        let data = structures::spans(text).into_iter();
        let data = data.filter(|span| script.is_data_at(span.start));
        kept.extend(data.flat_map(|span| script.within_word(span)));
        // No agent chose the operator's secrets; a pattern may fit anything.
        kept.extend(self.values.spans(text));
        let matches = self.patterns.iter().flat_map(|pattern| pattern.find_iter(text));
        kept.extend(
            matches
                .map(|found| found.range())
                .filter(|found| script.is_quoted(found)),
        );
        kept
    }
}

/// Where secrets stand in a text.
#[derive(Clone)]
struct Found {
    /// By their shape, and by what the operator holds secret.
    held: Vec<Range<usize>>,
    /// By the names before them.
    named: Vec<Range<usize>>,
    /// By what the call gave as one elsewhere.
    given: Vec<Range<usize>>,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.named.is_empty() && self.given.is_empty()
    }
}

/// Whether a value is what programs make, or people think of, for secrets, and no file, branch or name that people have.
pub(super) fn looks_made(value: &str) -> bool {
    looks_chosen(value) && !value.contains(['-', ' ']) || TOKENS.is_match(value)
}

/// Whether a value is all of a token: what only holds one may be a program in a place of that name.
fn is_token(value: &str) -> bool {
    TOKENS
        .find(value)
        .is_some_and(|found| found.range() == (0..value.len()))
}

/// Whether a value that was given as a secret is surely not called so for hiding a program. Some have figures in their
/// names, `sha256sum` and `resize2fs`, but not small and large letters as well, nor are they as long.
fn names_no_program(value: &str) -> bool {
    const CHARS_MIN: usize = 20;
    let has = |test: fn(&u8) -> bool| value.bytes().any(|byte| test(&byte));
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    let is_chosen = looks_chosen(value) && !value.contains(['-', ' ']);
    is_token(value) || is_chosen && (is_mixed || value.len() >= CHARS_MIN)
}

/// What is in one of these and in one of those; each are in order and apart.
fn both(these: &[Range<usize>], those: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut shared = Vec::new();
    let (mut these, mut those) = (these.iter().peekable(), those.iter().peekable());
    while let (Some(this), Some(that)) = (these.peek(), those.peek()) {
        shared.push(this.start.max(that.start)..this.end.min(that.end));
        match this.end < that.end {
            true => these.next(),
            false => those.next(),
        };
    }
    shared.retain(|span| span.start < span.end);
    shared
}

#[cfg(test)]
mod tests;
