//! The real Claude Code, outside of jobs: its own tools governed by its hook, and by its permission prompt.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::agents::fakes::{self, messages};
use crate::agents::installed::{self, have};
use crate::bench::Bench;
use crate::client::PATIENCE;

struct Session {
    bench: Bench,
    model: fakes::Server,
    home: PathBuf,
}

impl Session {
    fn set() -> Option<Session> {
        have("claude").then(|| {
            let bench = Bench::new();
            let home = bench.path("claude-home");
            fs::create_dir(&home).unwrap();
            Session {
                bench,
                model: messages::start(),
                home,
            }
        })
    }

    /// `connect claude-code`, as a person types it.
    fn connect(&self, more: &[&str]) {
        let connected = self
            .bench
            .command()
            .env("CLAUDE_CONFIG_DIR", &self.home)
            .args(["connect", "claude-code", "--write"])
            .args(more)
            .output()
            .unwrap();
        assert!(connected.status.success(), "{connected:?}");
    }

    /// A turn without a terminal.
    fn ask(&self, prompt: &str, more: &[&str]) -> Child {
        let mut claude = Command::new(installed::program("claude"));
        claude
            .env_clear()
            .current_dir(self.bench.work())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("TMPDIR", self.bench.path("tmp"))
            .env("XDG_CONFIG_HOME", self.bench.path("config"))
            .env("COUNTERSIGN_STATE_DIR", self.bench.state())
            .envs(installed::claude_environment(&self.model, &self.home))
            .args(["-p", "--output-format", "json"])
            .args(more)
            .arg(prompt)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        claude.spawn().unwrap()
    }
}

#[track_caller]
fn ended(child: Child) -> Value {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(PATIENCE).expect("it ends in time").unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Whether the answer was heard by the model.
fn is_told(session: &Session, words: &str) -> bool {
    let seen = session.model.seen.lock().unwrap();
    seen.iter().any(|request| request.body.to_string().contains(words))
}

#[test]
fn its_shell_and_its_edits_are_governed_by_the_hook_that_connect_writes() {
    for (answer, prompt) in [
        ("approve", "[[shell touch made]]"),
        ("deny", "[[shell touch made]]"),
        ("approve", "[[write MADE some words]]"),
    ] {
        let Some(session) = Session::set() else { return };
        session.connect(&["--governed"]);
        let made = session.bench.work().join("made");
        let prompt = prompt.replace("MADE", made.to_str().unwrap());
        // A write is not allowed by Claude's own rules; our yes lets it through.
        let child = session.ask(&prompt, &[]);
        let (question, _) = session.bench.question();
        assert!(!made.exists());
        super::decide(&session.bench, answer, &question);
        let result = ended(child);
        assert_eq!(made.exists(), answer == "approve", "{prompt}: {result}");
        assert!(answer == "approve" || is_told(&session, "because"), "{result}");
        session.bench.prove();
    }
}

#[test]
fn its_shell_is_governed_by_the_permission_prompt() {
    for answer in ["approve", "deny"] {
        let Some(session) = Session::set() else { return };
        session.connect(&[]);
        let tool = ["--permission-prompt-tool", "mcp__countersign__approval_prompt"];
        let child = session.ask("[[shell touch made]]", &tool);
        let (question, details) = session.bench.question();
        assert_eq!(details["command"], "touch made", "{details}");
        super::decide(&session.bench, answer, &question);
        let result = ended(child);
        let made = session.bench.work().join("made");
        assert_eq!(made.exists(), answer == "approve", "{result}");
        assert!(answer == "approve" || is_told(&session, "because"), "{result}");
    }
}

#[test]
fn a_broken_hook_uses_no_tool() {
    let Some(session) = Session::set() else { return };
    session.connect(&["--governed"]);
    let session = Session {
        bench: session.bench.config("approval_policy: {mode: sometimes}\n"),
        ..session
    };
    let result = ended(session.ask("[[shell touch made]]", &["--allowedTools=Bash"]));
    assert!(!session.bench.work().join("made").exists(), "{result}");
    assert!(is_told(&session, "the tool is not used"), "{result}");
}
