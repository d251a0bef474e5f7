//! Merging a project's file never yields something looser than the operator's file alone.
//!
//! Looser is measured here by what the result lets through, not by the rules of the merge.

use std::collections::BTreeSet;

use countersign_gateway::policy::actor::RunContext;
use countersign_gateway::policy::tools::{Ruling, ToolUse};
use countersign_gateway::session::Role;
use proptest::prelude::*;

use super::*;

/// Lines of YAML, by section, that either side may write.
const CHOICES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "workspace_root: .",
            "workspace_root: inner",
            "workspace_root: ../elsewhere",
            "workspace_root: /",
        ],
    ),
    ("", &["quorum: 1", "quorum: 3"]),
    ("", &["output_limit_bytes: 10", "output_limit_bytes: 9999999"]),
    (
        "",
        &[
            "tools: {run_command: {approval: none}, secret.sync.github_k8s: {approval: none}}",
            "tools: {run_command: {approval: deny}, start-task: {enabled: true}}",
            "tools: {run_command: {enabled: false}, secret.sync.*: {actions: [read, write]}}",
            "tools: {'*': {approval: required, enabled: true}, database.lifecycle: {approval: none}}",
        ],
    ),
    (
        "policies",
        &[
            "agents: {dev: {tools: {'*': {approval: none}}}}",
            "agents: {dev: {tools: {'run_*': {actions: [read]}, 'secret.*': {roles: [operator]}}}}",
            "agents: {sre: {tools: {'*': {approval: deny}}}}",
        ],
    ),
    (
        "policies",
        &[
            "labels: {'run:ops': {agent_key: sre, tools: {run_command: {approval: none, labels: ['run:*']}}}}",
            "labels: {'run:ops': {agent_key: dev, tools: {'database.*': {scope: namespace}}}}",
        ],
    ),
    (
        "policies",
        &[
            "projects: {shop: {namespace: shop, repositories: [example/shop]}}",
            "projects: {shop: {namespace: other, tools: {'*': {scope: {namespace: shop}}}}}",
        ],
    ),
    (
        "command_policy",
        &[
            "allowlist: ['*']",
            "allowlist: [git]",
            "allowlist: [git, ls]",
            "allowlist: [rm, /bin/ls]",
        ],
    ),
    (
        "command_policy",
        &[
            "timeout_seconds: 1",
            "timeout_seconds: 60",
            "timeout_seconds_max: 60",
            "timeout_seconds_max: 5000",
        ],
    ),
    ("command_policy", &["cpu_limit: 500m", "cpu_limit: '64'"]),
    ("command_policy", &["memory_limit: 1Mi", "memory_limit: 1Ti"]),
    (
        "command_policy",
        &[
            "sandbox: read-only",
            "sandbox: workspace-write",
            "sandbox: danger-full-access",
        ],
    ),
    ("command_policy", &["network: deny", "network: allow"]),
    ("command_policy", &["run_as_non_root: true", "run_as_non_root: false"]),
    (
        "command_policy",
        &["env_allow: []", "env_allow: [LANG, SECRET]", "env_allow: [TERM]"],
    ),
    (
        "command_policy",
        &[
            "require: []",
            "require: [netns]",
            "require: [landlock, seccomp, no-new-privs, rlimits, cgroup]",
        ],
    ),
    (
        "command_policy",
        &[
            "read_paths: [/usr]",
            "read_paths: [/usr/lib]",
            "read_paths: [/]",
            "read_paths: [/usr/../]",
        ],
    ),
    (
        "command_policy",
        &["helpers: {cargo: [cc]}", "helpers: {cargo: [cc, sh], make: [sh]}"],
    ),
    (
        "command_policy",
        &["audit_retention_days: 1", "audit_retention_days: 900"],
    ),
    ("command_policy", &["path: /usr/bin", "path: /tmp", "run_as: root"]),
    (
        "approval_policy",
        &["mode: untrusted", "mode: on-request", "mode: on-failure", "mode: never"],
    ),
    (
        "approval_policy",
        &["timeout_ms: null", "timeout_ms: 5", "timeout_ms: 5000"],
    ),
    (
        "approval_policy",
        &[
            "whitelist: [{pattern: ^a}]",
            "whitelist: [{pattern: ^a, enabled: false}]",
            "whitelist: [{pattern: ^b}, {pattern: ^a}]",
        ],
    ),
    ("approvals", &["self: allow", "self: deny"]),
    ("audit", &["durability: power", "durability: process"]),
    ("auth", &["anonymous_agents: true", "anonymous_agents: false"]),
    (
        "limits",
        &[
            "requests_per_second: null",
            "requests_per_second: 1",
            "depth: 4",
            "depth: 400",
        ],
    ),
    (
        "",
        &[
            "approvers: [{name: x, type: client}]",
            "agents: [{name: a, command: [sh]}]",
            "tool_files: [x]",
        ],
    ),
];

/// A file: of each row, one line or none.
fn file() -> impl Strategy<Value = String> {
    let picks: Vec<_> = CHOICES
        .iter()
        .map(|(_, lines)| proptest::option::of(0..lines.len()))
        .collect();
    picks.prop_map(|picks| {
        let chosen = |wanted: &str| -> Vec<&str> {
            let rows = CHOICES
                .iter()
                .zip(&picks)
                .filter(|((section, _), _)| *section == wanted);
            rows.filter_map(|((_, lines), pick)| pick.map(|pick| lines[pick]))
                .collect()
        };
        let mut text: String = chosen("").iter().map(|line| format!("{line}\n")).collect();
        for section in [
            "command_policy",
            "policies",
            "approval_policy",
            "approvals",
            "audit",
            "auth",
            "limits",
        ] {
            let lines: String = chosen(section).iter().map(|line| format!("  {line}\n")).collect();
            text.push_str(&format!("{section}:\n{lines}"));
        }
        text
    })
}

/// Callers outside of runs and in them.
fn runs() -> Vec<(&'static str, Option<RunContext>)> {
    let run = |agent: Option<&str>, label: Option<&str>, project: Option<&str>| {
        Some(RunContext {
            agent_key: agent.map(str::to_owned),
            label: label.map(str::to_owned),
            project: project.map(str::to_owned),
            ..RunContext::default()
        })
    };
    vec![
        ("to anybody", None),
        ("to dev", run(Some("dev"), None, None)),
        ("to a run:ops", run(None, Some("run:ops"), None)),
        ("to sre in shop", run(Some("sre"), Some("run:ops"), Some("shop"))),
    ]
}

/// Everything a configuration lets through; a tighter one lets through a part of it.
fn lets_through(settings: &Settings) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut add = |what: &str, allowed: bool| {
        if allowed {
            out.insert(what.to_owned());
        }
    };
    let command = &settings.command;
    for program in ["git", "ls", "rm", "/bin/ls", "other"] {
        add(
            &format!("run {program}"),
            command.allowlist.iter().any(|it| it == "*" || it == program),
        );
    }
    for seconds in [1, 5, 30, 60, 600, 5000] {
        add(&format!("default {seconds} s"), command.timeout.as_secs() >= seconds);
        add(&format!("up to {seconds} s"), command.timeout_max.as_secs() >= seconds);
    }
    add("half a core", command.cpu_limit != "0");
    add("one core", command.cpu_limit != "500m");
    add("many cores", command.cpu_limit == "64");
    add("a gigabyte", command.memory_limit != "1Mi");
    add("a terabyte", command.memory_limit == "1Ti");
    add("write", command.sandbox != "read-only");
    add("escape", command.sandbox == "danger-full-access");
    add("network", command.network == "allow");
    add("root", !command.run_as_non_root || command.run_as.is_some());
    add("early pruning", command.audit_retention_days < 90);
    add("pruning", command.audit_retention_days < 900);
    for name in ["LANG", "TERM", "SECRET"] {
        add(&format!("see {name}"), command.env_allow.iter().any(|it| it == name));
    }
    for layer in ["landlock", "seccomp", "no-new-privs", "rlimits", "cgroup", "netns"] {
        add(
            &format!("without {layer}"),
            !command.require.iter().any(|it| it == layer),
        );
    }
    for path in ["/usr/lib", "/usr/share", "/etc"] {
        let readable = |root: &PathBuf| Path::new(path).starts_with(root.canonicalize().unwrap());
        add(&format!("read {path}"), command.read_paths.iter().any(readable));
    }
    for (program, helper) in [("cargo", "cc"), ("cargo", "sh"), ("make", "sh")] {
        let helps = |(name, list): &(String, Vec<String>)| name == program && list.iter().any(|it| it == helper);
        add(&format!("{program} starts {helper}"), command.helpers.iter().any(helps));
    }
    add("foreign path", command.path.iter().any(|dir| dir == Path::new("/tmp")));
    let mode = settings.approval.mode.as_str();
    add("unlisted command unasked", mode != "untrusted");
    add("question for more", mode != "never");
    add("question after failure", mode == "on-failure");
    for rule in settings.approval.whitelist.iter().filter(|rule| rule.enabled) {
        add(&format!("unasked {}", rule.pattern), true);
    }
    for wait in [5, 5000, u128::MAX] {
        add(
            &format!("approve after {wait} ms"),
            settings
                .approval
                .timeout
                .is_none_or(|timeout| timeout.as_millis() >= wait),
        );
    }
    add("self approval", settings.approval.self_approval);
    add("one approver", settings.approval.quorum < 2);
    let policy = crate::policy::effective(settings).unwrap();
    for (name, run) in runs() {
        let context = policy.tools.context(Role::Agent, run.as_ref());
        for tool in [
            "run_command",
            "secret.sync.github_k8s",
            "database.lifecycle",
            "start-task",
        ] {
            let ruling = policy.tools.ruling(&context, &ToolUse::of(tool));
            let passes = matches!(ruling, Ruling::Allow | Ruling::Ask(_));
            add(&format!("{tool} listed {name}"), policy.tools.lists(&context, tool));
            add(&format!("{tool} {name}"), passes);
            add(&format!("{tool} unasked {name}"), ruling == Ruling::Allow);
        }
    }
    let root = settings
        .places
        .workspace_root
        .as_ref()
        .map(|root| root.canonicalize().unwrap());
    for place in ["work", "work/inner", "elsewhere", ""] {
        let place = settings.places.start.parent().unwrap().join(place);
        add(
            &format!("work in {}", place.display()),
            root.as_ref().is_none_or(|root| place.starts_with(root)),
        );
    }
    add("weak record", settings.audit.durability == "process");
    add("anonymous", settings.anonymous_agents);
    add("much output", settings.output_limit_bytes > 1048576);
    add("output", settings.output_limit_bytes > 10);
    add("any rate", settings.limits.requests_per_second.is_none());
    add("deep", settings.limits.depth > 4);
    add("deeper", settings.limits.depth > 128);
    for key in ["approvers", "agents", "tool_files"] {
        add(
            key,
            settings
                .held(key)
                .unwrap()
                .value
                .as_array()
                .is_some_and(|list| !list.is_empty()),
        );
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_project_never_loosens(operator in file(), project in file()) {
        let world = World::new().operator(&operator);
        let Ok(alone) = world.load() else { return Ok(()) };
        // The project's file is that of the workspace the operator's file names.
        let root = alone.places.workspace_root.clone().unwrap();
        prop_assume!(root.starts_with(world.path("")));
        std::fs::create_dir_all(root.join(".countersign")).unwrap();
        std::fs::write(root.join(".countersign/config.yaml"), &project).unwrap();
        let Ok(joined) = world.load() else { return Ok(()) };
        let (before, after) = (lets_through(&alone), lets_through(&joined));
        let gained: Vec<_> = after.difference(&before).collect();
        prop_assert!(gained.is_empty(), "{gained:?}\noperator:\n{operator}\nproject:\n{project}");
    }
}
