//! Runs a program that is not ours, within a time, and keeps what it said.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::shared::installed;

/// A Node that runs what was installed from npm, with what it is to run.
pub(crate) struct Node {
    node: PathBuf,
    script: PathBuf,
}

impl Node {
    /// A package's program, if it is installed.
    pub(crate) fn of_package(script: &str) -> Option<Self> {
        let script = installed::find(&format!("node_modules/{script}"))?;
        let node = installed::find("bin/node")?;
        Some(Self { node, script })
    }

    /// A client of ours, which imports what is installed.
    pub(crate) fn of_client(script: &str) -> Option<Self> {
        let script = client(script);
        let node = installed::find("bin/node")?;
        Some(Self { node, script })
    }

    /// The command; arguments are still to come.
    pub(crate) fn command(&self, home: &Path) -> Command {
        let mut command = Command::new(&self.node);
        let folder = self.node.parent().unwrap();
        let mut path = folder.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        // Packages are found from the folder they are installed in.
        command.arg(&self.script).current_dir(folder.parent().unwrap());
        command.env_clear().env("PATH", path).env("HOME", home);
        command
    }
}

/// A program of a virtual environment, if it is installed; arguments are still to come.
pub(crate) fn python(environment: &str, program: &str, home: &Path) -> Option<Command> {
    let mut command = Command::new(installed::find(&format!("{environment}/bin/{program}"))?);
    command.env_clear().current_dir(home).env("HOME", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // Clients are imported from the repository, which stays as it is.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}

/// One of our scripts.
pub(crate) fn client(script: &str) -> PathBuf {
    installed::root().join("tests/interop/clients").join(script)
}

/// What a program said.
pub(crate) struct Said {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    status: ExitStatus,
    command: String,
}

/// Runs a command to its end, which must come in time.
pub(crate) fn run(command: &mut Command, patience: Duration) -> Said {
    let said = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{said}: {error}"));
    let pid = child.id();
    let (sender, ended) = std::sync::mpsc::channel();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(patience).is_err() {
            // Only ever this child: it is reaped below, after this thread has been told.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            return true;
        }
        false
    });
    let stderr = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    let stdout = std::io::read_to_string(child.stdout.take().unwrap()).unwrap_or_default();
    let stderr = errors.join().unwrap();
    let _ = sender.send(());
    let late = watch.join().unwrap();
    let status = child.wait().unwrap();
    let said = Said {
        stdout,
        stderr,
        status,
        command: said,
    };
    assert!(!late, "not done within {patience:?}: {said}");
    said
}

impl Said {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = |text: &str| -> String {
            let skipped = text.chars().count().saturating_sub(20_000);
            text.chars().skip(skipped).collect()
        };
        writeln!(f, "{} ended with {}", self.command, self.status)?;
        writeln!(
            f,
            "--- stdout\n{}\n--- stderr\n{}",
            end(&self.stdout),
            end(&self.stderr)
        )
    }
}
