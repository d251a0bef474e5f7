//! What the process was started with: environment, current directory, home, flags.
//!
//! The one place that reads the process's environment for configuration; everything after it works
//! on this value, so a test can give any other.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The environment and directories of the process.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) variables: BTreeMap<String, String>,
    /// Where it does not exist any more, what it was: most commands do not need it, and those that do say that it is
    /// missing.
    pub(crate) current_dir: PathBuf,
    pub(crate) home: Option<PathBuf>,
    /// Where we are root, the homes of those whom commands may run as.
    pub(crate) other_homes: Vec<PathBuf>,
}

/// The global flags, as typed.
#[derive(Clone, Default, Debug)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) database: Option<String>,
    pub(crate) listen: Option<String>,
}

/// Our home, and those of whom commands may run as.
pub(crate) fn all_homes() -> Vec<PathBuf> {
    home().into_iter().chain(other_homes()).collect()
}

fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

fn other_homes() -> Vec<PathBuf> {
    match crate::wiring::uid() {
        0 => homes_of(&fs::read_to_string("/etc/passwd").unwrap_or_default(), owner),
        _ => Vec::new(),
    }
}

impl Surroundings {
    pub(crate) fn of_this_process() -> anyhow::Result<Self> {
        let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
        Ok(Self {
            variables: std::env::vars_os()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            current_dir: current_dir()?,
            home: home(),
            other_homes: other_homes(),
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

/// The current directory, or what the kernel calls one that was removed. That must not be the name of another.
fn current_dir() -> anyhow::Result<PathBuf> {
    let found = std::env::current_dir().or_else(|missing| match fs::read_link("/proc/self/cwd") {
        Ok(removed) if removed.is_absolute() && fs::symlink_metadata(&removed).is_err() => Ok(removed),
        Ok(_) | Err(_) => Err(missing),
    });
    found.context("the current directory cannot be found; change into one that exists")
}

/// Numbers of people begin here; below are those of services.
const UID_OF_PEOPLE: u32 = 1000;

/// The homes in a table of users, each once. Those of people and those that belong to their user: a service is often given
/// a directory of the system, in which nobody keeps credentials.
fn homes_of(users: &str, owner: impl Fn(&Path) -> Option<u32>) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let uid: u32 = fields.next()?.parse().ok()?;
        let home = PathBuf::from(fields.nth(2)?);
        let owner = owner(&home)?;
        let is_home = home.is_absolute() && home.parent().is_some() && (uid >= UID_OF_PEOPLE || owner == uid);
        is_home.then_some(home)
    };
    let mut homes: Vec<PathBuf> = users.lines().filter_map(of_line).collect();
    homes.sort();
    homes.dedup();
    homes
}

/// Whose a directory is.
fn owner(path: &Path) -> Option<u32> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_dir)?;
    Some(found.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_those_of_people_and_of_services_that_have_one_of_their_own() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbin:x:2:2::/bin:/bin/sh\nnet:x:998:998::/:/bin/sh\n\
                     pg:x:101:101::/var/lib/pg:/bin/sh\nana:x:1000:1000:Ana,,,:/home/ana:/bin/sh\n\
                     ben:x:1001:1001::/home/shared:/bin/sh\neva:x:1002:1002::/home/shared:/bin/sh\n\
                     gone:x:1003:1003::/home/gone:/bin/sh\nbroken\n";
        let owner = |path: &Path| match path.to_str() {
            Some("/root" | "/bin" | "/" | "/home/shared") => Some(0),
            Some("/var/lib/pg") => Some(101),
            Some("/home/ana") => Some(1000),
            _ => None,
        };
        let expected = ["/home/ana", "/home/shared", "/root", "/var/lib/pg"].map(PathBuf::from);
        assert_eq!(homes_of(users, owner), expected);
    }
}
