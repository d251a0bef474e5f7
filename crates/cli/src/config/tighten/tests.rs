//! Every rule in both directions, by the keys that use it.

use super::*;
use crate::config::keys;

/// `refused` counts what was refused; the value is what is in force afterwards.
fn check(key: &str, held: Json, wanted: Json, expected: Json, refused: usize) {
    let rule = keys::find(key).expect(key).rule;
    let narrowed = narrow(rule, &held, &Node::from_json(&wanted));
    assert_eq!(
        narrowed.refused.len(),
        refused,
        "{key} {held} <- {wanted}: {:?}",
        narrowed.refused
    );
    assert_eq!(
        narrowed.value.unwrap_or(held.clone()),
        expected,
        "{key} {held} <- {wanted}"
    );
}

#[test]
fn single_values_move_one_way_only() {
    for (key, wide, narrow) in [
        ("command_policy.timeout_seconds", json!(30), json!(5)),
        ("command_policy.timeout_seconds_max", json!(600), json!(5)),
        ("command_policy.cpu_limit", json!("1"), json!("999m")),
        ("command_policy.memory_limit", json!("1Gi"), json!("1G")),
        ("command_policy.pids_limit", json!(256), json!(8)),
        ("command_policy.run_as_non_root", json!(false), json!(true)),
        ("command_policy.audit_retention_days", json!(90), json!(365)),
        (
            "command_policy.sandbox",
            json!("danger-full-access"),
            json!("workspace-write"),
        ),
        ("command_policy.sandbox", json!("workspace-write"), json!("read-only")),
        ("command_policy.network", json!("allow"), json!("deny")),
        ("approval_policy.timeout_ms", json!(null), json!(1000)),
        ("approval_policy.timeout_ms", json!(1000), json!(10)),
        ("approvals.self", json!("allow"), json!("deny")),
        ("quorum", json!(1), json!(2)),
        ("answer_within_ms", json!(45000), json!(1000)),
        ("output_limit_bytes", json!(1048576), json!(10)),
        ("shutdown_grace_ms", json!(10000), json!(10)),
        ("sessions.ttl_seconds", json!(86400), json!(60)),
        ("limits.body_bytes", json!(4194304), json!(100)),
        ("limits.line_bytes", json!(16777216), json!(100)),
        ("limits.depth", json!(128), json!(4)),
        ("limits.requests_per_second", json!(null), json!(5)),
        ("limits.burst", json!(10), json!(5)),
        ("limits.sessions_max", json!(100), json!(5)),
        ("jobs.maxProcesses", json!(null), json!(1)),
        ("auth.anonymous_agents", json!(true), json!(false)),
        ("audit.durability", json!("process"), json!("power")),
        ("listen", json!("0.0.0.0:7420"), json!("127.0.0.1:7420")),
    ] {
        check(key, wide.clone(), narrow.clone(), narrow.clone(), 0);
        check(key, narrow.clone(), wide, narrow, 1);
    }
}

#[test]
fn lists_are_met_item_by_item() {
    let programs = "command_policy.allowlist";
    check(programs, json!(["*"]), json!(["git"]), json!(["git"]), 0);
    check(programs, json!(["git", "ls"]), json!(["git", "rm"]), json!(["git"]), 1);
    check(programs, json!(["git"]), json!(["*"]), json!(["git"]), 1);
    check(programs, json!(["git"]), json!(["rm"]), json!([]), 1);
    check(
        "command_policy.env_allow",
        json!(["LANG", "TERM"]),
        json!(["TERM", "AWS_KEY"]),
        json!(["TERM"]),
        1,
    );
    check(
        "command_policy.require",
        json!(["landlock"]),
        json!(["landlock", "netns"]),
        json!(["landlock", "netns"]),
        0,
    );
    check(
        "command_policy.require",
        json!(["landlock"]),
        json!(["netns"]),
        json!(["landlock", "netns"]),
        1,
    );
    check(
        "audit.redact_patterns",
        json!(["a"]),
        json!(["a", ".*"]),
        json!(["a"]),
        1,
    );
    check(
        "command_policy.helpers",
        json!({"cargo": ["rustc", "cc"]}),
        json!({"cargo": ["rustc"]}),
        json!({"cargo": ["rustc"]}),
        0,
    );
    check(
        "command_policy.helpers",
        json!({"cargo": ["cc"]}),
        json!({"cargo": ["sh"], "git": ["sh"]}),
        json!({"cargo": []}),
        2,
    );
}

#[test]
fn never_and_untrusted_do_not_replace_each_other() {
    for (held, wanted, taken) in [
        ("on-failure", "on-request", true),
        ("on-failure", "untrusted", true),
        ("on-failure", "never", true),
        ("on-request", "untrusted", true),
        ("on-request", "never", true),
        ("on-request", "on-failure", false),
        ("untrusted", "never", false),
        ("untrusted", "on-request", false),
        ("never", "untrusted", false),
        ("never", "on-request", false),
        ("never", "never", true),
    ] {
        let expected = if taken { wanted } else { held };
        check(
            "approval_policy.mode",
            json!(held),
            json!(wanted),
            json!(expected),
            usize::from(!taken),
        );
    }
}

#[test]
fn whitelist_rules_are_only_switched_off() {
    let off = json!({"pattern": "^git log", "enabled": false});
    check(
        "approval_policy.whitelist",
        json!([]),
        json!([off, {"pattern": "^rm"}]),
        json!([off]),
        1,
    );
    check(
        "approval_policy.whitelist",
        json!([]),
        json!([{"pattern": "^rm", "enabled": true}]),
        json!([]),
        1,
    );
}

#[test]
fn a_stricter_tool_entry_stays_and_the_milder_one_is_named() {
    let held = json!([{"pattern": "x", "approval": "deny", "enabled": false}]);
    let narrowed = narrow(
        Rule::Tools,
        &held,
        &Node::from_json(&json!({"x": {"approval": "none", "enabled": true}})),
    );
    assert_eq!(narrowed.refused.len(), 2);
}

#[test]
fn what_is_the_operators_stays_the_operators() {
    for key in [
        "approvers",
        "agents",
        "tool_files",
        "command_policy.path",
        "command_policy.run_as",
        "audit.witness",
        "github.token",
    ] {
        check(key, json!(null), json!("x"), json!(null), 1);
    }
    check("callbacks.token", json!(null), json!("x"), json!("x"), 0);
    check("callbacks.token", json!("y"), json!("x"), json!("y"), 1);
}

#[test]
fn paths_are_compared_where_they_really_lead() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let path = |name: &str| json!(root.join(name).to_str().unwrap());
    std::fs::create_dir_all(root.join("work/inner")).unwrap();
    std::fs::create_dir_all(root.join("workshop")).unwrap();
    std::os::unix::fs::symlink(root.join("workshop"), root.join("work/link")).unwrap();
    check(
        "workspace_root",
        path("work"),
        path("work/inner"),
        path("work/inner"),
        0,
    );
    for outside in ["workshop", "work/link", "work/../workshop", "work/missing", ""] {
        check("workspace_root", path("work"), path(outside), path("work"), 1);
        check(
            "command_policy.read_paths",
            json!([path("work")]),
            json!([path(outside)]),
            json!([]),
            1,
        );
    }
    check("workspace_root", json!(null), path("work"), path("work"), 0);
    check(
        "command_policy.read_paths",
        json!([path("work")]),
        json!([path("work/inner")]),
        json!([path("work/inner")]),
        0,
    );
}
