//! From a plan to the sandbox's own words.

use std::path::{Path, PathBuf};

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::policy::effective::{Layer, Network, SandboxMode};
use countersign_gateway::policy::plan::{ExecRights, Plan};
use countersign_sandbox as sandbox;
use sandbox::{Identity, Limits, Mode, Profile};

/// Existing parts of the workspace that commands may read but not change: they steer programs that
/// others run there later.
const PROTECTED: &str = ".countersign";
/// The same in a repository.
const PROTECTED_OF_GIT: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];

/// Parts of a repository that would do the same if they came into being: `commondir` names another
/// directory to take configuration and hooks from, and `config.worktree` is read where the configuration says so.
const BARRED_OF_GIT: [&str; 3] = ["hooks", "commondir", "config.worktree"];

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
    let (protected, barred) = steering(&root);
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
        protected,
        barred,
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

/// What is protected below a root, and what is barred from coming into being. Looked at before every command, so
/// where there is no repository nothing in one is looked for.
fn steering(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut protected: Vec<_> = Some(root.join(PROTECTED))
        .into_iter()
        .filter(|path| path.exists())
        .collect();
    let git = root.join(".git");
    match git.metadata() {
        Ok(found) if found.is_dir() => {
            let parts = PROTECTED_OF_GIT.iter().map(|name| git.join(name));
            protected.extend(parts.filter(|path| path.exists()));
        }
        // In a linked worktree or a submodule a file says where the repository is.
        Ok(found) if found.is_file() => {
            protected.push(git);
            return (protected, Vec::new());
        }
        Ok(_) | Err(_) => return (protected, Vec::new()),
    }
    // Without a configuration there is no repository yet, and making one is a command's right.
    if !git.join("config").is_file() {
        return (protected, Vec::new());
    }
    let barred = BARRED_OF_GIT.iter().map(|name| git.join(name));
    let missing = barred.filter(|path| path.symlink_metadata().is_err());
    (protected, missing.collect())
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(root: &Path, paths: &[PathBuf]) -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<_> = paths.iter().map(name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_policy_takes_for_readable_is_what_the_kernel_opens() {
        use countersign_gateway::policy::places::READABLE_BY_ALL;
        assert_eq!(READABLE_BY_ALL, *sandbox::READABLE_BY_ALL);
    }

    #[test]
    fn what_steers_others_is_found_in_every_kind_of_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let found = || {
            let (protected, barred) = steering(root);
            (names(root, &protected), names(root, &barred))
        };
        let none = Vec::<String>::new();
        assert_eq!(found(), (none.clone(), none.clone()));
        fs::create_dir(root.join(".countersign")).unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let begun = vec![".countersign".to_owned(), ".git/hooks".to_owned()];
        assert_eq!(found(), (begun, none.clone()));
        fs::write(root.join(".git/config"), "").unwrap();
        fs::write(root.join(".git/config.worktree"), "").unwrap();
        fs::remove_dir(root.join(".git/hooks")).unwrap();
        let protected = [".countersign", ".git/config", ".git/config.worktree"].map(str::to_owned);
        let barred = [".git/commondir", ".git/hooks"].map(str::to_owned);
        assert_eq!(found(), (protected.to_vec(), barred.to_vec()));
        // A link to a repository elsewhere is one too.
        fs::rename(root.join(".git"), root.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", root.join(".git")).unwrap();
        assert_eq!(found(), (protected.to_vec(), barred.to_vec()));
        fs::remove_file(root.join(".git")).unwrap();
        fs::write(root.join(".git"), "gitdir: elsewhere").unwrap();
        let linked = vec![".countersign".to_owned(), ".git".to_owned()];
        assert_eq!(found(), (linked, none));
    }
}
