//! The SDKs that most clients are made of, the generation with sessions and the one of both eras.

use std::time::Duration;

use serde_json::Value;

use crate::bench::Bench;
use crate::foreign::{self, Node};
use crate::server::{Listening, bench, on_stdio};

const PATIENCE: Duration = Duration::from_secs(60);
const SESSIONS: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// An SDK, as the script that uses it.
#[derive(Clone, Copy)]
enum Sdk {
    Python {
        environment: &'static str,
        script: &'static str,
    },
    TypeScript {
        script: &'static str,
    },
}

const PYTHON_OLD: Sdk = Sdk::Python {
    environment: "python-old",
    script: "old.py",
};
const PYTHON_NEW: Sdk = Sdk::Python {
    environment: "python-new",
    script: "new.py",
};
const TYPESCRIPT_OLD: Sdk = Sdk::TypeScript { script: "old.mjs" };
const TYPESCRIPT_NEW: Sdk = Sdk::TypeScript { script: "new.mjs" };

impl Sdk {
    /// What a client made of it saw of a target; nothing if the SDK is not installed.
    fn look(self, bench: &Bench, target: &Value) -> Option<Value> {
        let home = bench.path("home");
        let mut command = match self {
            Self::Python { environment, script } => {
                let mut command = foreign::python(environment, "python", &home)?;
                command.arg(foreign::client(script));
                command
            }
            Self::TypeScript { script } => Node::of_client(script)?.command(&home),
        };
        let said = foreign::run(command.arg(target.to_string()), PATIENCE).ok();
        let line = said.stdout.lines().last().unwrap_or_default();
        let seen = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {said}"));
        Some(seen)
    }

    fn on_stdio(self, era: &str, revision: &str) {
        let bench = bench();
        if let Some(seen) = self.look(&bench, &on_stdio(&bench, era)) {
            is_as_promised(&seen, revision);
        }
    }

    fn over(self, transport: &str, era: &str, revision: &str) {
        let bench = bench();
        let server = Listening::start(&bench, &[]);
        if let Some(seen) = self.look(&bench, &server.target(transport, era)) {
            is_as_promised(&seen, revision);
        }
        server.stop();
    }
}

/// What every client must have seen, whatever it is made of.
#[track_caller]
fn is_as_promised(seen: &Value, revision: &str) {
    assert_eq!(seen["protocol"], revision, "{seen}");
    let has = |list: &str, name: &str| seen[list].as_array().unwrap().iter().any(|entry| entry == name);
    for tool in [
        "execute_command",
        "execute_process",
        "run_command",
        "command_status",
        "command_cancel",
    ] {
        assert!(has("tools", tool), "`{tool}` is not listed: {seen}");
    }
    for code in ["COMMAND_NOT_ALLOWED", "CANCELLED", "UNKNOWN_TOOL"] {
        assert!(has("errors", code), "`{code}` is not in the table: {seen}");
    }

    let echo = &seen["echo"];
    assert_eq!(echo["isError"], false, "{echo}");
    assert_eq!(echo["structured"]["status"], "ok", "{echo}");
    assert_eq!(echo["structured"]["exit_code"], 0, "{echo}");
    assert_eq!(echo["structured"]["stdout"], "hi\n", "{echo}");
    says_the_same(echo);

    let refused = &seen["refused"];
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(refused["structured"]["status"], "rejected", "{refused}");
    assert_eq!(refused["structured"]["error_code"], "COMMAND_NOT_ALLOWED", "{refused}");
    says_the_same(refused);

    assert_eq!(seen["slow"]["structured"]["stdout"], "one\ntwo\n", "{seen}");
    let progress = seen["progress"].as_array().unwrap();
    let steps: Vec<f64> = progress.iter().filter_map(|step| step["progress"].as_f64()).collect();
    assert!(!steps.is_empty() && steps.is_sorted_by(|a, b| a < b), "{progress:?}");
    assert_eq!(progress[0]["message"], "one\n", "{progress:?}");

    let cancelled = &seen["cancelled"]["structured"];
    assert_eq!(cancelled["status"], "failed", "{cancelled}");
    assert_eq!(cancelled["error_code"], "CANCELLED", "{cancelled}");
    assert_eq!(cancelled["stdout"], "begun\n", "{cancelled}");
}

/// Some hosts show only the text, others only the structure.
#[track_caller]
fn says_the_same(result: &Value) {
    let text: Value = serde_saphyr::from_str(result["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structured"]);
}

#[test]
fn the_old_python_sdk_works_on_stdio() {
    PYTHON_OLD.on_stdio("legacy", SESSIONS);
}

#[test]
fn the_old_python_sdk_works_over_streamable_http() {
    PYTHON_OLD.over("http", "legacy", SESSIONS);
}

#[test]
fn the_old_python_sdk_works_over_sse() {
    PYTHON_OLD.over("sse", "legacy", SESSIONS);
}

#[test]
fn the_new_python_sdk_works_on_stdio() {
    PYTHON_NEW.on_stdio("legacy", SESSIONS);
    PYTHON_NEW.on_stdio("auto", MODERN);
}

#[test]
fn the_new_python_sdk_works_over_streamable_http() {
    PYTHON_NEW.over("http", "legacy", SESSIONS);
    PYTHON_NEW.over("http", "auto", MODERN);
    PYTHON_NEW.over("http", MODERN, MODERN);
}

#[test]
fn the_new_python_sdk_works_over_sse() {
    PYTHON_NEW.over("sse", "legacy", SESSIONS);
}

#[test]
fn the_old_typescript_sdk_works_on_stdio() {
    TYPESCRIPT_OLD.on_stdio("legacy", SESSIONS);
}

#[test]
fn the_old_typescript_sdk_works_over_streamable_http() {
    TYPESCRIPT_OLD.over("http", "legacy", SESSIONS);
}

#[test]
fn the_old_typescript_sdk_works_over_sse() {
    TYPESCRIPT_OLD.over("sse", "legacy", SESSIONS);
}

#[test]
fn the_new_typescript_sdk_works_on_stdio() {
    TYPESCRIPT_NEW.on_stdio("legacy", SESSIONS);
    TYPESCRIPT_NEW.on_stdio("auto", MODERN);
    TYPESCRIPT_NEW.on_stdio("modern", MODERN);
}

#[test]
fn the_new_typescript_sdk_works_over_streamable_http() {
    TYPESCRIPT_NEW.over("http", "legacy", SESSIONS);
    TYPESCRIPT_NEW.over("http", "auto", MODERN);
    TYPESCRIPT_NEW.over("http", "modern", MODERN);
}

#[test]
fn the_new_typescript_sdk_works_over_sse() {
    TYPESCRIPT_NEW.over("sse", "legacy", SESSIONS);
}

/// SDKs whose user approves what they are asked.
const PYTHON_OLD_APPROVES: Sdk = Sdk::Python {
    environment: "python-old",
    script: "approve_old.py",
};
const PYTHON_NEW_APPROVES: Sdk = Sdk::Python {
    environment: "python-new",
    script: "approve_new.py",
};
const TYPESCRIPT_OLD_APPROVES: Sdk = Sdk::TypeScript {
    script: "approve_old.mjs",
};
const TYPESCRIPT_NEW_APPROVES: Sdk = Sdk::TypeScript {
    script: "approve_new.mjs",
};

impl Sdk {
    /// The user is shown one form, and by their yes the act runs.
    #[track_caller]
    fn approves(self, transport: &str, era: &str) {
        let bench = Bench::new().config("approvers: [{name: desk, type: client}]\n");
        let server = (transport != "stdio").then(|| Listening::start(&bench, &[]));
        let target = match &server {
            Some(server) => server.target(transport, era),
            None => on_stdio(&bench, era),
        };
        let Some(seen) = self.look(&bench, &target) else {
            return;
        };
        assert_eq!(seen["forms"].as_array().map(Vec::len), Some(1), "{seen}");
        let form = seen["forms"][0].as_str().unwrap();
        assert!(form.contains("runs: touch made"), "{form}");
        assert_eq!(seen["structured"]["status"], "ok", "{seen}");
        assert!(bench.work().join("made").exists());
        if let Some(server) = server {
            server.stop();
        }
    }
}

#[test]
fn the_user_of_the_old_python_sdk_approves() {
    PYTHON_OLD_APPROVES.approves("stdio", "legacy");
    PYTHON_OLD_APPROVES.approves("http", "legacy");
}

#[test]
fn the_user_of_the_new_python_sdk_approves_in_both_eras() {
    PYTHON_NEW_APPROVES.approves("stdio", "legacy");
    PYTHON_NEW_APPROVES.approves("http", "legacy");
    PYTHON_NEW_APPROVES.approves("stdio", "auto");
    PYTHON_NEW_APPROVES.approves("http", "auto");
}

#[test]
fn the_user_of_the_old_typescript_sdk_approves() {
    TYPESCRIPT_OLD_APPROVES.approves("stdio", "legacy");
    TYPESCRIPT_OLD_APPROVES.approves("http", "legacy");
}

#[test]
fn the_user_of_the_new_typescript_sdk_approves_in_both_eras() {
    TYPESCRIPT_NEW_APPROVES.approves("stdio", "legacy");
    TYPESCRIPT_NEW_APPROVES.approves("http", "legacy");
    TYPESCRIPT_NEW_APPROVES.approves("stdio", "modern");
    TYPESCRIPT_NEW_APPROVES.approves("http", "modern");
}
