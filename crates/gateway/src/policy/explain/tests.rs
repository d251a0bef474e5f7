//! Which rule an explanation names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::policy::allowlist::Allowlist;
use crate::policy::effective::SandboxMode;
use crate::policy::places::{Directories, OpenDirectory, OpenFailure};
use crate::policy::plan::PlannedAct;
use crate::policy::standing::tests::{World, policy};
use crate::policy::whitelist::{RuleText, Source, WhitelistRule};

/// A machine without some directories.
pub(in crate::policy) struct Without(pub(in crate::policy) &'static str);

impl Directories for Without {
    fn open(&self, path: &Path) -> Result<OpenDirectory, OpenFailure> {
        match path == Path::new(self.0) {
            true => Err(OpenFailure::Missing),
            false => World.open(path),
        }
    }

    fn links(&self, path: &Path) -> (Vec<PathBuf>, PathBuf) {
        (Vec::new(), path.to_owned())
    }

    fn git_directory(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn names(&self, places: &Arc<[PathBuf]>) -> std::io::Result<Arc<[PathBuf]>> {
        Ok(places.clone())
    }
}

pub(in crate::policy) fn explained(
    policy: &EffectivePolicy,
    directories: &dyn Directories,
    arguments: Value,
) -> Explained {
    let environment = BTreeMap::new();
    let around = Surroundings {
        programs: &World,
        directories,
        environment: &environment,
    };
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object")
    };
    let call = Supposed {
        tool: "execute_command".to_owned(),
        arguments,
        role: Role::Agent,
        run: None,
    };
    explain(policy, &call, &around)
}

#[test]
fn a_call_that_names_no_directory_writes_only_in_a_root() {
    let mut policy = policy();
    policy.places.workspace_root = None;
    policy.places.start = PathBuf::from("/srv");
    let sandbox = |policy: &EffectivePolicy, missing: &'static str, arguments: Value| {
        let explained = explained(policy, &Without(missing), arguments);
        explained.plan.expect("it runs").sandbox
    };
    let unnamed = || json!({"command": "rm a"});
    assert_eq!(sandbox(&policy, "", unnamed()), SandboxMode::WorkspaceWrite);
    for (roots, expected) in [
        (vec!["/"], SandboxMode::WorkspaceWrite),
        (vec!["/work", "/srv"], SandboxMode::WorkspaceWrite),
        (vec!["."], SandboxMode::WorkspaceWrite),
        (vec!["/work", "/srv/a"], SandboxMode::ReadOnly),
        (vec!["/gone"], SandboxMode::ReadOnly),
        (vec![], SandboxMode::ReadOnly),
    ] {
        policy.places.cwd_roots = Some(roots.iter().map(PathBuf::from).collect());
        assert_eq!(sandbox(&policy, "/gone", unnamed()), expected, "{roots:?}");
    }
    policy.places.cwd_roots = Some(vec![PathBuf::from("/work")]);
    let asked = json!({"command": "rm a", "sandbox": "workspace-write"});
    assert_eq!(sandbox(&policy, "", asked), SandboxMode::ReadOnly);
    let named = json!({"command": "rm a", "cwd": "/work/a"});
    assert_eq!(sandbox(&policy, "", named), SandboxMode::WorkspaceWrite);
    // Where there is a workspace, both must hold.
    policy.places.workspace_root = Some(PathBuf::from("/else"));
    assert_eq!(sandbox(&policy, "", unnamed()), SandboxMode::ReadOnly);
    policy.places.workspace_root = Some(PathBuf::from("/work/a"));
    assert_eq!(sandbox(&policy, "", unnamed()), SandboxMode::WorkspaceWrite);
}

#[test]
fn whoever_refuses_a_place_a_time_or_a_variable_is_named() {
    let mut policy = policy();
    policy.places.hidden = Arc::new([PathBuf::from("/work/.ssh")]);
    policy.places.cwd_roots = Some(vec![PathBuf::from("/work"), PathBuf::from("/gone")]);
    policy.rule_sources.workspace = "who set the workspace".to_owned();
    policy.rule_sources.cwd_roots = "who set the roots".to_owned();
    policy.rule_sources.timeout = "who set the timeout".to_owned();
    let check = |missing: &'static str, arguments: Value, expected: (&str, &str)| {
        let explained = explained(&policy, &Without(missing), arguments);
        let rule = &explained.rule;
        assert_eq!((rule.name.as_str(), rule.source.as_str()), expected, "{rule:?}");
        let last = explained.took_part.last().expect("the rule took part");
        assert_eq!((last.rule.as_str(), last.effect.as_str()), (expected.0, "deny"));
    };
    check(
        "",
        json!({"command": "ls", "cwd": "/else"}),
        ("allowed working directories", "who set the roots"),
    );
    check(
        "/gone",
        json!({"command": "ls", "cwd": "a"}),
        ("allowed working directories", "who set the roots"),
    );
    check(
        "",
        json!({"command": "ls", "cwd": "/gone"}),
        ("workspace", "who set the workspace"),
    );
    check(
        "/work",
        json!({"command": "ls"}),
        ("workspace", "who set the workspace"),
    );
    check(
        "/work/a",
        json!({"command": "ls", "cwd": "a"}),
        ("workspace", "who set the workspace"),
    );
    check(
        "",
        json!({"command": "ls", "cwd": ".ssh"}),
        ("hidden places", "built-in"),
    );
    check(
        "",
        json!({"command": "ls", "timeout_ms": 11_000}),
        ("timeout_seconds_max", "who set the timeout"),
    );
    check(
        "",
        json!({"command": "ls", "env": {"PATH": "."}}),
        ("guarded variables", "built-in"),
    );
}

#[test]
fn a_rule_that_was_turned_off_is_told_where_it_takes_something_away() {
    let mut policy = policy();
    let off = WhitelistRule::new(&RuleText {
        pattern: "^ls",
        reason: "",
        enabled: false,
        source: Source::Project,
        matches: &[],
        not_matches: &[],
    });
    policy
        .approval
        .whitelist
        .push(off.expect("a rule").written_in("project file p"));
    let parts = |line: &str| -> Vec<_> {
        let explained = explained(&policy, &World, json!({"command": line}));
        let parts = explained.took_part.into_iter();
        parts.map(|part| (part.rule, part.source, part.effect)).collect()
    };
    let told = (
        "whitelist `^ls`, turned off,".to_owned(),
        "project file p".to_owned(),
        "ask".to_owned(),
    );
    assert!(parts("cat x | ls -l").contains(&told));
    assert!(!parts("cat x").contains(&told));
}

#[test]
fn a_discussion_is_explained_by_what_refuses_it() {
    let run = RunContext {
        labels: BTreeSet::from(["mode:discussion".to_owned()]),
        ..RunContext::default()
    };
    let policy = policy();
    let environment = BTreeMap::new();
    let around = Surroundings {
        programs: &World,
        directories: &World,
        environment: &environment,
    };
    let mut call = Supposed {
        tool: "execute_command".to_owned(),
        arguments: Map::from_iter([("command".to_owned(), json!("git push"))]),
        role: Role::Agent,
        run: Some(run),
    };
    let refused = explain(&policy, &call, &around);
    let last = refused.took_part.last().expect("the rule took part");
    assert_eq!((&last.rule, last.effect.as_str()), (&refused.rule.name, "deny"));
    call.arguments.insert("command".to_owned(), json!("make x"));
    let asked = explain(&policy, &call, &around);
    assert_eq!(
        (asked.verdict, asked.took_part.last().map(|part| part.effect.as_str())),
        ("ask", Some("ask"))
    );
}

#[test]
fn where_any_program_may_run_what_is_too_much_to_read_is_left_to_bash() {
    let mut policy = policy();
    let deep = format!("{}ls{}", "(".repeat(30), ")".repeat(30));
    let long = "ls;".repeat(2_000);
    for line in [deep, long] {
        let explained = explained(&policy, &World, json!({"command": line}));
        let act = explained.plan.map(|plan| plan.act);
        assert_eq!(explained.verdict, "ask");
        assert!(matches!(act, Some(PlannedAct::Shell { .. })), "{act:?}");
    }
    policy.command.allowlist = Allowlist::from_entries(&["ls"]).expect("a list");
    for line in ["((((((ls; ))))))", "ls ("] {
        let explained = explained(&policy, &World, json!({"command": line}));
        assert_eq!((explained.verdict, explained.rule.name.as_str()), ("deny", "allowlist"));
    }
}
