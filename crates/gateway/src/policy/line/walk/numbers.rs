//! Which variables certainly hold numbers.
//!
//! A name may be read in arithmetic only if every assignment in the line gave it a number; a value
//! from anywhere else could hold text that runs commands when evaluated. Bash sets some names by
//! itself, builtins set those they are given, and the environment may hold any: an assignment in a
//! branch that is not taken leaves what was there.

use std::collections::HashMap;

use brush_parser::ast::Word;

use super::arguments::{DECLARING, is_name};
use super::endings::Endings;
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

/// Builtins that set the variables they are given, and the one that may run them.
pub(super) const SETTING: [&str; 6] = ["read", "printf", "getopts", "mapfile", "readarray", "command"];

/// Names in which bash itself keeps a number; nothing else can be put there, since a line may not set them.
const COUNTED_BY_BASH: [&str; 4] = ["RANDOM", "SRANDOM", "SECONDS", "LINENO"];

/// Commands whose words need no quotes where they are numbers.
const COUNTING: [&str; 3] = ["test", "[", "wait"];

#[derive(Debug, Default)]
pub(super) struct Numbers {
    numeric: HashMap<String, bool>,
    read: Vec<EvaluatedName>,
    /// Options of such builtins; a name may be attached to one, as in `printf -vx`.
    options: Endings,
}

impl Numbers {
    pub(super) fn assigned(&mut self, name: &str, numeric: bool) {
        let known = self.numeric.entry(name.to_owned()).or_insert(true);
        *known &= numeric;
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
                Some((name, _)) if declares => self.assigned(name.trim_end_matches('+'), false),
                Some(_) | None if !sets => {}
                Some(_) | None if text.starts_with('-') => self.options.add(text),
                Some(_) | None => self.assigned(text, false),
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
                what: "arithmetic over a value that may be no number (`${x//[^0-9]/}` takes the digits of `x`)",
                position: read.position,
            })
            .collect()
    }

    /// Marks the words of a command that are certainly numbers, where that matters.
    pub(super) fn mark(&mut self, command: &mut CommandUse) {
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

    fn is_number(&self, name: &str) -> bool {
        if COUNTED_BY_BASH.contains(&name) {
            return true;
        }
        self.numeric.get(name) == Some(&true) && !SET_BY_BASH.contains(&name) && !self.options.any_ends_with(name)
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

fn unquoted(written: &str) -> &str {
    written
        .strip_prefix('"')
        .and_then(|inner| inner.strip_suffix('"'))
        .unwrap_or(written)
}

/// A word behind `in` that becomes nothing but numbers: also `{1..9}` and `{1,5,9}`.
pub(super) fn is_numbers(word: &Word) -> bool {
    let inner = word.value.strip_prefix('{').and_then(|inner| inner.strip_suffix('}'));
    let is_digits = |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let are_digits = |inner: &str| inner.split("..").all(is_digits) || inner.split(',').all(is_digits);
    is_number(word) || inner.is_some_and(are_digits)
}

/// Digits, or nothing but arithmetic expansions and digits.
pub(super) fn is_number(word: &Word) -> bool {
    is_number_text(&word.value)
}

fn is_number_text(written: &str) -> bool {
    // The last job in the background, or nothing.
    if unquoted(written) == "$!" {
        return true;
    }
    let parts = word::parse(written, Context::Word).parts;
    !parts.is_empty()
        && parts.iter().all(|part| match part {
            Part::Text(text) | Part::Quoted(text) => text.chars().all(|c| c.is_ascii_digit() || c == '-'),
            Part::Expansion(Expansion::Number | Expansion::Digits) => true,
            Part::Expansion(Expansion::Value) => false,
        })
}
