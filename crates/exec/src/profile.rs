//! From a plan to the sandbox's own words.

use std::path::{Path, PathBuf};

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::policy::effective::{Layer, Network, SandboxMode};
use countersign_gateway::policy::plan::{ExecRights, Plan};
use countersign_sandbox as sandbox;
use sandbox::{Identity, Limits, Mode, Profile};

/// Existing parts of the workspace that commands may read but not change: they steer programs that
/// others run there later.
const PROTECTED: [&str; 5] = [
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".countersign",
];

/// Parts of a repository that would do the same if they came into being: `commondir` names another
/// directory to take configuration and hooks from.
const BARRED: [&str; 2] = [".git/hooks", ".git/commondir"];

/// The largest file a command may write.
const FILE_BYTES_MAX: u64 = 16 << 30;
const OPEN_FILES_MAX: u64 = 4096;

/// The profile of a plan, less the private directories.
pub(crate) fn of(plan: &Plan, identity: Option<Identity>) -> Profile {
    let root = plan.place.root.clone();
    let exec_list = plan.exec != ExecRights::Any;
    let noexec = match &plan.exec {
        ExecRights::Any | ExecRights::Only { workspace: true, .. } => false,
        ExecRights::Only {
            workspace: false,
            programs,
        } => !holds_programs(&root, programs),
    };
    Profile {
        mode: match plan.sandbox {
            SandboxMode::ReadOnly => Mode::ReadOnly,
            SandboxMode::WorkspaceWrite => Mode::WorkspaceWrite,
            SandboxMode::DangerFullAccess => Mode::DangerFullAccess,
        },
        network: match plan.network {
            Network::Deny => sandbox::Network::Deny,
            Network::Allow => sandbox::Network::Allow,
        },
        identity,
        protected: protected(&root),
        barred: barred(&root),
        masked: plan.hidden.iter().filter(|path| path.exists()).cloned().collect(),
        roots: vec![root],
        read_paths: plan.read_paths.iter().filter(|path| path.exists()).cloned().collect(),
        exec_list,
        noexec,
        home: None,
        tmp: None,
        limits: Limits {
            memory_bytes: Some(plan.limits.memory.get()),
            cpu_millicores: u32::try_from(plan.limits.cpu.get()).ok(),
            pids: u32::try_from(plan.limits.pids).ok(),
            file_bytes: Some(FILE_BYTES_MAX),
            open_files: OPEN_FILES_MAX,
        },
        require: plan
            .require
            .iter()
            .filter_map(|layer| layer.as_str().parse().ok())
            .collect(),
    }
}

fn protected(root: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = PROTECTED
        .iter()
        .map(|name| root.join(name))
        .filter(|path| path.exists())
        .collect();
    // In a linked worktree or a submodule a file says where the repository is.
    paths.extend(Some(root.join(".git")).filter(|path| path.is_file()));
    paths
}

fn barred(root: &Path) -> Vec<PathBuf> {
    // Without a configuration there is no repository yet, and making one is a command's right.
    if !root.join(".git/config").is_file() {
        return Vec::new();
    }
    BARRED
        .iter()
        .map(|name| root.join(name))
        .filter(|path| path.symlink_metadata().is_err())
        .collect()
}

/// Whether a root has something in it that must be executable: a listed program, or the machine's own
/// programs and libraries, which a mount without that right would take from every command.
fn holds_programs(root: &Path, listed: &[PathBuf]) -> bool {
    let system = ["/usr", "/bin", "/sbin", "/lib", "/lib64"].map(Path::new);
    system.iter().any(|dir| root.starts_with(dir) || dir.starts_with(root))
        || listed.iter().any(|program| program.starts_with(root))
}

/// The programs a launch may start.
pub(crate) fn exec_rights(plan: &Plan) -> sandbox::ExecRights {
    match &plan.exec {
        ExecRights::Any => sandbox::ExecRights::Any,
        ExecRights::Only { programs, workspace } => {
            let own: Option<PathBuf> = workspace.then(|| plan.place.root.clone());
            sandbox::ExecRights::Only(sandbox::ExecList::new(programs.iter().cloned().chain(own)))
        }
    }
}

/// The layers in force, in the gateway's words.
pub(crate) fn layers(report: &[sandbox::Layer]) -> Vec<Layer> {
    report
        .iter()
        .filter_map(|layer| Layer::parse(&layer.to_string()))
        .collect()
}

/// A root in which something secret could not be hidden is not used.
pub(crate) fn refuse_exposed(root: &Path, exposed: &[PathBuf]) -> Option<Refusal> {
    let path = exposed.first()?;
    let message = format!(
        "`{}` contains `{}`, which commands must not see, and this machine cannot hide it from them; \
         use a directory that does not contain it",
        root.display(),
        path.display()
    );
    Some(Refusal::new(ErrorCode::CwdNotAllowed, message))
}
