//! A place to run the binary in: home, state directory and workspace, all temporary.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Stage {
    dir: TempDir,
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let stage = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        // A root server's commands run as another user, who must get through.
        fs::set_permissions(stage.dir.path(), Permissions::from_mode(0o755)).unwrap();
        for path in [stage.home(), stage.work()] {
            fs::create_dir(&path).unwrap();
        }
        fs::set_permissions(stage.work(), Permissions::from_mode(0o777)).unwrap();
        stage
    }

    /// With a record of two refused commands: five rows, the first of them the policy.
    pub(crate) fn with_record() -> Self {
        let stage = Self::new();
        for word in ["one", "two"] {
            let ran = stage.listing("ls").run(&["exec", "--", "rm", word]);
            assert_eq!(ran.code, 126, "{ran:?}");
        }
        stage
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Writes a file below the workspace.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes the operator's file.
    pub(crate) fn operator(&self, text: &str) -> PathBuf {
        let dir = self.home().join(".config/countersign");
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("config.yaml");
        fs::write(&file, text).unwrap();
        file
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", "/usr/bin:/bin")
            .env("USER", "ada")
            .env("COUNTERSIGN_STATE_DIR", self.state())
            .env("COLUMNS", "100")
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args))
    }

    /// The same place with `ALLOWED_COMMANDS` set.
    pub(crate) fn listing<'a>(&'a self, allowed: &'a str) -> Listing<'a> {
        Listing { stage: self, allowed }
    }

    /// The JSON of a run that must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        self.run(args).json()
    }
}

pub(crate) struct Listing<'a> {
    stage: &'a Stage,
    allowed: &'a str,
}

impl Listing<'_> {
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.stage.command(args);
        command.env("ALLOWED_COMMANDS", self.allowed);
        ran(command)
    }
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Exit code and whole standard error.
    pub(crate) fn failed(&self, code: i32, stderr: &str) {
        assert_eq!((self.code, self.stderr.as_str()), (code, stderr), "{self:?}");
    }
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
