//! The official conformance suite, with the requirements of both eras and nothing that is expected to
//! fail. It talks to the fixtures it asks for, which only a hidden flag turns on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::foreign::{self, Node};
use crate::server::{Listening, bench};

const PATIENCE: Duration = Duration::from_secs(240);

/// Fewer scenarios or checks than these mean that the suite did not look.
struct Least {
    scenarios: usize,
    passed: usize,
}

#[test]
fn the_suite_passes_in_the_era_of_sessions() {
    let least = Least {
        scenarios: 33,
        passed: 75,
    };
    conforms("2025-11-25", &least);
}

#[test]
fn the_suite_passes_in_the_modern_era() {
    let least = Least {
        scenarios: 50,
        passed: 170,
    };
    conforms("2026-07-28", &least);
}

fn conforms(revision: &str, least: &Least) {
    let Some(suite) = Node::of_package("@modelcontextprotocol/conformance/dist/index.js") else {
        return;
    };
    let bench = bench();
    let server = Listening::start(&bench, &["--conformance-fixtures"]);
    let found = bench.path("outside");
    let mut command = suite.command(&bench.path("home"));
    command.args(["server", "--url", &server.url("/mcp"), "--requirements", revision, "-o"]);
    let said = foreign::run(command.arg(&found), PATIENCE);
    let checks = Checks::read(&found);
    println!("{checks}");
    assert!(checks.failed.is_empty(), "checks failed:\n{checks}");
    let said = said.ok();
    assert!(
        checks.scenarios >= least.scenarios && checks.passed >= least.passed,
        "the suite looked at too little:\n{checks}\n{said}"
    );
    server.stop();
}

/// What the suite found out, scored or not.
#[derive(Default)]
struct Checks {
    scenarios: usize,
    passed: usize,
    failed: Vec<String>,
    warnings: Vec<String>,
    empty: Vec<String>,
}

impl Checks {
    /// Reads the folder of results: one folder per scenario with its `checks.json`.
    fn read(folder: &Path) -> Self {
        let mut found = Self::default();
        let scenarios: BTreeMap<_, _> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), entry.path().join("checks.json")))
            .collect();
        for (name, path) in scenarios {
            found.scenarios += 1;
            let name = name.to_string_lossy();
            // Folders are named `server-SCENARIO-TIME`.
            let name = name.strip_prefix("server-").unwrap_or(&name);
            let name = name.rsplit_once("-20").map_or(name, |(name, _)| name);
            let checks: Vec<Value> = fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
                .unwrap_or_default();
            if checks.is_empty() {
                found.empty.push(name.to_owned());
                continue;
            }
            for check in checks {
                let sentence = || {
                    let [id, fault] = ["id", "errorMessage"].map(|field| check[field].as_str().unwrap_or_default());
                    format!("{name} {id}: {fault}")
                };
                match check["status"].as_str() {
                    Some("SUCCESS") => found.passed += 1,
                    Some("FAILURE") => found.failed.push(sentence()),
                    Some("WARNING") => found.warnings.push(sentence()),
                    _ => {}
                }
            }
        }
        found
    }
}

impl std::fmt::Display for Checks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} scenarios, {} checks passed", self.scenarios, self.passed)?;
        let lists = [
            ("failed", &self.failed),
            ("warned", &self.warnings),
            ("no checks", &self.empty),
        ];
        for (kind, list) in lists {
            for line in list {
                writeln!(f, "  {kind}: {line}")?;
            }
        }
        Ok(())
    }
}
