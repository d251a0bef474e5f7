//! `break` and `continue` in substitutions. Bash counts the loops around a substitution, and none around a function, so that
//! `for i in 1; do x=$(break; ls); done` would go on to `ls` once these commands stand in one.

use brush_parser::ast::{CommandPrefixOrSuffixItem as Item, SimpleCommand};

use super::Written;
use crate::policy::line::walk::known_text;

/// The loops that a `break` may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loops {
    /// Outside of substitutions bash counts as it did.
    Counted,
    /// As many as the substitution has of its own around this place.
    Own(usize),
}

impl Loops {
    pub(super) fn entered(self) -> Self {
        match self {
            Self::Counted => Self::Counted,
            Self::Own(count) => Self::Own(count + 1),
        }
    }

    /// In the body of a function that is defined here.
    pub(super) fn of_function(self) -> Self {
        match self {
            Self::Counted => Self::Counted,
            Self::Own(_) => Self::Own(0),
        }
    }

    /// Whether a command leaves no loop but these.
    pub(super) fn may_hold(self, simple: &SimpleCommand) -> Written {
        let Self::Own(count) = self else {
            return Ok(());
        };
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0);
        let args = suffix.filter_map(|item| match item {
            Item::AssignmentWord(_, word) | Item::Word(word) => Some(known_text(word)),
            Item::ProcessSubstitution(..) => Some(None),
            Item::IoRedirect(_) => None,
        });
        let words: Vec<Option<String>> = simple.word_or_name.iter().map(known_text).chain(args).collect();
        let words: Vec<Option<&str>> = words.iter().map(Option::as_deref).collect();
        // `command break` is one as well.
        let passed_on = |word: &&Option<&str>| matches!(word, Some("command" | "builtin"));
        let start = words.iter().take_while(passed_on).count();
        let left = match &words[start..] {
            [Some("break" | "continue")] => Some(1),
            [Some("break" | "continue"), Some(number)] if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                number.parse().ok()
            }
            [Some("break" | "continue"), ..] => None,
            _ => return Ok(()),
        };
        match left {
            Some(left) if (1..=count).contains(&left) => Ok(()),
            Some(_) | None => Err("a `break` or `continue` in a substitution, and not in a loop of its own"),
        }
    }
}
