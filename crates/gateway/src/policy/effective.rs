//! The policy in force: what the configuration's sources came to, checked, in one value.
//!
//! Made by the binary from files, environment and flags; never changed, only replaced. `sources`
//! names where it came from, `digest` fixes its content, and both go into every decision's record.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::allowlist::Allowlist;
use super::quantity::{ByteCount, Millicores};
use super::whitelist::WhitelistRule;
use crate::audit::chain;

macro_rules! words {
    ($(#[$doc:meta])* $kind:ident { $($(#[$note:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        pub enum $kind { $($(#[$note])* $variant,)* }

        impl $kind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            pub const WORDS: &[(&str, Self)] = &[$(($name, Self::$variant),)*];
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            pub fn parse(text: &str) -> Option<Self> {
                Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, it)| *it)
            }
        }
    };
}

words! {
    /// How far a command may reach, narrowest first.
    SandboxMode {
        ReadOnly "read-only",
        WorkspaceWrite "workspace-write",
        DangerFullAccess "danger-full-access",
    }
}

words! {
    /// Whether a command may use the network, narrowest first.
    Network {
        Deny "deny",
        Allow "allow",
    }
}

words! {
    /// S1's approval modes. `never` and `untrusted` cannot be compared: one never asks, the other asks
    /// for nearly everything.
    Mode {
        /// Never asks: what policy does not allow is denied.
        Never "never",
        /// Every command asks unless the whitelist covers it.
        Untrusted "untrusted",
        /// Runs confined; asks when the caller wants more.
        OnRequest "on-request",
        /// Runs confined; asks to run again without when the confinement made it fail.
        OnFailure "on-failure",
    }
}

words! {
    /// What the tool matrix says of a tool, mildest first, so that the strictest is the maximum.
    ToolApproval {
        None "none",
        Required "required",
        Deny "deny",
    }
}

words! {
    /// The layers of confinement, as results and `require` name them.
    Layer {
        Session "session",
        Rlimits "rlimits",
        Cgroup "cgroup",
        Uid "uid",
        NoNewPrivs "no-new-privs",
        Landlock "landlock",
        ExecList "exec-list",
        Seccomp "seccomp",
        Netns "netns",
        Mountns "mountns",
        ProtectedPaths "protected-paths",
        Pidns "pidns",
        Guardian "guardian",
    }
}

/// S0's CommandPolicy, with what section 12 of the contract adds.
#[derive(Clone, Debug)]
pub struct CommandPolicy {
    pub allowlist: Allowlist,
    pub timeout: Duration,
    pub timeout_max: Duration,
    pub cpu_limit: Millicores,
    pub memory_limit: ByteCount,
    pub pids_limit: u64,
    pub run_as_non_root: bool,
    pub run_as: Option<String>,
    pub audit_retention_days: u32,
    pub sandbox: SandboxMode,
    pub network: Network,
    pub env_allow: Vec<String>,
    pub require: Vec<Layer>,
    /// Where program names are looked up.
    pub path: Vec<PathBuf>,
    pub read_paths: Vec<PathBuf>,
    /// Programs a listed program may start besides: names, paths, or `workspace`.
    pub helpers: Vec<(String, Vec<String>)>,
}

/// Bounds on one command's whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceLimits {
    pub cpu: Millicores,
    pub memory: ByteCount,
    pub pids: u64,
}

/// S1's ApprovalPolicy.
#[derive(Clone, Debug)]
pub struct ApprovalPolicy {
    pub mode: Mode,
    /// None waits for ever.
    pub timeout: Option<Duration>,
    pub whitelist: Vec<WhitelistRule>,
    /// Whether the person who runs `exec` may approve what they asked for.
    pub self_approval: bool,
    /// How many people must agree.
    pub quorum: u32,
}

/// Where commands may work.
#[derive(Clone, Debug)]
pub struct Places {
    /// Commands read and write here, not outside; none means that the call's directory is the root.
    pub workspace_root: Option<PathBuf>,
    /// S3's `ALLOWED_CWD_ROOTS`, as written; none means no restriction.
    pub cwd_roots: Option<Vec<PathBuf>>,
    /// The directory an omitted or relative `cwd` starts from.
    pub start: PathBuf,
    /// Never readable to a command: the state directory, the configuration, credential folders.
    pub hidden: Vec<PathBuf>,
}

/// One entry of the tool matrix: a name or a glob with `*`.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRule {
    pub pattern: String,
    pub approval: Option<ToolApproval>,
    pub enabled: Option<bool>,
    pub source: String,
}

/// Who set what decides, for explanations: `operator file …, line 3, column 5`, `environment …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleSources {
    pub allowlist: String,
    pub workspace: String,
    pub cwd_roots: String,
    pub timeout: String,
    pub mode: String,
}

/// The whole policy.
#[derive(Clone, Debug)]
pub struct EffectivePolicy {
    pub command: CommandPolicy,
    pub approval: ApprovalPolicy,
    pub places: Places,
    pub tools: Vec<ToolRule>,
    /// The sources that took part, weakest first.
    pub sources: Vec<String>,
    pub rule_sources: RuleSources,
}

impl EffectivePolicy {
    /// Everything that decides, in one value: what `policy.changed` records, so that the digest in
    /// a decision's record leads to the whole policy.
    pub fn content(&self) -> Value {
        let command = &self.command;
        let mut content = self.s0_fields();
        let paths = |list: &[PathBuf]| {
            list.iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        let helpers: serde_json::Map<_, _> = command
            .helpers
            .iter()
            .map(|(name, list)| (name.clone(), json!(list)))
            .collect();
        let rule = |rule: &WhitelistRule| json!({"rule": rule.explained(), "reason": rule.reason, "enabled": rule.enabled, "source": rule.source.as_str()});
        let tool = |rule: &ToolRule| json!({"pattern": rule.pattern, "approval": rule.approval.map(ToolApproval::as_str), "enabled": rule.enabled});
        let more = json!({
            "timeout_seconds_max": command.timeout_max.as_secs_f64(),
            "pids_limit": command.pids_limit,
            "run_as": command.run_as,
            "allowed_cwd_roots": self.places.cwd_roots.as_deref().map(paths),
            "env_allow": command.env_allow,
            "require": command.require.iter().map(|layer| layer.as_str()).collect::<Vec<_>>(),
            "path": paths(&command.path),
            "read_paths": paths(&command.read_paths),
            "helpers": helpers,
            "quorum": self.approval.quorum,
            "approval_timeout_ms": self.approval.timeout.map(|timeout| timeout.as_millis() as u64),
            "whitelist": self.approval.whitelist.iter().map(rule).collect::<Vec<_>>(),
            "tools": self.tools.iter().map(tool).collect::<Vec<_>>(),
        });
        if let (Value::Object(content), Value::Object(more)) = (&mut content, more) {
            content.extend(more);
        }
        content
    }

    /// What every command's record repeats as `policy_snapshot`: S0's fields, the mode, the sources,
    /// and the digest of the whole policy.
    pub fn snapshot(&self) -> Value {
        let mut snapshot = self.s0_fields();
        snapshot["digest"] = json!(chain::digest(&self.content()));
        snapshot
    }

    fn s0_fields(&self) -> Value {
        let command = &self.command;
        json!({
            "allowlist": allowlist(&command.allowlist),
            "timeout_seconds": command.timeout.as_secs_f64(),
            "cpu_limit": command.cpu_limit.to_string(),
            "memory_limit": command.memory_limit.to_string(),
            "run_as_non_root": command.run_as_non_root,
            "workspace_root": self.places.workspace_root.as_ref().map(|root| root.to_string_lossy()),
            "audit_retention_days": command.audit_retention_days,
            "sandbox": command.sandbox.as_str(),
            "network": command.network.as_str(),
            "approval_mode": self.approval.mode.as_str(),
            "sources": self.sources,
        })
    }

    /// What the matrix says of a tool: the strictest of the entries that match.
    pub fn tool_approval(&self, tool: &str) -> Option<(ToolApproval, &ToolRule)> {
        let matching = self.tools.iter().filter(|rule| glob(&rule.pattern, tool));
        matching
            .filter_map(|rule| Some((rule.approval?, rule)))
            .max_by_key(|(approval, _)| *approval)
    }

    /// Whether a tool is offered at all; one entry that disables it is enough.
    pub fn tool_enabled(&self, tool: &str) -> bool {
        !self
            .tools
            .iter()
            .any(|rule| rule.enabled == Some(false) && glob(&rule.pattern, tool))
    }
}

fn allowlist(list: &Allowlist) -> Vec<String> {
    match list {
        Allowlist::Any => vec!["*".to_owned()],
        Allowlist::Only(_) => {
            let paths = list.paths().iter().map(|path| path.to_string_lossy().into_owned());
            list.names().iter().cloned().chain(paths).collect()
        }
    }
}

/// Matches a name against a pattern in which `*` stands for any text.
fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut rest = rest;
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => end.is_empty() || rest.is_empty() || name.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_whole_names() {
        for (pattern, name, expected) in [
            ("execute_command", "execute_command", true),
            ("execute_command", "execute_command2", false),
            ("secret.sync.*", "secret.sync.github_k8s", true),
            ("secret.sync.*", "secret.syncx", false),
            ("*", "anything", true),
            ("*_command", "run_command", true),
            ("*_command", "run_command_x", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXcYb", false),
            ("", "x", false),
        ] {
            assert_eq!(glob(pattern, name), expected, "{pattern} on {name}");
        }
    }
}
