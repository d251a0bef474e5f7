//! Where something stands in the text, for messages: `line L, column C`, both counted from one and
//! in characters.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    pub const START: Self = Self { line: 1, column: 1 };

    /// The position of the character with this index in the whole text.
    pub(super) fn at(text: &[char], index: usize) -> Self {
        let before = &text[..index.min(text.len())];
        let line = 1 + before.iter().filter(|c| **c == '\n').count();
        let column = 1 + before.iter().rev().take_while(|c| **c != '\n').count();
        Self {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// How indexes of a nested text map to the whole one. The parser drops comments and joins
/// continued lines inside substitutions; there the start of the enclosing word has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) base: Option<usize>,
    pub(super) fallback: usize,
}

impl Origin {
    pub(super) const WHOLE: Self = Self {
        base: Some(0),
        fallback: 0,
    };

    pub(super) fn map(self, index: usize) -> usize {
        self.base.map_or(self.fallback, |base| base + index)
    }

    /// The origin of a text that begins at `index` of this one.
    pub(super) fn inside(self, index: usize, verbatim: bool) -> Self {
        let start = self.map(index);
        Self {
            base: self.base.filter(|_| verbatim).map(|_| start),
            fallback: start,
        }
    }
}
