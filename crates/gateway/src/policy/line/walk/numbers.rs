//! Which variables certainly hold numbers.
//!
//! A name may be read in arithmetic only if every assignment in the line gave it a number; a value
//! from anywhere else could hold text that runs commands when evaluated.

use std::collections::HashMap;

use brush_parser::ast::Word;

use crate::policy::line::Unclear;
use crate::policy::line::position::Position;
use crate::policy::line::word::{self, Context, Expansion, Part};

#[derive(Debug, Default)]
pub(super) struct Numbers {
    numeric: HashMap<String, bool>,
    read: Vec<(String, Position)>,
}

impl Numbers {
    pub(super) fn assigned(&mut self, name: &str, numeric: bool) {
        let known = self.numeric.entry(name.to_owned()).or_insert(true);
        *known &= numeric;
    }

    pub(super) fn read(&mut self, name: String, at: Position) {
        self.read.push((name, at));
    }

    pub(super) fn unknown(&self) -> Vec<Unclear> {
        self.read
            .iter()
            .filter(|(name, _)| self.numeric.get(name) != Some(&true))
            .map(|(_, position)| Unclear {
                what: "arithmetic over a value that may be no number",
                position: *position,
            })
            .collect()
    }
}

/// Digits, or nothing but arithmetic expansions and digits.
pub(super) fn is_number(word: &Word) -> bool {
    let parts = word::parse(&word.value, Context::Word).parts;
    !parts.is_empty()
        && parts.iter().all(|part| match part {
            Part::Text(text) | Part::Quoted(text) => text.chars().all(|c| c.is_ascii_digit() || c == '-'),
            Part::Expansion(Expansion::Number) => true,
            Part::Expansion(Expansion::Value) => false,
        })
}
