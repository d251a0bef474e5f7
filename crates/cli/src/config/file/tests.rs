//! Problems, and the normal form of what has none.

use super::*;

fn load(text: &str) -> (Layer, Vec<String>) {
    let bases = Bases {
        file: "/etc/c".into(),
        project: "/srv/p".into(),
        home: Some("/home/u".into()),
    };
    let mut problems = Vec::new();
    let layer = parse(
        text.as_bytes(),
        &Source::Operator("/etc/c/config.yaml".into()),
        &bases,
        &mut problems,
    );
    (layer, problems.iter().map(Problem::to_string).collect())
}

#[test]
fn all_problems_are_reported_at_once_with_file_and_line() {
    let (_, problems) = load(
        "workspace_rot: .\ncommand_policy:\n  allowlist: []\n  timeout_seconds: 0\n  cpu_limit: lots\n  sandbox: read-onyl\n  \
         requires: [x]\n  require: [landlok]\n  env_allow: [A, A, 1B]\napproval_policy: never\ncolour: red\n",
    );
    let file = "/etc/c/config.yaml";
    assert_eq!(
        problems,
        [
            format!("{file}: line 1, column 1: `workspace_rot` is not a known key; did you mean `workspace_root`?"),
            format!("{file}: line 3, column 14: `command_policy.allowlist` must name at least one program"),
            format!(
                "{file}: line 4, column 20: `command_policy.timeout_seconds` must be a whole number of seconds greater than 0, not `0`"
            ),
            format!(
                "{file}: line 5, column 14: `command_policy.cpu_limit` must be cores such as `2`, `0.5` or `500m`, not `lots`"
            ),
            format!(
                "{file}: line 6, column 12: `command_policy.sandbox` must be one of `read-only`, `workspace-write`, `danger-full-access`, not `read-onyl`; did you mean `read-only`?"
            ),
            format!("{file}: line 7, column 3: `command_policy.requires` is not a known key; did you mean `require`?"),
            format!(
                "{file}: line 8, column 13: `command_policy.require` must be one of `session`, `rlimits`, `cgroup`, `uid`, `no-new-privs`, `landlock`, `exec-list`, `seccomp`, `netns`, `mountns`, `protected-paths`, `pidns`, `guardian`, not `landlok`; did you mean `landlock`?"
            ),
            format!("{file}: line 9, column 18: `command_policy.env_allow` lists `A` twice"),
            format!("{file}: line 9, column 21: `command_policy.env_allow` must name environment variables, not `1B`"),
            format!("{file}: line 10, column 18: `approval_policy` must be a map"),
            format!("{file}: line 11, column 1: `colour` is not a known key"),
        ]
    );
}

#[test]
fn a_key_that_is_there_twice_hides_no_other_problem() {
    let (layer, problems) = load(
        "colour: red\nworkspace_root: .\nworkspace_root: /srv\ncommand_policy:\n  timeout_seconds: -1\n  cpu_limit: 2\n  cpu_limit: 3\n",
    );
    let file = "/etc/c/config.yaml";
    assert_eq!(
        problems,
        [
            format!("{file}: line 1, column 1: `colour` is not a known key"),
            format!("{file}: line 3, column 1: `workspace_root` is there twice; keep one"),
            format!(
                "{file}: line 5, column 20: `command_policy.timeout_seconds` must be a whole number of seconds greater than 0, not `-1`"
            ),
            format!("{file}: line 7, column 3: `cpu_limit` is there twice; keep one"),
        ]
    );
    assert!(layer.entries.is_empty(), "nothing of it counts");
}

#[test]
fn each_bad_value_is_one_problem() {
    for text in [
        "[]",
        "just text",
        "a: [",
        "quorum: 0",
        "quorum: 1.5",
        "quorum: -1",
        "listen: 7420",
        "listen: ':1'",
        "listen: 'host:99999'",
        "command_policy: {allowlist: [./ls]}",
        "command_policy: {allowlist: [git, git]}",
        "command_policy: {allowlist: ['']}",
        "command_policy: {allowlist: ['*', ls]}",
        "command_policy: {allowlist: [git status]}",
        "command_policy: {audit_retention_days: 0}",
        "command_policy: {timeout_seconds: 4.5}",
        "command_policy: {timeout_seconds: 3.0}",
        "command_policy: {timeout_seconds_max: 0.5}",
        "command_policy: {timeout_seconds: 99999999999}",
        "command_policy: {memory_limit: 1gb}",
        "command_policy: {path: 'bin:/usr/bin'}",
        "command_policy: {path: ''}",
        "command_policy: {helpers: {./x: [cc]}}",
        "command_policy: {run_as_non_root: yes}",
        "approval_policy: {mode: always}",
        "approval_policy: {timeout_ms: 0}",
        "approval_policy: {whitelist: [{pattern: '('}]}",
        "approval_policy: {whitelist: [{reason: x}]}",
        "approval_policy: {whitelist: [{pattern: x, enabld: true}]}",
        "approval_policy: {whitelist: [{pattern: ^ls, match: [cat]}]}",
        "approval_policy: {whitelist: [{pattern: ^ls, not_match: [ls -l]}]}",
        "tools: {x: {approval: maybe}}",
        "tools: {x: required}",
        "approvers: [{name: a, type: http}]",
        "approvers: [{name: a, type: client}, {name: a, type: client}]",
        "agents: [{name: a}]",
        "agents: [{name: a, command: []}]",
        "policies: {labels: {l: {runtime: half}}}",
        "policies: {agents: {a: {tools: {t: {actions: [fly]}}}}}",
        "policies: {agent: {}}",
        "audit: {durability: sometimes}",
        "audit: {redact_patterns: ['[']}",
        "callbacks: {token: ''}",
        "callbacks: {token: a, token_env: B}",
        "github: {api_url: ftp://x}",
        "limits: {depth: null}",
        "limits: {depth: 0}",
        "limits: {depth: 513}",
        "jobs: {maxProcesses: many}",
        "auth: {anonymous_agents: 1}",
        "tool_files: x",
    ] {
        let (_, problems) = load(text);
        assert_eq!(problems.len(), 1, "{text}: {problems:#?}");
    }
}

#[test]
fn nesting_that_would_overflow_the_stack_cannot_be_configured() {
    let (_, problems) = load("limits: {depth: 512}");
    assert!(problems.is_empty(), "{problems:#?}");
    for depth in ["513", "100000000", "99999999999999999999999", "-1", "1.5"] {
        let (_, problems) = load(&format!("limits: {{depth: {depth}}}"));
        let told = format!("{problems:?}");
        assert!(
            told.contains("`limits.depth` must be a whole number from 1 to 512"),
            "{told}"
        );
    }
}

#[test]
fn values_come_out_in_normal_form() {
    for (text, key, expected) in [
        ("workspace_root: .", "workspace_root", serde_json::json!("/srv/p")),
        ("workspace_root: ~/w", "workspace_root", serde_json::json!("/home/u/w")),
        (
            "command_policy: {read_paths: [tools, /opt/x, '~/.cargo']}",
            "command_policy.read_paths",
            serde_json::json!(["/etc/c/tools", "/opt/x", "/home/u/.cargo"]),
        ),
        (
            "command_policy: {path: '/a:/b'}",
            "command_policy.path",
            serde_json::json!(["/a", "/b"]),
        ),
        (
            "command_policy: {cpu_limit: 2}",
            "command_policy.cpu_limit",
            serde_json::json!("2"),
        ),
        (
            "command_policy: {cpu_limit: 0.5}",
            "command_policy.cpu_limit",
            serde_json::json!("0.5"),
        ),
        (
            "github: {token_env: GH}",
            "github.token",
            serde_json::json!({"env": "GH"}),
        ),
        (
            "github: {token_file: t}",
            "github.token",
            serde_json::json!({"file": "/etc/c/t"}),
        ),
        (
            "callbacks: {token: s3}",
            "callbacks.token",
            serde_json::json!({"value": "s3"}),
        ),
        (
            "approval_policy: {timeout_ms: null}",
            "approval_policy.timeout_ms",
            serde_json::json!(null),
        ),
    ] {
        let (layer, problems) = load(text);
        assert!(problems.is_empty(), "{text}: {problems:?}");
        assert_eq!(
            layer.entry(key).map(|entry| entry.node.to_json()),
            Some(expected),
            "{text}"
        );
    }
}

#[test]
fn an_empty_file_or_section_says_nothing() {
    for text in ["", "# nothing\n", "command_policy:\n  # timeout_seconds: 3\n", "---\n"] {
        let (layer, problems) = load(text);
        assert!(
            layer.entries.is_empty() && problems.is_empty(),
            "{text:?}: {problems:?}"
        );
    }
}
