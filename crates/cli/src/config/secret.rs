//! Secrets: in the file, in a variable, or in a file of their own, and never printed.

use std::path::PathBuf;

use serde_json::Value as Json;

use super::surroundings::Surroundings;

/// Where a secret is; it is read when it is needed.
#[derive(Clone, PartialEq)]
pub(crate) enum Secret {
    Value(String),
    Variable(String),
    File(PathBuf),
}

impl Secret {
    pub(super) fn of(value: &Json) -> Option<Self> {
        let part = |name: &str| value.get(name).and_then(Json::as_str).map(str::to_owned);
        let plain = part("value").map(Self::Value);
        plain
            .or_else(|| part("env").map(Self::Variable))
            .or_else(|| part("file").map(PathBuf::from).map(Self::File))
    }

    /// The secret itself, without the line end that editors leave in files.
    pub(crate) fn read(&self, surroundings: &Surroundings) -> anyhow::Result<String> {
        let text = match self {
            Self::Value(value) => value.clone(),
            Self::Variable(name) => match surroundings.variable(name) {
                Some(value) => value.to_owned(),
                None => anyhow::bail!("`{name}`, which is to hold it, is not set"),
            },
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => text.trim_end_matches(['\r', '\n']).to_owned(),
                Err(error) => anyhow::bail!("`{}`, which is to hold it, cannot be read: {error}", path.display()),
            },
        };
        if text.is_empty() {
            anyhow::bail!("it is empty")
        } else {
            Ok(text)
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value(hidden)"),
            Self::Variable(name) => write!(f, "Variable({name})"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}
