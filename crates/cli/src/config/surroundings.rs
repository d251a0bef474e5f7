//! What the process was started with: environment, current directory, home, flags.
//!
//! The one place that reads the process's environment for configuration; everything after it works
//! on this value, so a test can give any other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;

/// The environment and directories of the process.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) current_dir: PathBuf,
    pub(crate) home: Option<PathBuf>,
}

/// The global flags, as typed.
#[derive(Clone, Default, Debug)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) database: Option<String>,
    pub(crate) listen: Option<String>,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> anyhow::Result<Self> {
        let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
        Ok(Self {
            variables: std::env::vars_os()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            current_dir: std::env::current_dir()
                .context("the current directory cannot be found; change into one that exists")?,
            home: std::env::home_dir().filter(|home| home.is_absolute()),
        })
    }

    /// A variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The operator's file, whether it exists or not.
    pub(crate) fn operator_file(&self) -> Option<PathBuf> {
        self.config_dir().map(|dir| dir.join("config.yaml"))
    }

    pub(crate) fn config_dir(&self) -> Option<PathBuf> {
        self.user_config_dir().map(|dir| dir.join("countersign"))
    }

    /// Where programs keep their configuration, ours and those of others.
    pub(crate) fn user_config_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    /// The state directory where neither a flag nor a variable names one.
    pub(crate) fn default_state_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_STATE_HOME", ".local/state")
            .map(|dir| dir.join("countersign"))
    }

    /// A base directory; a relative one is to be ignored, the XDG rules say.
    fn xdg(&self, variable: &str, under_home: &str) -> Option<PathBuf> {
        let named = self
            .variable(variable)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute());
        named.or_else(|| self.home.as_ref().map(|home| home.join(under_home)))
    }
}
