//! Why a command was refused, in words a model can act on.

use std::fmt;

use crate::policy::line::{Position, Unclear};

/// A refused command: the word, its place and the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub word: String,
    /// Nothing for an argument vector.
    pub position: Option<Position>,
    pub rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    NotListed,
    /// Listed, but no such program.
    NotFound,
    RelativePath,
    /// The command word is known at run time only.
    ComputedCommand,
    RefusedBuiltin,
    /// A builtin whose effect on variables or options cannot be told.
    UnclearBuiltin(&'static str),
    /// A launcher whose launched command cannot be told.
    UnclearLauncher(&'static str),
    GuardedVariable,
    FunctionName(&'static str),
    /// Text that cannot be read with certainty.
    Unclear(&'static str),
}

impl std::error::Error for Refusal {}

impl Refusal {
    pub(super) fn new(word: &str, position: Option<Position>, rule: Rule) -> Self {
        Self {
            word: word.to_owned(),
            position,
            rule,
        }
    }

    pub(super) fn order(&self) -> (bool, Option<Position>) {
        (matches!(self.rule, Rule::Unclear(_)), self.position)
    }
}

impl From<Unclear> for Refusal {
    fn from(unclear: Unclear) -> Self {
        Self::new("", Some(unclear.position), Rule::Unclear(unclear.what))
    }
}

impl Rule {
    /// The stable name of the rule, for records.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotListed => "not-listed",
            Self::NotFound => "not-found",
            Self::RelativePath => "relative-path",
            Self::ComputedCommand => "computed-command",
            Self::RefusedBuiltin => "refused-builtin",
            Self::UnclearBuiltin(_) => "unclear-builtin",
            Self::UnclearLauncher(_) => "unclear-launcher",
            Self::GuardedVariable => "guarded-variable",
            Self::FunctionName(_) => "function-name",
            Self::Unclear(_) => "unclear",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Shown(&self.word);
        match &self.rule {
            Rule::NotListed => write!(f, "`{word}` is not on the allowlist")?,
            Rule::NotFound => write!(f, "`{word}` is on the allowlist but no such program is installed")?,
            Rule::RelativePath => write!(
                f,
                "`{word}` is a relative path; the allowlist holds names and absolute paths"
            )?,
            Rule::ComputedCommand => write!(f, "the command `{word}` is computed at run time; write its name out")?,
            Rule::RefusedBuiltin => write!(f, "`{word}` is refused under an allowlist")?,
            Rule::UnclearBuiltin(why) => write!(f, "`{word}` is refused: {why}")?,
            Rule::UnclearLauncher(why) => {
                write!(f, "what `{word}` would launch cannot be told: {why}")?;
            }
            Rule::GuardedVariable => write!(
                f,
                "the variable `{word}` steers how lines are read, or how programs are found or loaded, and may not be set"
            )?,
            Rule::FunctionName(why) => write!(f, "the function `{word}` is refused: {why}")?,
            Rule::Unclear(what) => {
                write!(f, "{what} cannot be checked against the allowlist")?;
            }
        }
        match self.position {
            Some(position) => write!(f, " ({position})"),
            None => Ok(()),
        }
    }
}

/// A word in which nothing is invisible: with a carriage return behind it, `ls` would seem to be refused for its name.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\'' | '"' | '\\' => write!(f, "{c}"),
            c => write!(f, "{}", c.escape_debug()),
        })
    }
}
