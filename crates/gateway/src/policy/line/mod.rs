//! Reading of shell lines: from text to what it would run.
//!
//! [`read`] gives a [`Line`]: its *shape* (a plain tree that runs without a shell, or the reason why
//! a shell is needed), every simple command anywhere in it, and the other facts a list of allowed
//! commands needs (assignments, functions, places this reader cannot see through). It decides
//! nothing: a line that is unclear is still read, and [`super::allowlist`] refuses it. Only what is
//! no shell text at all, or is too large to read safely, is an error here.

mod arithmetic;
mod canonical;
mod documents;
mod guard;
mod joined;
#[cfg(test)]
mod oracle;
mod plain;
mod position;
mod restated;
#[cfg(test)]
mod tests;
pub mod tree;
mod walk;
mod word;

use documents::Documents;

pub use canonical::{canonical, canonical_argv};
pub use guard::{Limits, LineError};
pub use position::Position;
pub use restated::{Restated, restate};

pub(super) use walk::{decides_locale, is_harmless_locale};

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub shape: Shape,
    /// Every simple command in the syntax tree, also inside substitutions and function bodies.
    pub commands: Vec<CommandUse>,
    pub assignments: Vec<AssignmentUse>,
    pub functions: Vec<FunctionUse>,
    /// Names that arithmetic reads: bash evaluates their values, which may run commands.
    pub evaluated: Vec<EvaluatedName>,
    /// The first character beyond ASCII.
    pub beyond_ascii: Option<Position>,
    /// Places where what bash would do is not fully known.
    pub unclear: Vec<Unclear>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Runs without a shell.
    Plain(tree::Tree),
    /// Needs bash, and why.
    NeedsShell(&'static str),
}

/// One simple command: its words after quote removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandUse {
    pub name: Arg,
    pub args: Vec<Arg>,
    pub position: Position,
    /// Where each of the arguments stands.
    pub arg_positions: Vec<Position>,
}

/// A word as far as it is known before the line runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Exactly this text.
    Static(String),
    /// Becomes file names at run time, if any match; each begins with `prefix`.
    Pattern { prefix: String, written: String },
    /// Computed at run time. It begins with `prefix`; unquoted, it may become many words or none.
    Computed { prefix: String, written: String },
    /// Computed at run time, and certainly nothing but digits and dashes, or no word at all. Only words of tests and of
    /// `wait` are looked at for this.
    Number { written: String },
    /// Computed at run time: one word that certainly begins as a path does, is a number, or is empty. Only words of
    /// `find` are looked at for this.
    Path { written: String },
}

/// A variable set by `x=…`, `for x in`, `${x:=…}` or arithmetic. What builtins set stands in their
/// arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentUse {
    pub name: String,
    /// The value of a plain `x=…` that is known before the line runs.
    pub value: Option<String>,
    pub position: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionUse {
    pub name: String,
    pub position: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatedName {
    pub name: String,
    pub position: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear {
    pub what: &'static str,
    pub position: Position,
}

/// Reads one line, which may hold many lines of text.
pub fn read(text: &str, limits: Limits) -> Result<Line, LineError> {
    guard::check_size(text, limits)?;
    // What is visible has as many characters, so that every position holds in both.
    let documents = Documents::read(text);
    let program = guard::parse(&documents, limits)?;
    let facts = walk::walk(text, &documents, &program, limits)?;
    let shape = match facts.unclear.first() {
        Some(unclear) => Shape::NeedsShell(unclear.what),
        None => match plain::build(documents.visible(), &program) {
            Ok(tree) => Shape::Plain(tree),
            Err(reason) => Shape::NeedsShell(reason),
        },
    };
    Ok(Line {
        shape,
        commands: facts.commands,
        assignments: facts.assignments,
        functions: facts.functions,
        evaluated: facts.evaluated,
        beyond_ascii: facts.beyond_ascii,
        unclear: facts.unclear,
    })
}

impl Arg {
    /// The text of a word that is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Static(text) => Some(text),
            Self::Pattern { .. } | Self::Computed { .. } | Self::Number { .. } | Self::Path { .. } => None,
        }
    }

    /// The word for messages: its text, or what was written.
    pub fn shown(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Pattern { written, .. }
            | Self::Computed { written, .. }
            | Self::Number { written }
            | Self::Path { written } => written,
        }
    }

    /// What the word certainly begins with.
    pub fn prefix(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Pattern { prefix, .. } | Self::Computed { prefix, .. } => prefix,
            Self::Number { .. } | Self::Path { .. } => "",
        }
    }

    /// Whether a word that begins so is a path, and no option or operator.
    pub(super) fn begins_path(c: char) -> bool {
        c.is_alphanumeric() || "/._".contains(c)
    }

    /// Whether it becomes exactly one word.
    pub(super) fn is_one_word(&self) -> bool {
        match self {
            Self::Static(_) | Self::Path { .. } => true,
            Self::Pattern { .. } | Self::Number { .. } => false,
            Self::Computed { written, .. } => word::is_one_in_quotes(written),
        }
    }
}
