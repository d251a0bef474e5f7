//! The demo's own little world: a directory with a workspace, a home, a configuration and the state.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use countersign_exec::{Directories, Machine};
use countersign_gateway::policy::allowlist::Programs as _;

use crate::config::{Flags, Surroundings};
use crate::start::Started;
use crate::{private, wiring};

/// Whom commands of a root server run as, when the workspace is theirs.
const NOBODY: u32 = 65_534;
/// Helpers tidy up behind us, so a directory may fill while we empty it.
const REMOVE_WITHIN: Duration = Duration::from_secs(3);

pub(super) struct Place {
    base: PathBuf,
    /// The first program of these that this machine has.
    pub(super) looks: &'static str,
    pub(super) fetches: &'static str,
}

impl Place {
    pub(super) fn make() -> anyhow::Result<Self> {
        let base = private::temporary_base(is_root())?;
        let search = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).to_vec();
        let machine = Machine::new(search);
        let first = |names: [&'static str; 3]| {
            let found = names.into_iter().find(|name| machine.find(name).is_some());
            found.unwrap_or(names[2])
        };
        let place = Self {
            base,
            looks: first(["git", "ls", "ls"]),
            fetches: first(["curl", "wget", "getent"]),
        };
        place.fill().context("cannot set the demo up")?;
        Ok(place)
    }

    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.base.join("workspace")
    }

    pub(super) fn directories(&self) -> anyhow::Result<Directories> {
        private::directories_within(&self.base, is_root())
    }

    /// The configuration, read as if this place were all there is.
    pub(super) fn started(&self) -> anyhow::Result<Started> {
        let surroundings = Surroundings {
            variables: BTreeMap::new(),
            current_dir: self.workspace(),
            home: Some(self.home()),
            other_homes: Vec::new(),
        };
        let flags = Flags {
            state_dir: Some(self.base.join("state")),
            ..Flags::default()
        };
        Started::of(surroundings, &flags)
    }

    fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    fn fill(&self) -> std::io::Result<()> {
        let config = self.home().join(".config/countersign");
        DirBuilder::new().mode(0o700).create(self.base.join("state"))?;
        DirBuilder::new().recursive(true).mode(0o700).create(&config)?;
        fs::write(config.join("config.yaml"), self.configuration())?;
        let work = self.workspace();
        // A repository without commits is a few files; no git is needed to make one.
        for directory in ["", ".git", ".git/objects", ".git/refs", ".git/refs/heads", "src"] {
            DirBuilder::new().mode(0o755).create(work.join(directory))?;
        }
        for (name, text) in [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"),
            ("README.md", "# A small project\n\nMade for the demo of Countersign.\n"),
            ("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n"),
        ] {
            fs::write(work.join(name), text)?;
        }
        if is_root() {
            give_all(&work)?;
        }
        Ok(())
    }

    fn configuration(&self) -> String {
        format!(
            "# The demo's policy: a few programs, no network, and a person for everything that writes.\n\
             workspace_root: {:?}\n\
             command_policy:\n  allowlist: [{}]\n  network: deny\n\
             approval_policy: {{mode: untrusted, timeout_ms: 600000}}\n",
            self.workspace(),
            ["cp", "ls", "rm", self.fetches]
                .into_iter()
                .chain((self.looks != "ls").then_some(self.looks))
                .collect::<Vec<_>>()
                .join(", ")
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_WITHIN;
        while fs::remove_dir_all(&self.base).is_err() && self.base.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_root() -> bool {
    wiring::uid() == 0
}

fn give_all(path: &Path) -> std::io::Result<()> {
    chown(path, Some(NOBODY), Some(NOBODY))?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            give_all(&entry?.path())?;
        }
    }
    Ok(())
}
