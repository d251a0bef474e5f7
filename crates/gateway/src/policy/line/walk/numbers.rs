//! Which variables certainly hold numbers, or paths.
//!
//! A name may be read in arithmetic only if every assignment in the line gave it a number; a value
//! from anywhere else could hold text that runs commands when evaluated. `find` may begin where a name says only if
//! that is a path every time, and no `-exec`. Bash sets some names by
//! itself, builtins set those they are given, and the environment may hold any: an assignment in a
//! branch that is not taken leaves what was there.

use std::collections::HashMap;

use brush_parser::ast::Word;

use super::arguments::{DECLARING, is_name};
use super::endings::Endings;
use crate::policy::line::arithmetic::MAY_BE_TEXT;
use crate::policy::line::plain;
use crate::policy::line::position::Position;
use crate::policy::line::word::{self, Context, Expansion, Part};
use crate::policy::line::{Arg, CommandUse, EvaluatedName, Unclear};

/// Names that hold a text of bash's own, or of the surroundings, whatever a line assigns to them: bash sets some anew,
/// and an assignment may stand in a branch that is not taken.
#[rustfmt::skip]
const SET_BY_BASH: [&str; 17] = [
    "_", "REPLY", "PWD", "OLDPWD", "FUNCNAME", "DIRSTACK", "OPTARG", "MAPFILE", "COPROC", "HOSTNAME", "HOSTTYPE",
    "MACHTYPE", "OSTYPE", "TERM", "SHELL", "HOME", "TMPDIR",
];

/// Builtins that set the variables they are given or take them away, and the one that may run them.
pub(super) const SETTING: [&str; 7] = ["read", "printf", "getopts", "mapfile", "readarray", "unset", "command"];

/// Names in which bash itself keeps a number; nothing else can be put there, since a line may not set them.
const COUNTED_BY_BASH: [&str; 4] = ["RANDOM", "SRANDOM", "SECONDS", "LINENO"];

/// Names in which bash keeps a path that begins with a slash, unless a line sets them.
const PATHS_OF_BASH: [&str; 2] = ["PWD", "HOME"];

/// Commands whose words need no quotes where they are numbers.
const COUNTING: [&str; 3] = ["test", "[", "wait"];

/// What is certain of a value, or of every value of a name. Values of both kinds may stand behind one another, as
/// `x+=…` puts them, and are what they were: none begins with a dash but in front of a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Certain {
    /// Digits, perhaps behind a dash, or empty.
    number: bool,
    /// Begins as a path, is a number, or is empty.
    path: bool,
}

impl Certain {
    pub(super) const NOTHING: Self = Self {
        number: false,
        path: false,
    };
    pub(super) const NUMBER: Self = Self {
        number: true,
        path: true,
    };

    /// Of a value that is put behind the one that a name has.
    pub(super) fn of_appended(value: &Word) -> Self {
        let Self { number, path } = Self::of_value(value);
        let parts = word::parse(&value.value, Context::Word).parts;
        // What arithmetic gives may be negative, and `5-3` is no number.
        let may_be_signed = |part: &Part| match part {
            Part::Text(text) | Part::Quoted(text) => text.contains('-'),
            Part::Expansion(Expansion::Digits) => false,
            Part::Expansion(Expansion::Number | Expansion::Value) => true,
        };
        Self {
            number: number && !parts.iter().any(may_be_signed),
            path,
        }
    }

    /// Of a value that is assigned: it stays one word.
    pub(super) fn of_value(value: &Word) -> Self {
        let first = word::parse(&value.value, Context::Word)
            .parts
            .into_iter()
            .find_map(|part| match part {
                Part::Text(text) | Part::Quoted(text) => text.chars().next().map(Arg::begins_path),
                Part::Expansion(Expansion::Number) => Some(true),
                Part::Expansion(Expansion::Digits) => None,
                Part::Expansion(Expansion::Value) => Some(false),
            });
        let number = is_number(value);
        Self {
            number,
            path: number || first.unwrap_or(true),
        }
    }

    /// Of what a word behind `in` becomes, however many words that are.
    pub(super) fn of_words(word: &Word) -> Self {
        let parts = word::parse(&word.value, Context::Word).parts;
        let number = is_numbers(word);
        let start = plain::word(&parts).map(|word| plain::literal_start(&word));
        Self {
            number,
            path: number || start.is_ok_and(|start| start.starts_with(Arg::begins_path)),
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            number: self.number && other.number,
            path: self.path && other.path,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Numbers {
    values: HashMap<String, Certain>,
    read: Vec<EvaluatedName>,
    /// Options of such builtins; a name may be attached to one, as in `printf -vx`.
    options: Endings,
}

impl Numbers {
    pub(super) fn assigned(&mut self, name: &str, value: Certain) {
        let known = self.values.entry(name.to_owned()).or_insert(Certain::NUMBER);
        *known = known.and(value);
    }

    /// What a command may set by its arguments.
    pub(super) fn given(&mut self, command: &Arg, args: &[Arg]) {
        let Some(command) = command.known() else {
            return;
        };
        let sets = SETTING.contains(&command);
        let declares = DECLARING.contains(&command) || command == "command";
        for text in args.iter().filter_map(Arg::known) {
            match text.split_once('=') {
                // The parser sees no assignment in a word with quotes, `export 'x=1'`.
                Some((name, _)) if declares => self.assigned(name.trim_end_matches('+'), Certain::NOTHING),
                Some(_) | None if !sets => {}
                Some(_) | None if text.starts_with('-') => self.options.add(text),
                Some(_) | None => self.assigned(text, Certain::NOTHING),
            }
        }
    }

    pub(super) fn read(&mut self, name: String, position: Position) {
        self.read.push(EvaluatedName { name, position });
    }

    pub(super) fn unknown(&self) -> Vec<Unclear> {
        self.read
            .iter()
            .filter(|read| !self.is_number(&read.name))
            .map(|read| Unclear {
                what: MAY_BE_TEXT,
                position: read.position,
            })
            .collect()
    }

    /// Marks the words of a command that are certainly numbers or paths, where that matters.
    pub(super) fn mark(&mut self, command: &mut CommandUse) {
        if command.name.known() == Some("find") {
            self.mark_paths(command);
        }
        let Some(name) = command.name.known().filter(|name| COUNTING.contains(name)) else {
            return;
        };
        // In quotes it is one word to a test anyway; `wait` wants a number even so.
        let is_wanted = |arg: &&mut Arg| name == "wait" || !arg.is_one_word();
        for arg in command.args.iter_mut().filter(is_wanted) {
            let Arg::Computed { written, .. } = arg else {
                continue;
            };
            match variable(written) {
                // The environment may hold it too.
                Some(name) if self.is_number(name) => self.read.push(EvaluatedName {
                    name: name.to_owned(),
                    position: command.position,
                }),
                None if is_number_text(written) => {}
                Some(_) | None => continue,
            }
            *arg = Arg::Number {
                written: std::mem::take(written),
            };
        }
    }

    fn mark_paths(&mut self, command: &mut CommandUse) {
        for arg in command.args.iter_mut().filter(|arg| arg.is_one_word()) {
            let Arg::Computed { written, .. } = arg else {
                continue;
            };
            let Some(name) = path_variable(written).filter(|name| self.is_path(name)) else {
                continue;
            };
            if !PATHS_OF_BASH.contains(&name) {
                self.read.push(EvaluatedName {
                    name: name.to_owned(),
                    position: command.position,
                });
            }
            *arg = Arg::Path {
                written: std::mem::take(written),
            };
        }
    }

    fn is_number(&self, name: &str) -> bool {
        COUNTED_BY_BASH.contains(&name) || self.certain(name).is_some_and(|certain| certain.number)
    }

    fn is_path(&self, name: &str) -> bool {
        if PATHS_OF_BASH.contains(&name) {
            return !self.values.contains_key(name) && !self.options.any_ends_with(name);
        }
        self.certain(name).is_some_and(|certain| certain.path)
    }

    /// What is certain of a name that nothing but assignments in the line sets.
    fn certain(&self, name: &str) -> Option<Certain> {
        let is_set_otherwise = SET_BY_BASH.contains(&name) || self.options.any_ends_with(name);
        self.values.get(name).copied().filter(|_| !is_set_otherwise)
    }

    /// Every name whose value is evaluated.
    pub(super) fn into_evaluated(self) -> Vec<EvaluatedName> {
        self.read
    }
}

/// The name in `$x` and `${x}`, in quotes or not.
fn variable(written: &str) -> Option<&str> {
    let bare = unquoted(written).strip_prefix('$')?;
    let name = bare
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'))
        .unwrap_or(bare);
    is_name(name).then_some(name)
}

/// The name in `"$x"`, `"${x}"` and `"$x/…"`: whatever is unset or empty, the word begins as its value or as a path.
fn path_variable(written: &str) -> Option<&str> {
    let inner = unquoted(written);
    variable(inner.split_once('/').map_or(inner, |(first, _)| first))
}

fn unquoted(written: &str) -> &str {
    written
        .strip_prefix('"')
        .and_then(|inner| inner.strip_suffix('"'))
        .unwrap_or(written)
}

/// A word behind `in` that becomes nothing but numbers: also `{1..9}` and `{1,5,9}`.
fn is_numbers(word: &Word) -> bool {
    let inner = word.value.strip_prefix('{').and_then(|inner| inner.strip_suffix('}'));
    let is_digits = |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let are_digits = |inner: &str| inner.split("..").all(is_digits) || inner.split(',').all(is_digits);
    is_number(word) || inner.is_some_and(are_digits)
}

/// Digits, or nothing but arithmetic expansions and digits.
fn is_number(word: &Word) -> bool {
    is_number_text(&word.value)
}

fn is_number_text(written: &str) -> bool {
    // The last job in the background, or nothing.
    if unquoted(written) == "$!" {
        return true;
    }
    let parts = word::parse(written, Context::Word).parts;
    let is_digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    // A dash that nothing follows is no number: `d=-; d+=exec`.
    let is_signed = |text: &str| {
        text.strip_prefix('-')
            .is_some_and(|digits| !digits.is_empty() && is_digits(digits))
    };
    !parts.is_empty()
        && parts.iter().enumerate().all(|(index, part)| match part {
            Part::Text(text) | Part::Quoted(text) => is_digits(text) || index == 0 && is_signed(text),
            Part::Expansion(Expansion::Number | Expansion::Digits) => true,
            Part::Expansion(Expansion::Value) => false,
        })
}
