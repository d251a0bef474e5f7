//! The list itself.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Which commands may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowlist {
    /// `*`
    Any,
    /// Names and absolute paths.
    // INVARIANT: entries trimmed and unique; made by `from_entries` and `nothing` only.
    Only(Entries),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    names: Vec<String>,
    paths: Vec<PathBuf>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AllowlistError {
    #[error("the allowlist is empty; list commands, or `*` for any")]
    Empty,
    #[error("the allowlist holds an empty entry")]
    EmptyEntry,
    #[error("`{0}` is on the allowlist twice")]
    Twice(String),
    #[error("`*` stands for any command and stands alone on the allowlist")]
    AnyAmongOthers,
    #[error("`{0}` is neither a name nor an absolute path")]
    NeitherNameNorPath(String),
}

impl Allowlist {
    /// The list from the entries of a configuration.
    pub fn from_entries<S: AsRef<str>>(entries: &[S]) -> Result<Self, AllowlistError> {
        let mut seen: Vec<&str> = Vec::new();
        let mut only = Entries {
            names: Vec::new(),
            paths: Vec::new(),
        };
        for entry in entries {
            let entry = entry.as_ref().trim();
            if entry.is_empty() {
                return Err(AllowlistError::EmptyEntry);
            }
            if seen.contains(&entry) {
                return Err(AllowlistError::Twice(entry.to_owned()));
            }
            seen.push(entry);
            if entry.starts_with('/') && !entry.ends_with('/') {
                only.paths.push(PathBuf::from(entry));
            } else if entry.contains('/') || entry.contains(char::is_whitespace) {
                return Err(AllowlistError::NeitherNameNorPath(entry.to_owned()));
            } else {
                only.names.push(entry.to_owned());
            }
        }
        match (seen.as_slice(), seen.contains(&"*")) {
            ([], _) => Err(AllowlistError::Empty),
            (["*"], _) => Ok(Self::Any),
            (_, true) => Err(AllowlistError::AnyAmongOthers),
            (_, false) => Ok(Self::Only(only)),
        }
    }

    /// The list that allows nothing: what is left when one list is narrowed by another that shares
    /// no entry with it.
    pub fn nothing() -> Self {
        Self::Only(Entries {
            names: Vec::new(),
            paths: Vec::new(),
        })
    }

    /// The list from a comma list such as `ALLOWED_COMMANDS`.
    pub fn from_comma_list(text: &str) -> Result<Self, AllowlistError> {
        if text.trim().is_empty() {
            return Err(AllowlistError::Empty);
        }
        let entries: Vec<&str> = text.split(',').collect();
        Self::from_entries(&entries)
    }

    /// The names listed, for warnings at start. Nothing for `*`.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Any => &[],
            Self::Only(entries) => &entries.names,
        }
    }

    /// The absolute paths listed.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            Self::Any => &[],
            Self::Only(entries) => &entries.paths,
        }
    }

    pub(super) fn has_name(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(entries) => entries.names.iter().any(|listed| listed == name),
        }
    }

    pub(super) fn has_path(&self, path: &Path) -> bool {
        match self {
            Self::Any => true,
            Self::Only(entries) => entries.paths.iter().any(|listed| listed == path),
        }
    }
}
