//! A place to work in: workspace, state, home and configuration of one test, and who the server is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Owns the workspace of a root server; its commands then run as this user.
pub(crate) const OWNER: u32 = 1000;
/// Whom an ordinary server runs as.
const ORDINARY: u32 = 1234;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum As {
    /// Whoever runs the tests; root in continuous integration.
    Itself,
    /// A user without rights.
    Ordinary,
}

pub(crate) struct Bench {
    base: TempDir,
    user: As,
    environment: Vec<(String, String)>,
}

impl Bench {
    /// A bench whose server runs as whoever runs the tests.
    pub(crate) fn new() -> Self {
        Self::of(As::Itself)
    }

    /// Does the same for a server of either kind of user.
    pub(crate) fn each(test: impl Fn(Self)) {
        for user in [As::Itself, As::Ordinary] {
            println!("server runs as: {user:?}");
            test(Self::of(user));
        }
    }

    pub(crate) fn of(user: As) -> Self {
        let base = tempfile::Builder::new().prefix("product-").tempdir().unwrap();
        let bench = Self {
            base,
            user,
            environment: Vec::new(),
        };
        bench.open_to_all(bench.base.path());
        for name in ["work", "state", "home", "config", "tmp", "cache", "outside"] {
            fs::create_dir(bench.path(name)).unwrap();
            bench.give(&bench.path(name), if name == "work" { Some(OWNER) } else { None });
        }
        for name in ["state", "home", "config"] {
            fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        bench
    }

    /// A bench with S3's variable set.
    pub(crate) fn allowing(commands: &str) -> Self {
        Self::new().env("ALLOWED_COMMANDS", commands)
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment
            .push((name.to_owned(), value.as_ref().to_str().unwrap().to_owned()));
        self
    }

    /// What its environment says under a name.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Writes the operator's configuration.
    pub(crate) fn config(self, yaml: &str) -> Self {
        let directory = self.path("config/countersign");
        let _ = fs::create_dir(&directory);
        fs::write(directory.join("config.yaml"), yaml).unwrap();
        self.give(&directory, None);
        self.give(&directory.join("config.yaml"), None);
        self
    }

    /// A bench whose operator allows commands without asking, and more settings as YAML.
    pub(crate) fn configured(commands: &str, more: &str) -> Self {
        Self::new().configure(commands, more)
    }

    pub(crate) fn configure(self, commands: &str, more: &str) -> Self {
        let policy = format!("command_policy:\n  allowlist: [{commands}]\n  timeout_seconds: 30\n");
        self.config(&format!(
            "workspace_root: .\napproval_policy: {{mode: never}}\n{policy}{more}"
        ))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A file in the workspace, which its commands may change.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs::write(&path, content).unwrap();
        self.give(&path, Some(OWNER));
        path
    }

    /// A file in the workspace that can be executed.
    pub(crate) fn program(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name, content);
        self.open_to_all(&path);
        path
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.work().join(name);
        fs::create_dir_all(&path).unwrap();
        path.ancestors()
            .take_while(|part| *part != self.work())
            .for_each(|part| self.give(part, Some(OWNER)));
        path
    }

    /// A git repository in the workspace with one commit.
    pub(crate) fn repository(&self) {
        self.file("tracked", "one\n");
        let run = |args: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(self.work()).env("HOME", self.path("home")).args([
                "-c",
                "safe.directory=*",
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@t",
            ]);
            assert!(git.args(args).output().unwrap().status.success(), "git {args:?}");
        };
        run(&["init", "-q"]);
        run(&["add", "tracked"]);
        run(&["commit", "-qm", "first"]);
        self.give_all(&self.work().join(".git"));
    }

    pub(crate) fn give_all(&self, path: &Path) {
        self.give(path, Some(OWNER));
        if path.is_dir() {
            fs::read_dir(path)
                .unwrap()
                .for_each(|entry| self.give_all(&entry.unwrap().path()));
        }
    }

    /// The binary with this bench's environment and nothing else; arguments are still to come.
    pub(crate) fn command(&self) -> Command {
        let binary = env!("CARGO_BIN_EXE_countersign");
        let mut command = if self.user == As::Ordinary && is_root() {
            let id = ORDINARY.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--", binary]);
            command
        } else {
            Command::new(binary)
        };
        command.env_clear().current_dir(self.work());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command
            .env("COUNTERSIGN_STATE_DIR", self.state())
            .env("COUNTERSIGN_CACHE_DIR", self.path("cache"))
            .envs(self.environment.iter().cloned());
        command
    }

    /// Another program in the workspace, as the user that agents of this bench are.
    pub(crate) fn as_agents_do(&self, program: &str) -> Command {
        let mut command = match self.user {
            _ if !is_root() => Command::new(program),
            user => {
                let id = if user == As::Ordinary { ORDINARY } else { OWNER }.to_string();
                let mut command = Command::new("setpriv");
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--", program]);
                command
            }
        };
        command.current_dir(self.work());
        command
    }

    /// Waits until an ended server's temporary directories are gone: its helper tidies up behind it.
    pub(crate) fn until_tidy(&self) {
        let left = || {
            fs::read_dir(self.path("tmp"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !left().is_empty() {
            assert!(Instant::now() < deadline, "temporary directories stayed: {:?}", left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the server of this bench is root.
    pub(crate) fn is_root(&self) -> bool {
        is_root() && self.user == As::Itself
    }

    /// To the user the server is, or for a root server to another.
    fn give(&self, path: &Path, of_root: Option<u32>) {
        let owner = match self.user {
            As::Ordinary => Some(ORDINARY),
            As::Itself => of_root,
        };
        if let Some(owner) = owner.filter(|_| is_root()) {
            std::os::unix::fs::lchown(path, Some(owner), Some(owner)).unwrap();
        }
    }

    fn open_to_all(&self, path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Hands a path to the owner of workspaces.
pub(crate) fn hand_over(path: &Path) {
    if is_root() {
        chown(path, Some(OWNER), Some(OWNER)).unwrap();
    }
}
