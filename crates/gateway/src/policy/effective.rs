//! The policy in force: what the configuration's sources came to, checked, in one value.
//!
//! Made by the binary from files, environment and flags; never changed, only replaced. `sources`
//! names where it came from, `digest` fixes its content, and both go into every decision's record.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::actor::Context;
use super::allowlist::Allowlist;
use super::quantity::{ByteCount, Millicores};
use super::tools::ToolPolicies;
use super::whitelist::WhitelistRule;
use crate::session::Caller;

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
    /// Whether a client's own user may decide what was asked through that client. The client can answer in
    /// their name, so this trusts the client.
    pub client_decides: bool,
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
    pub hidden: Arc<[PathBuf]>,
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
    pub tools: ToolPolicies,
    /// The sources that took part, weakest first.
    pub sources: Vec<String>,
    pub rule_sources: RuleSources,
}

impl EffectivePolicy {
    /// The caller as this policy sees it.
    pub fn context<'a>(&'a self, caller: &'a Caller) -> Context<'a> {
        Context {
            in_job: caller.job.is_some(),
            ..self.tools.context(caller.role, caller.run.as_deref())
        }
    }
}
