//! House rules as tests: crate edges, file headers, where `unsafe` may live, licences, documentation.

mod deployment;
mod documentation;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace")
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Every Rust source file of the workspace that git would take.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root().join("crates")];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn crates_see_only_what_the_architecture_allows() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("countersign-gateway", &[] as &[&str]),
        ("countersign-sandbox", &[]),
        ("countersign-exec", &["countersign-gateway", "countersign-sandbox"]),
        ("countersign-store", &["countersign-gateway"]),
        ("countersign-server", &["countersign-gateway"]),
        ("countersign-agents", &["countersign-gateway", "countersign-sandbox"]),
        ("countersign-integrations", &["countersign-gateway"]),
        // Only tests depend on it.
        ("countersign-doubles", &[]),
        (
            "countersign-cli",
            &[
                "countersign-agents",
                "countersign-exec",
                "countersign-gateway",
                "countersign-integrations",
                "countersign-server",
                "countersign-store",
            ],
        ),
    ]);
    let metadata = metadata();
    let mut seen = BTreeSet::new();
    for package in list(&metadata["packages"])
        .iter()
        .filter(|package| package["source"].is_null())
    {
        let name = text(&package["name"]);
        let edges = allowed
            .get(name)
            .unwrap_or_else(|| panic!("crate `{name}` is not in the architecture"));
        seen.insert(name.to_owned());
        for dependency in list(&package["dependencies"]) {
            let to = text(&dependency["name"]);
            // Tests may look anywhere.
            let shipped = dependency["kind"].is_null();
            assert!(
                !shipped || !to.starts_with("countersign-") || edges.contains(&to),
                "`{name}` must not depend on `{to}`"
            );
        }
    }
    assert_eq!(
        seen.len(),
        allowed.len(),
        "a crate of the architecture is missing: {seen:?}"
    );
}

#[test]
fn heavy_dependencies_stay_out_of_the_gateway() {
    let metadata = metadata();
    let heavy = [
        "axum",
        "hyper",
        "rusqlite",
        "tokio-postgres",
        "clap",
        "landlock",
        "reqwest",
        "libc",
    ];
    for package in list(&metadata["packages"])
        .iter()
        .filter(|package| package["name"] == "countersign-gateway")
    {
        for dependency in list(&package["dependencies"]) {
            assert!(!heavy.contains(&text(&dependency["name"])), "{dependency}");
        }
    }
}

#[test]
fn every_source_file_opens_with_what_it_is_for() {
    for path in sources() {
        let head: String = fs::read_to_string(&path).expect("readable").lines().take(1).collect();
        assert!(
            head.starts_with("//!") || head.starts_with("#!["),
            "{} has no `//!` header",
            path.display()
        );
    }
}

#[test]
fn unsafe_code_lives_in_the_sandbox_only() {
    for name in ["gateway", "exec", "store", "server"] {
        let lib = fs::read_to_string(root().join(format!("crates/{name}/src/lib.rs"))).expect("readable");
        assert!(lib.contains("#![forbid(unsafe_code)]"), "{name}");
    }
    let main = fs::read_to_string(root().join("crates/cli/src/main.rs")).expect("readable");
    assert!(main.contains("#![forbid(unsafe_code)]"));
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ign", "ore"),
    ];
    for path in sources() {
        let source = fs::read_to_string(&path).expect("readable");
        for mark in marks {
            assert!(!source.contains(mark), "{} contains `{mark}`", path.display());
        }
    }
}

#[test]
fn every_dependency_has_a_licence_we_accept() {
    let deny = fs::read_to_string(root().join("deny.toml")).expect("readable");
    let accepted: BTreeSet<&str> = deny
        .lines()
        .map(str::trim)
        .filter_map(|line| line.strip_prefix('"')?.strip_suffix("\","))
        .collect();
    let metadata = metadata();
    for package in list(&metadata["packages"]) {
        let licence = text(&package["license"]).replace('/', " OR ");
        let met = licence.split(" OR ").any(|choice| {
            choice
                .split(" AND ")
                .all(|part| accepted.contains(part.trim().trim_matches(['(', ')'])))
        });
        assert!(met, "{} has licence `{licence}`", text(&package["name"]));
    }
}

#[test]
fn the_changelog_begins_with_what_is_not_released() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("a changelog");
    let first = changelog.lines().find(|line| line.starts_with("## "));
    assert_eq!(first, Some("## Unreleased"));
}
