//! Every key of the configuration: its shape, its default, and what a weaker hand may do to it.
//!
//! One row per key. The loader, the merge, `config init`, `config show` and the JSON Schema all
//! read this table and nothing else, so a key added here is known everywhere.

use super::shape::{Field, Shape};
use super::tighten::Rule;

/// One key, named by its path: `section.name`, or a plain name at the top.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) path: &'static str,
    pub(super) shape: Shape,
    pub(super) rule: Rule,
    /// JSON; `null` where nothing is set.
    pub(super) default: &'static str,
    /// What `config init` shows, commented out, for a key that is unset by default.
    pub(super) example: &'static str,
    pub(super) about: &'static str,
}

impl Key {
    /// The section, empty for a key at the top, and the name in it.
    pub(super) fn split(&self) -> (&'static str, &'static str) {
        self.path.split_once('.').unwrap_or(("", self.path))
    }
}

pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

pub(super) const LAYERS: &[&str] = &[
    "session",
    "rlimits",
    "cgroup",
    "uid",
    "no-new-privs",
    "landlock",
    "exec-list",
    "seccomp",
    "netns",
    "mountns",
    "protected-paths",
    "pidns",
    "guardian",
];
pub(super) const SANDBOX_NARROWEST_FIRST: &[&str] = &["read-only", "workspace-write", "danger-full-access"];
pub(super) const NETWORK_NARROWEST_FIRST: &[&str] = &["deny", "allow"];
pub(super) const DURABILITY_SAFEST_FIRST: &[&str] = &["power", "process"];
pub(super) const SELF_APPROVAL_STRICTEST_FIRST: &[&str] = &["deny", "allow"];
pub(super) const MODES: &[&str] = &["untrusted", "on-request", "on-failure", "never"];
/// Mildest first: the strictest of several is the last.
pub(super) const TOOL_APPROVALS: &[&str] = &["none", "required", "deny"];
/// Who may answer for a tool in a run, mildest first.
pub(super) const APPROVAL_MODES: &[&str] = &["delegated", "owner"];
pub(super) const TOOL_ACTIONS: &[&str] = &["read", "write", "approve-required"];
pub(super) const SCOPES: &[&str] = &["namespace", "cluster", "repository"];

const fn field(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: false,
    }
}

const fn needed(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: true,
    }
}

const TEXTS: Shape = Shape::List(&Shape::Text);

const WHITELIST_RULE: Shape = Shape::Fields(&[
    needed("pattern", Shape::Pattern),
    field("reason", Shape::Text),
    field("enabled", Shape::Flag),
    field("match", TEXTS),
    field("not_match", TEXTS),
]);

const APPROVER: Shape = Shape::Fields(&[
    needed("name", Shape::Text),
    needed("type", Shape::Words(&["http", "client"])),
    field("url", Shape::Url),
    field("async", Shape::Flag),
    field("timeout_ms", Shape::Whole(1)),
    field("headers", Shape::Map(&Shape::Secret)),
]);

const AGENT: Shape = Shape::Fields(&[
    needed("name", Shape::Text),
    field(
        "driver",
        Shape::Words(&["codex-app-server", "codex-exec", "claude-stream", "acp", "jsonl"]),
    ),
    field("type", Shape::Words(&["mcp", "exec"])),
    needed("command", TEXTS),
    field("env", Shape::Map(&Shape::Text)),
    field("input", Shape::Words(&["closed", "open"])),
    field(
        "eventParsing",
        Shape::Fields(&[
            field("format", Shape::Words(&["json-rpc", "jsonl", "custom"])),
            field("lineDelimited", Shape::Flag),
            field("eventTypeField", Shape::Text),
            field("parser", TEXTS),
        ]),
    ),
    field(
        "healthCheck",
        Shape::Fields(&[
            field("method", Shape::Words(&["process-alive", "heartbeat", "custom"])),
            field("interval", Shape::Whole(1)),
            field("timeout", Shape::Whole(1)),
            field("command", TEXTS),
        ]),
    ),
]);

const ACTIONS: Shape = Shape::Unique(&Shape::Words(TOOL_ACTIONS));
const NAMES: Shape = Shape::TextOr(&Shape::Text, &TEXTS);
const SCOPE: Shape = Shape::TextOr(
    &Shape::Words(SCOPES),
    &Shape::Fields(&[
        field("namespace", NAMES),
        field("cluster", NAMES),
        field("repository", NAMES),
    ]),
);

const TOOL_RULE: Shape = Shape::Fields(&[
    field("approval", Shape::Words(TOOL_APPROVALS)),
    field("enabled", Shape::Flag),
    field("approvers", Shape::Words(APPROVAL_MODES)),
    field("actions", ACTIONS),
    field("scope", SCOPE),
    field("roles", TEXTS),
    field("labels", TEXTS),
]);

const TOOL_POLICIES: Shape = Shape::Map(&Shape::Fields(&[
    field("approval", Shape::Words(TOOL_APPROVALS)),
    field("actions", ACTIONS),
    field("scope", SCOPE),
    field("roles", TEXTS),
    field("labels", TEXTS),
    field("approvers", Shape::Words(APPROVAL_MODES)),
]));

const POLICY_OF_AGENT: Shape = Shape::Fields(&[field("tools", TOOL_POLICIES)]);
const POLICY_OF_LABEL: Shape = Shape::Fields(&[
    field("tools", TOOL_POLICIES),
    field("agent_key", Shape::Text),
    field("agent", Shape::Text),
    field("runtime", Shape::Words(&["full-env", "code-only"])),
]);
const POLICY_OF_PROJECT: Shape = Shape::Fields(&[
    field("tools", TOOL_POLICIES),
    field("repositories", TEXTS),
    field("namespace", Shape::Text),
]);

const fn key(path: &'static str, shape: Shape, rule: Rule, default: &'static str, about: &'static str) -> Key {
    Key {
        path,
        shape,
        rule,
        default,
        example: "",
        about,
    }
}

/// A key that is unset unless somebody writes it.
const fn unset(path: &'static str, shape: Shape, rule: Rule, example: &'static str, about: &'static str) -> Key {
    Key {
        path,
        shape,
        rule,
        default: "null",
        example,
        about,
    }
}

/// The table, in the order in which `config init` writes it.
#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    unset("workspace_root", Shape::ProjectPath, Rule::Workspace, ".", "commands read and write file contents here, not outside; relative to the project"),

    key("command_policy.allowlist", Shape::Unique(&Shape::Program), Rule::Programs, r#"["*"]"#, "program names or absolute paths; \"*\" is any"),
    key("command_policy.timeout_seconds", Shape::Seconds, Rule::Lower, "30", "a call may ask for less, or for more up to the maximum"),
    key("command_policy.timeout_seconds_max", Shape::Seconds, Rule::Lower, "600", "the longest a call may ask for"),
    key("command_policy.cpu_limit", Shape::Cpu, Rule::LowerCpu, r#""1""#, "cores: \"500m\", \"2\""),
    key("command_policy.memory_limit", Shape::Memory, Rule::LowerMemory, r#""1Gi""#, "bytes: \"512Mi\", \"1Gi\""),
    key("command_policy.pids_limit", Shape::Whole(1), Rule::Lower, "256", "processes and threads of one call"),
    key("command_policy.run_as_non_root", Shape::Flag, Rule::True, "true", "a server that runs as root drops to an ordinary user"),
    unset("command_policy.run_as", Shape::Text, Rule::Owner, "nobody", "that user; otherwise the owner of the workspace"),
    key("command_policy.audit_retention_days", Shape::Whole(1), Rule::Higher, "90", "older rows of the record are pruned by whatever serves, and by `countersign audit prune`"),
    key("command_policy.sandbox", Shape::Words(SANDBOX_NARROWEST_FIRST), Rule::Order(SANDBOX_NARROWEST_FIRST), r#""workspace-write""#, "read-only | workspace-write | danger-full-access"),
    key("command_policy.network", Shape::Words(NETWORK_NARROWEST_FIRST), Rule::Order(NETWORK_NARROWEST_FIRST), r#""deny""#, "deny | allow"),
    key("command_policy.env_allow", Shape::Unique(&Shape::Variable), Rule::Subset, r#"["LANG", "TERM"]"#, "variables of the server that a command may see; the rest is built from nothing"),
    key("command_policy.require", Shape::Unique(&Shape::Words(LAYERS)), Rule::Superset, r#"["landlock", "seccomp", "no-new-privs", "rlimits"]"#, "layers of confinement without which a call is refused"),
    key("command_policy.path", Shape::SearchPath, Rule::Owner, r#"["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]"#, "where program names are looked up"),
    key("command_policy.read_paths", Shape::Unique(&Shape::Path), Rule::Inside, "[]", "readable besides the system and the workspace"),
    key("command_policy.helpers", Shape::Map(&Shape::Unique(&Shape::Program)), Rule::Helpers, "{}", "what a listed program may start besides: names, paths, or workspace"),

    key("approval_policy.mode", Shape::Words(MODES), Rule::Mode, r#""untrusted""#, "untrusted | on-request | on-failure | never"),
    unset("approval_policy.timeout_ms", Shape::Nullable(&Shape::Whole(1)), Rule::LowerOrNone, "600000", "unset waits for ever; on expiry the answer is no"),
    key("approval_policy.whitelist", Shape::List(&WHITELIST_RULE), Rule::Whitelist, "[]", "commands that run unasked, beside the built-in read-only ones; enabled: false turns a pattern off"),
    key("approvals.self", Shape::Words(SELF_APPROVAL_STRICTEST_FIRST), Rule::Order(SELF_APPROVAL_STRICTEST_FIRST), r#""allow""#, "whether who runs `exec` may approve it at the terminal: allow | deny"),
    key("quorum", Shape::Whole(1), Rule::Higher, "1", "how many people must agree"),
    key("tools", Shape::Map(&TOOL_RULE), Rule::Tools, "{}", "by name or glob: approval none | required | deny, enabled, actions, scope, roles, labels, approvers owner | delegated; the strictest wins"),
    key("approvers", Shape::List(&APPROVER), Rule::Owner, "[]", "HTTP approvers, or the client's own user; console and terminal are always there"),

    key("agents", Shape::List(&AGENT), Rule::Owner, "[]", "coding agents that jobs may start"),
    unset("jobs.maxProcesses", Shape::Nullable(&Shape::Whole(1)), Rule::LowerOrNone, "4", "agent processes at once; unset is the number of cores"),
    key("runs.timeout_seconds", Shape::Whole(1), Rule::Lower, "14400", "how long a run may work; a week at most. Its clock stands still while somebody is asked"),
    unset("runs.prompt", Shape::Text, Rule::Owner, "\"Work on {{ repository }}#{{ issue_number }}: {{ instructions }}\"", "what a run's agent is told, with places that the run fills; a line with a place that comes to nothing is left out"),
    key("policies.agents", Shape::Map(&POLICY_OF_AGENT), Rule::Policies, "{}", "tool policies by agent key"),
    key("policies.labels", Shape::Map(&POLICY_OF_LABEL), Rule::Policies, "{}", "tool policies by `run:*` label"),
    key("policies.projects", Shape::Map(&POLICY_OF_PROJECT), Rule::Policies, "{}", "tool policies by project"),
    key("tool_files", TEXTS, Rule::Owner, "[]", "globs of files that declare tools"),

    key("answer_within_ms", Shape::Whole(1), Rule::Lower, "45000", "a call that takes longer answers `running` and goes on"),
    key("output_limit_bytes", Shape::Whole(1), Rule::Lower, "1048576", "output kept of each stream"),
    key("shutdown_grace_ms", Shape::Whole(0), Rule::Lower, "10000", "time to answer what is running when the server stops"),
    key("sessions.ttl_seconds", Shape::Whole(1), Rule::Lower, "86400", "an idle session ends after this time"),
    key("limits.body_bytes", Shape::Whole(1), Rule::Lower, "4194304", "longest HTTP body"),
    key("limits.line_bytes", Shape::Whole(1), Rule::Lower, "16777216", "longest line on stdin"),
    // Messages are read level by level on the stack, which a deeper one would overflow.
    key("limits.depth", Shape::Between(1, 512), Rule::Lower, "128", "deepest nesting of a message; 512 at most"),
    unset("limits.requests_per_second", Shape::Nullable(&Shape::Positive), Rule::LowerOrNone, "50", "per caller; unset is off"),
    unset("limits.burst", Shape::Nullable(&Shape::Whole(1)), Rule::LowerOrNone, "100", "requests at once above that rate; unset is off"),
    key("limits.sessions_max", Shape::Whole(1), Rule::Lower, "100000", "open sessions"),

    key("listen", Shape::Address, Rule::Address, r#""127.0.0.1:7420""#, "where `serve` listens"),
    unset("tls.cert", Shape::Path, Rule::Owner, "/etc/countersign/cert.pem", "certificate chain"),
    unset("tls.key", Shape::Path, Rule::Owner, "/etc/countersign/key.pem", "its private key"),
    key("auth.anonymous_agents", Shape::Flag, Rule::False, "true", "agents on loopback need no token"),

    key("audit.durability", Shape::Words(DURABILITY_SAFEST_FIRST), Rule::Order(DURABILITY_SAFEST_FIRST), r#""power""#, "power | process: what a row survives before the call goes on"),
    // Not a superset: a project that hides `.*` would erase its own traces.
    key("audit.redact_patterns", Shape::Unique(&Shape::Pattern), Rule::Owner, "[]", "text that is hidden in the record"),
    unset("audit.witness", Shape::PathOrAddress, Rule::Owner, "/mnt/witness/countersign.jsonl", "a file or an http(s) address that is given each signed checkpoint"),

    unset("callbacks.token", Shape::Secret, Rule::Credential, "callback-token", "turns the callback routes on"),
    unset("callbacks.url", Shape::Url, Rule::Owner, "https://countersign.example.org:7420", "where approvers reach this server; unset is where it listens"),
    unset("github.api_url", Shape::Url, Rule::Owner, "https://api.github.com", "GitHub's API"),
    unset("github.token", Shape::Secret, Rule::Owner, "github-token", "the control token"),
    unset("github.agent_token", Shape::Secret, Rule::Owner, "agents-github-token", "what agents in runs are given as CODEXK8S_GIT_BOT_TOKEN; never the control token"),
    unset("github.webhook_secret", Shape::Secret, Rule::Owner, "webhook-secret", "signs deliveries"),
    unset("kubernetes.agent_kubeconfig", Shape::Path, Rule::Owner, "\"/etc/countersign/agents/{namespace}.kubeconfig\"", "what agents in runs with runtime full-env are given as KUBECONFIG; {namespace} is the run's"),
    unset("kubernetes.kubeconfig", Shape::Path, Rule::Owner, "/etc/countersign/kubeconfig", "the cluster that control tools act on"),
    unset("database_lifecycle.url", Shape::Secret, Rule::Owner, "postgres://localhost/postgres", "the server in which databases are made"),
    unset("telemetry.otlp_endpoint", Shape::Url, Rule::Owner, "http://127.0.0.1:4318", "where traces go"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::shape::Bases;
    use crate::config::tree::Node;

    #[test]
    fn every_default_and_example_has_its_own_shape() {
        let bases = Bases {
            file: "/c".into(),
            project: "/p".into(),
            home: None,
        };
        for key in KEYS {
            let default: serde_json::Value = serde_json::from_str(key.default).expect(key.path);
            let mut faults = Vec::new();
            if !default.is_null() {
                let checked = key
                    .shape
                    .check(key.path, &Node::from_json(&default), &bases, &mut faults);
                assert_eq!(checked.map(|node| node.to_json()), Some(default), "{}", key.path);
            } else {
                let example = crate::config::tree::read(key.example).expect(key.path);
                assert!(
                    key.shape.check(key.path, &example, &bases, &mut faults).is_some(),
                    "{}: {faults:?}",
                    key.path
                );
            }
        }
    }

    #[test]
    fn the_table_and_the_gateway_know_the_same_words() {
        use countersign_gateway::policy::approvers::ApprovalMode;
        use countersign_gateway::policy::effective::{Layer, Mode, Network, SandboxMode, ToolApproval};
        use countersign_gateway::policy::merge::{Action, Subject};
        fn check<T>(listed: &[&str], known: &[(&str, T)]) {
            let known: BTreeSet<_> = known.iter().map(|(word, _)| *word).collect();
            assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), known);
        }
        check(LAYERS, Layer::WORDS);
        check(SANDBOX_NARROWEST_FIRST, SandboxMode::WORDS);
        check(NETWORK_NARROWEST_FIRST, Network::WORDS);
        check(MODES, Mode::WORDS);
        check(TOOL_APPROVALS, ToolApproval::WORDS);
        check(TOOL_ACTIONS, Action::WORDS);
        check(APPROVAL_MODES, ApprovalMode::WORDS);
        assert!(SCOPES.iter().all(|word| Subject::parse(word).is_some()));
    }

    #[test]
    fn no_key_is_both_a_section_and_a_value() {
        for key in KEYS {
            let (section, _) = key.split();
            assert!(find(section).is_none(), "{}", key.path);
            assert_eq!(
                KEYS.iter().filter(|other| other.path == key.path).count(),
                1,
                "{}",
                key.path
            );
        }
    }

    #[test]
    fn the_page_of_keys_tells_each_with_its_default_and_meaning() {
        let page = include_str!("../../../../docs/configuration.md");
        let rows = page
            .lines()
            .filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 3);
        assert_eq!(rows.count(), KEYS.len());
        for key in KEYS {
            let default = match key.default {
                "null" => String::new(),
                default => format!("`{default}`"),
            };
            let about = key.about.replace('|', "\\|");
            let row = format!("| `{}` | {default} | {about}", key.path);
            assert!(page.contains(&row), "`docs/configuration.md` lacks: {row}");
        }
    }
}
