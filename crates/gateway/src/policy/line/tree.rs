//! The tree of a plain line: what the confined runner executes without a shell.
//!
//! Quoting is resolved here once. A quoted `*` is part of a literal, an unquoted one is
//! [`Piece::AnyText`], so the runner never looks at shell syntax. The types travel to the runner and
//! derive their wire form for that reason.

use serde::{Deserialize, Serialize};

use super::position::Position;

/// Commands that change the runner itself instead of starting a program. The runner implements
/// exactly these; a line with any other builtin that no program can stand in for needs a shell.
pub const RUNNER_BUILTINS: [&str; 4] = [":", "true", "false", "cd"];

/// Lists run one after the other, whatever the one before gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    pub lists: Vec<List>,
}

/// Pipelines joined by `&&` and `||`, read from the left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    pub first: Pipeline,
    pub rest: Vec<(Joint, Pipeline)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joint {
    /// `&&`: run when the status so far is zero.
    And,
    /// `||`: run when the status so far is not zero.
    Or,
}

/// Commands joined by `|`; its status is the status of the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipeline {
    // INVARIANT: never empty.
    pub commands: Vec<Command>,
}

/// One program with its words and redirections, in the order they were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The command word after quote removal; never a pattern.
    pub name: String,
    pub args: Vec<Word>,
    /// Applied from left to right after the pipe is in place.
    pub redirections: Vec<Redirection>,
    pub position: Position,
}

/// A word as a row of pieces. No pieces at all is the empty argument `""`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    Literal(String),
    /// `*`: any text without a slash, and no leading dot.
    AnyText,
    /// `?`: one character that is no slash, and no leading dot.
    AnyChar,
    /// `[…]`: one character inside the ranges, or outside of them when negated.
    OneOf {
        negated: bool,
        ranges: Vec<(char, char)>,
        /// The brackets as written, for a pattern that matches nothing.
        written: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirection {
    pub fd: u32,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// `<`
    Read(String),
    /// `>` and `>|`: create or truncate.
    Write(String),
    /// `>>`
    Append(String),
    /// `<>`: open for reading and writing, create, keep the content.
    ReadWrite(String),
    /// `2>&1`: this descriptor becomes a copy of that one.
    CopyOf(u32),
    /// `2>&-`
    Close,
    /// A here-document or here-string: the bytes to be read.
    Text(String),
}

impl Word {
    /// The text of a word without patterns.
    pub fn literal(&self) -> Option<String> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(part) => text.push_str(part),
                Piece::AnyText | Piece::AnyChar | Piece::OneOf { .. } => return None,
            }
        }
        Some(text)
    }

    /// The argument a pattern becomes when no file matches: its own text after quote removal.
    pub fn unmatched(&self) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(part) => text.push_str(part),
                Piece::AnyText => text.push('*'),
                Piece::AnyChar => text.push('?'),
                Piece::OneOf { written, .. } => text.push_str(written),
            }
        }
        text
    }
}

impl Tree {
    /// Every command, in the order of the text.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.pipelines().flat_map(|pipeline| &pipeline.commands)
    }

    /// Every pipeline, in the order of the text.
    pub fn pipelines(&self) -> impl Iterator<Item = &Pipeline> {
        self.lists
            .iter()
            .flat_map(|list| std::iter::once(&list.first).chain(list.rest.iter().map(|(_, pipeline)| pipeline)))
    }
}
