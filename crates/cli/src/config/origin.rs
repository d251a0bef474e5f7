//! Where a value was written, and what is said about it: origins, problems and warnings.
//!
//! A *problem* stops the start; all of them are reported together. A *warning* says what was left
//! out of the result and why, and stays with the result for `config show` and `policy explain`.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file, 1-based.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// Who speaks, weakest first; the order of the variants is the order of merging.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    Default,
    /// The operator's file.
    Operator(PathBuf),
    /// A file named by `--config` that the workspace contains while the operator has a file too.
    Named {
        path: PathBuf,
        trusted: bool,
    },
    /// The project's `.countersign/config.yaml`.
    Project {
        path: PathBuf,
        trusted: bool,
    },
    Environment(String),
    Flag(String),
}

impl Source {
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Operator(path) | Self::Named { path, .. } | Self::Project { path, .. } => Some(path),
            Self::Default | Self::Environment(_) | Self::Flag(_) => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trust = |trusted: &bool| if *trusted { "trusted " } else { "" };
        match self {
            Self::Default => write!(f, "default"),
            Self::Operator(path) => write!(f, "operator file {}", path.display()),
            Self::Named { path, trusted } => write!(f, "{}named file {}", trust(trusted), path.display()),
            Self::Project { path, trusted } => write!(f, "{}project file {}", trust(trusted), path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// The source of one value, with its place where the source is a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(crate) source: Source,
    pub(crate) at: Option<Position>,
}

impl Origin {
    pub(crate) fn of(source: Source) -> Self {
        Self { source, at: None }
    }

    pub(crate) fn at(source: &Source, at: Option<Position>) -> Self {
        Self {
            source: source.clone(),
            at,
        }
    }

    /// How a message about this place begins.
    pub(crate) fn lead(&self) -> String {
        let name = match &self.source {
            Source::Default => "built-in default".to_owned(),
            Source::Environment(name) | Source::Flag(name) => format!("`{name}`"),
            Source::Operator(path) | Source::Named { path, .. } | Source::Project { path, .. } => {
                path.display().to_string()
            }
        };
        match self.at {
            Some(at) => format!("{name}: {at}"),
            None => name,
        }
    }
}

/// Something that must be corrected before anything starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) origin: Origin,
    pub(crate) message: String,
}

/// Something that was left out, or that the operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Warning {
    pub(crate) origin: Origin,
    pub(crate) key: String,
    pub(crate) reason: String,
}

/// All problems of one load.
#[derive(Debug)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{}, {at}", self.source),
            None => write!(f, "{}", self.source),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin.lead(), self.message)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lead, key) = (self.origin.lead(), format!("`{}`", self.key));
        match lead == key {
            // A flag is its own key.
            true => write!(f, "{key}: {}", self.reason),
            false => write!(f, "{lead}: {key}: {}", self.reason),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            write!(f, "{gap}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The known word nearest to a mistyped one, for "did you mean".
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (typed.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|word| (distance(&typed.to_lowercase(), word), word))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Edits (insert, drop, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let edited = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped {
                    edited.min(rows[i - 2][j - 2] + 1)
                } else {
                    edited
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_finds_its_word_and_a_far_one_does_not() {
        let known = ["allowlist", "timeout_seconds", "sandbox", "mode"];
        for (typed, expected) in [
            ("alowlist", Some("allowlist")),
            ("timeout_second", Some("timeout_seconds")),
            ("sandobx", Some("sandbox")),
            ("Mode", Some("mode")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, known), expected, "{typed}");
        }
    }
}
