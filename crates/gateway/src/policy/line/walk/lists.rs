//! Values that bash reads a second time, as a list.
//!
//! `local a='($(id))'` runs `id` where `a` is an array already, whatever quotes there are: the builtins
//! that declare take such a value for the text of a list. The same value given to a plain name is text.

use std::collections::HashSet;

use brush_parser::ast::{Assignment, AssignmentName, AssignmentValue};

use super::arguments::{DECLARING, assigned_name};
use super::endings::Endings;
use crate::policy::line::joined::joined;
use crate::policy::line::position::Position;
use crate::policy::line::word::{self, Context, Expansion, Part};
use crate::policy::line::{Arg, Unclear};

/// Builtins that make arrays of the names they are given.
const FILLING: [&str; 3] = ["read", "mapfile", "readarray"];

/// Arrays that bash keeps or fills by itself, whether a line names them or not. Others of its own may not be set at all.
#[rustfmt::skip]
const OF_BASH: [&str; 7] = [
    "DIRSTACK", "MAPFILE", "FUNCNAME", "GROUPS", "PIPESTATUS", "COPROC", "COMPREPLY",
];

#[derive(Debug, Default)]
pub(super) struct Lists {
    arrays: HashSet<String>,
    /// Names that are declared with a value which may be the text of a list.
    declared: Vec<(String, Position)>,
}

impl Lists {
    pub(super) fn assigned(&mut self, assignment: &Assignment) {
        let is_element = matches!(assignment.name, AssignmentName::ArrayElementName(..));
        if is_element || matches!(assignment.value, AssignmentValue::Array(_)) {
            self.arrays.insert(assigned_name(assignment).to_owned());
        }
    }

    /// An assignment among the arguments of a builtin that declares.
    pub(super) fn declared(&mut self, assignment: &Assignment, position: Position) {
        if let AssignmentValue::Scalar(value) = &assignment.value
            && may_be_list(&word::parse(&value.value, Context::Word).parts)
        {
            self.declared.push((assigned_name(assignment).to_owned(), position));
        }
    }

    /// What a command does to the names among its words.
    pub(super) fn given(&mut self, command: &Arg, args: &[Arg], position: Position) {
        let mut words = std::iter::once(command).chain(args).filter_map(Arg::known);
        let Some(name) = words.find(|word| *word != "command") else {
            return;
        };
        let words: Vec<&str> = words.collect();
        let is_array = |word: &&str| word.starts_with(['-', '+']) && word.contains(['a', 'A']);
        let declares = DECLARING.contains(&name);
        let fills = FILLING.contains(&name) || declares && words.iter().any(is_array);
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let name = name.trim_end_matches('+');
            if fills {
                self.arrays.insert(name.to_owned());
            }
            if declares && value.starts_with('(') {
                self.declared.push((name.to_owned(), position));
            }
        }
    }

    pub(super) fn read_again(&self, text: &str) -> Vec<Unclear> {
        let mut endings = Endings::default();
        // `read -ax`: a name may be attached to the option.
        let attached = self.arrays.iter().filter(|name| name.starts_with('-'));
        attached.for_each(|name| endings.add(name));
        let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let text = joined(text);
        let mut before_brackets = text.split('[');
        before_brackets.next_back();
        for before in before_brackets {
            endings.add(&before[before.trim_end_matches(of_name).len()..]);
        }
        let is_array =
            |name: &str| OF_BASH.contains(&name) || self.arrays.contains(name) || endings.any_ends_with(name);
        let read_again = self.declared.iter().filter(|(name, _)| is_array(name));
        read_again
            .map(|(_, position)| Unclear {
                what: "a value that bash reads again as a list",
                position: *position,
            })
            .collect()
    }
}

/// Whether a value begins with a parenthesis, as far as is known. A tilde becomes a directory, which may begin with
/// anything: `~-` is what `OLDPWD` holds.
fn may_be_list(parts: &[Part]) -> bool {
    let first = parts.iter().find_map(|part| match part {
        Part::Text(text) => text.chars().next().map(|first| "(~".contains(first)),
        Part::Quoted(text) => text.chars().next().map(|first| first == '('),
        Part::Expansion(Expansion::Value) => Some(true),
        Part::Expansion(Expansion::Number) => Some(false),
        Part::Expansion(Expansion::Digits) => None,
    });
    first.unwrap_or(false)
}
