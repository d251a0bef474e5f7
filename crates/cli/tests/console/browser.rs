//! A server with people and an agent, and the browser that goes there.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::bench::Bench;
use crate::foreign;
use crate::server::Listening;
use crate::shared::installed;

/// How long one case may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Everybody who has a token.
const PEOPLE: [(&str, &str); 4] = [
    ("ana", "operator"),
    ("ben", "approver"),
    ("vic", "viewer"),
    ("agent", "agent"),
];

pub(crate) struct Site {
    bench: Bench,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::configured("")
    }

    /// One whose operator says more.
    pub(crate) fn configured(yaml: &str) -> Self {
        let config = format!("workspace_root: .\n{yaml}");
        Self {
            bench: Bench::new().config(&config),
        }
    }

    /// One with an agent that can be given work.
    pub(crate) fn with_agent() -> Self {
        let bench = Bench::new();
        let script = std::fs::read(installed::root().join("tests/console/agent.mjs")).unwrap();
        let agent = bench.program("agent.mjs", script);
        let config = format!(
            "workspace_root: .\nagents:\n  - {{name: painter, driver: acp, command: [node, '{}']}}\n",
            agent.display()
        );
        Self {
            bench: bench.config(&config),
        }
    }

    /// Runs a case in a browser, if there is one.
    pub(crate) fn case(self, name: &str) {
        let Some(home) = home() else {
            return;
        };
        let tokens: Map<String, Value> = PEOPLE
            .iter()
            .map(|(name, role)| ((*name).to_owned(), self.token(name, role).into()))
            .collect();
        let server = Listening::start(&self.bench, &[]);
        let site = json!({
            "url": server.url(""),
            "tokens": tokens,
            "work": self.bench.work(),
            "code": self.code(),
            "config": self.bench.path("config/countersign/config.yaml"),
        });
        let script = installed::root().join("tests/console/run.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(name).arg(site.to_string()).current_dir(home);
        command.env_clear().env("HOME", self.bench.path("home"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let said = foreign::run(&mut command, PATIENCE);
        print!("{}", said.stdout);
        said.ok();
        server.stop();
    }

    /// A code that lets a browser in once, as whoever runs the server.
    fn code(&self) -> String {
        let mut command = self.bench.command();
        let output = command.args(["tokens", "login", "--json"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        made["token"].as_str().unwrap().to_owned()
    }

    fn token(&self, name: &str, role: &str) -> String {
        let mut command = self.bench.command();
        command.args(["tokens", "create", "--json", "--role", role, "--name", name]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        made["token"].as_str().unwrap().to_owned()
    }
}

/// Where the browser and its driver are. A machine without them says so and passes; in continuous
/// integration, and with COUNTERSIGN_REQUIRE_CONSOLE=1, it fails.
fn home() -> Option<PathBuf> {
    let home = match std::env::var_os("COUNTERSIGN_CONSOLE") {
        Some(home) => home.into(),
        None => installed::root().join(".cache/console"),
    };
    if home.join("stamp").exists() {
        return Some(home);
    }
    let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|found| found == value);
    let is_required = is("CI", "true") || is("COUNTERSIGN_REQUIRE_CONSOLE", "1");
    let missing = format!("{} is not there; run tests/console/setup", home.display());
    assert!(!is_required, "{missing}");
    eprintln!("skipped: {missing}");
    None
}
