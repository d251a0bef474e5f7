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
}

/// A text by characters, with the places where its lines begin.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) chars: Vec<char>,
    starts: Vec<usize>,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let breaks = chars.iter().enumerate().filter(|(_, c)| **c == '\n');
        let starts = std::iter::once(0).chain(breaks.map(|(index, _)| index + 1)).collect();
        Self { chars, starts }
    }

    /// The position of the character with this index.
    pub(super) fn at(&self, index: usize) -> Position {
        let index = index.min(self.chars.len());
        let line = self.starts.partition_point(|start| *start <= index);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(index - start + 1).unwrap_or(u32::MAX),
        }
    }

    /// The index of the character at a position of this text.
    pub(super) fn index(&self, position: Position) -> usize {
        let line = usize::try_from(position.line).unwrap_or(usize::MAX);
        let column = usize::try_from(position.column).unwrap_or(usize::MAX);
        self.starts.get(line - 1).copied().unwrap_or_default() + column - 1
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
