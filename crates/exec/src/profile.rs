//! From a plan to the sandbox's own words.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_gateway::error::{ErrorCode, Refusal};
use countersign_gateway::policy::effective::{Layer, Network, SandboxMode};
use countersign_gateway::policy::places::{self, Steering};
use countersign_gateway::policy::plan::{ExecRights, Plan};
use countersign_sandbox as sandbox;
use sandbox::directory::{self, Seen};
use sandbox::{Identity, Limits, Mode, NoExec, Profile, is_absent};

use crate::steering::{self, Parts};

/// The largest file a command may write.
const FILE_BYTES_MAX: u64 = 16 << 30;
const OPEN_FILES_MAX: u64 = 4096;

/// The root of a plan, opened: what policy decided on, and nothing that a link leads to by now.
pub(crate) fn open_root(plan: &Plan) -> Result<Arc<OwnedFd>, Refusal> {
    let place = &plan.place;
    if place.root == place.cwd.path {
        return Ok(place.cwd.handle.clone());
    }
    let opened = directory::open_unlinked(&place.root).map(Arc::new);
    opened.map_err(|error| gone(&place.root, &error))
}

fn gone(root: &Path, error: &io::Error) -> Refusal {
    let message = format!(
        "`{}`, in which commands work, cannot be opened: {error}",
        root.display()
    );
    Refusal::new(ErrorCode::CwdNotFound, message)
}

/// What commands must not see, by every name that leads there now.
#[derive(Clone, Debug)]
pub(crate) struct Unseen {
    /// What policy hides, as it was named.
    pub(crate) places: Arc<[PathBuf]>,
    pub(crate) hidden: Arc<[PathBuf]>,
    /// Those of them that were there a moment ago.
    pub(crate) existing: Arc<[PathBuf]>,
    /// In which the private directories of commands lie.
    pub(crate) private: Arc<[PathBuf]>,
    /// Of what is mounted.
    pub(crate) generation: u64,
}

/// The profile of a plan whose root was opened, less the private directories. What lies around those is covered.
pub(crate) fn of(
    plan: &Plan,
    opened: BorrowedFd<'_>,
    unseen: &Unseen,
    identity: Option<Identity>,
    server_uid: u32,
) -> Result<Profile, Refusal> {
    let root = plan.place.root.clone();
    let seen = Seen::of(&root, opened).map_err(|error| gone(&root, &error))?;
    let is_opened = plan.place.opened_root(plan.sandbox).is_some();
    let exec_list = plan.exec != ExecRights::Any;
    let noexec = match &plan.exec {
        ExecRights::Any | ExecRights::Only { workspace: true, .. } => NoExec::Nothing,
        ExecRights::Only {
            workspace: false,
            programs,
        } if holds_programs(&root, programs) => NoExec::Private,
        ExecRights::Only { workspace: false, .. } => NoExec::Everything,
    };
    let Parts { protected, barred } = match (steering::parts(&root, server_uid), plan.sandbox) {
        (Ok(parts), _) => parts,
        (Err(unprotected), SandboxMode::WorkspaceWrite) => {
            let root = root.display();
            let message = format!("working directory `{root}` is not allowed: {unprotected}");
            return Err(Refusal::new(ErrorCode::CwdNotAllowed, message));
        }
        // Where nothing can be written, or nothing is confined, nothing is protected.
        (Err(_), SandboxMode::ReadOnly | SandboxMode::DangerFullAccess) => Parts::default(),
    };
    let read_paths: Vec<PathBuf> = plan.read_paths.iter().filter(|path| path.exists()).cloned().collect();
    Ok(Profile {
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
        masked: masked(plan, &read_paths, unseen),
        closed: Vec::new(),
        roots: is_opened.then_some(root).into_iter().collect(),
        read_paths,
        exec_list,
        noexec,
        home: None,
        tmp: None,
        seen: is_opened.then_some(seen).into_iter().collect(),
        limits: limits(plan),
        require: plan.require.iter().map(|layer| required(*layer)).collect(),
    })
}

fn limits(plan: &Plan) -> Limits {
    Limits {
        memory_bytes: Some(plan.limits.memory.get()),
        cpu_millicores: Some(u32::try_from(plan.limits.cpu.get()).unwrap_or(u32::MAX)),
        pids: Some(u32::try_from(plan.limits.pids).unwrap_or(u32::MAX)),
        file_bytes: Some(FILE_BYTES_MAX),
        open_files: OPEN_FILES_MAX,
    }
}

/// What is covered: the hidden places that are there, and among what is opened the private directories of commands. Full
/// access covers nothing, and may always reach those.
fn masked(plan: &Plan, read_paths: &[PathBuf], unseen: &Unseen) -> Vec<PathBuf> {
    let root = plan.place.opened_root(plan.sandbox);
    let is_in_root = |path: &Path| root.is_some_and(|root| path.starts_with(root));
    let is_opened = |path: &&PathBuf| is_in_root(path) || read_paths.iter().any(|read| path.starts_with(read));
    let private = match plan.sandbox {
        SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite => &*unseen.private,
        SandboxMode::DangerFullAccess => &[],
    };
    let readable = unseen
        .hidden
        .iter()
        .filter(|path| plan.reads(path) && may_be_there(path, is_in_root(path)));
    // Nothing but a cover keeps the owner of a file from changing who may read it. Where one place has several names, covers
    // would come to lie over each other.
    let has_one_name = unseen.hidden.len() == unseen.places.len();
    let unreadable = match plan.sandbox {
        SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite if has_one_name => &*unseen.existing,
        SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => &[],
    };
    let unreadable = unreadable.iter().filter(|path| !plan.reads(path));
    readable
        .chain(unreadable)
        .chain(private.iter().filter(is_opened))
        .cloned()
        .collect()
}

/// A layer that policy requires, in the sandbox's words. One that it did not know would be required of nobody.
fn required(layer: Layer) -> sandbox::Layer {
    match layer {
        Layer::Session => sandbox::Layer::Session,
        Layer::Rlimits => sandbox::Layer::Rlimits,
        Layer::Cgroup => sandbox::Layer::Cgroup,
        Layer::Uid => sandbox::Layer::Uid,
        Layer::NoNewPrivs => sandbox::Layer::NoNewPrivs,
        Layer::Landlock => sandbox::Layer::Landlock,
        Layer::ExecList => sandbox::Layer::ExecList,
        Layer::Seccomp => sandbox::Layer::Seccomp,
        Layer::Netns => sandbox::Layer::Netns,
        Layer::Mountns => sandbox::Layer::Mountns,
        Layer::ProtectedPaths => sandbox::Layer::ProtectedPaths,
        Layer::Pidns => sandbox::Layer::Pidns,
        Layer::Guardian => sandbox::Layer::Guardian,
    }
}

/// Whether a path has to be covered. One in the root that cannot be looked at now may be opened by the command itself.
fn may_be_there(path: &Path, is_in_root: bool) -> bool {
    match path.metadata() {
        Ok(_) => true,
        Err(error) => is_in_root && !is_absent(&error),
    }
}

/// Whether a root has something in it that must be executable: a listed program, or the machine's own
/// programs and libraries, which a mount without that right would take from every command.
fn holds_programs(root: &Path, listed: &[PathBuf]) -> bool {
    let libraries = [
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/usr/lib",
        "/usr/lib32",
        "/usr/lib64",
        "/usr/libx32",
    ];
    // As `/usr/lib/x86_64-linux-gnu`.
    let is_of_machine = |below: &Path| {
        let first = below.iter().next().and_then(|part| part.to_str());
        first.is_some_and(|part| part.contains("-linux-"))
    };
    let mut libraries = libraries.iter().map(Path::new);
    places::is_among_programs(root)
        || libraries
            .any(|directory| directory.starts_with(root) || root.strip_prefix(directory).is_ok_and(is_of_machine))
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
    let named = |layer: &sandbox::Layer| match layer {
        sandbox::Layer::Session => Layer::Session,
        sandbox::Layer::Rlimits => Layer::Rlimits,
        sandbox::Layer::Cgroup => Layer::Cgroup,
        sandbox::Layer::Uid => Layer::Uid,
        sandbox::Layer::NoNewPrivs => Layer::NoNewPrivs,
        sandbox::Layer::Landlock => Layer::Landlock,
        sandbox::Layer::ExecList => Layer::ExecList,
        sandbox::Layer::Seccomp => Layer::Seccomp,
        sandbox::Layer::Netns => Layer::Netns,
        sandbox::Layer::Mountns => Layer::Mountns,
        sandbox::Layer::ProtectedPaths => Layer::ProtectedPaths,
        sandbox::Layer::Pidns => Layer::Pidns,
        sandbox::Layer::Guardian => Layer::Guardian,
    };
    report.iter().map(named).collect()
}

/// A root that commands may write to is nothing that steers others. Policy said so already; what a directory is may
/// have changed while somebody was asked.
pub(crate) fn refuse_steering(root: &Path, sandbox: SandboxMode) -> Option<Refusal> {
    match sandbox {
        SandboxMode::ReadOnly => None,
        SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => {
            Steering::around(root, steering::git_directory).map(|steering| steering.refusal(root))
        }
    }
}

/// Nobody works where commands must not look, nor among their private directories, of which others are swapped and read
/// from there. Policy looked already for the first; something may have been mounted while somebody was asked.
pub(crate) fn refuse_unseen(plan: &Plan, unseen: &Unseen) -> Result<(), Refusal> {
    places::check_outside(&plan.place, &unseen.hidden)?;
    Ok(places::check_outside(&plan.place, &unseen.private)?)
}

/// A hidden place to which a link inside the root leads cannot be hidden there: commands would take the link away, or make it lead
/// elsewhere, and the next server would hide that instead.
pub(crate) fn refuse_turnable(plan: &Plan, unseen: &Unseen) -> Result<(), Refusal> {
    let root = match (plan.sandbox, plan.place.opened_root(plan.sandbox)) {
        (SandboxMode::WorkspaceWrite, Some(root)) => root,
        (SandboxMode::ReadOnly | SandboxMode::DangerFullAccess, _) | (SandboxMode::WorkspaceWrite, None) => {
            return Ok(());
        }
    };
    let mut inside = unseen.places.iter().filter(|place| places::is_within(place, root));
    match inside.find(|place| directory::is_linked(place)) {
        None => Ok(()),
        Some(place) => {
            let message = format!(
                "`{}` contains `{}`, which commands must not see, and a link leads there that they could change; use a directory \
                 that does not contain it, or `sandbox` `read-only`",
                root.display(),
                place.display()
            );
            Err(Refusal::new(ErrorCode::CwdNotAllowed, message))
        }
    }
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
    use super::*;

    #[test]
    fn what_policy_takes_for_readable_is_what_the_kernel_opens() {
        use countersign_gateway::policy::places::READABLE_BY_ALL;
        assert_eq!(READABLE_BY_ALL, *sandbox::READABLE_BY_ALL);
    }

    #[test]
    fn a_root_is_mounted_so_that_nothing_of_it_runs_unless_the_machine_needs_it() {
        let listed = [PathBuf::from("/srv/app/bin/tool")];
        let holds = |root: &str| holds_programs(Path::new(root), &listed);
        for root in [
            "/srv/work",
            "/usr/lib/app",
            "/usr/src/app",
            "/usr/local/src/app",
            "/usr/share/app",
            "/opt/app",
            "/home/me",
        ] {
            assert!(!holds(root), "{root}");
        }
        for root in [
            "/",
            "/usr",
            "/usr/bin",
            "/usr/local",
            "/usr/lib",
            "/usr/lib/x86_64-linux-gnu",
            "/srv/app",
        ] {
            assert!(holds(root), "{root}");
        }
    }

    #[test]
    fn a_root_that_came_to_steer_others_while_somebody_was_asked_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let refused = |root: &Path, sandbox| refuse_steering(root, sandbox).map(|refusal| refusal.message);
        assert_eq!(refused(&root, SandboxMode::WorkspaceWrite), None);
        for part in ["objects", "refs", ".GIT", ".git/hooks"] {
            std::fs::create_dir_all(root.join(part)).unwrap();
        }
        // In large letters it is another name, and nothing to git.
        assert_eq!(refused(&root.join(".GIT"), SandboxMode::WorkspaceWrite), None);
        let hooks = root.join(".git/hooks");
        let expected = format!(
            "working directory `{0}/.git/hooks` is not allowed: it would be writable, and what is in `{0}/.git` steers \
             what others run; work in `{0}`, or with `sandbox` `read-only`",
            root.display()
        );
        assert_eq!(refused(&hooks, SandboxMode::WorkspaceWrite), Some(expected.clone()));
        assert_eq!(refused(&hooks, SandboxMode::DangerFullAccess), Some(expected));
        assert_eq!(refused(&hooks, SandboxMode::ReadOnly), None);
        std::fs::remove_dir_all(root.join(".git")).unwrap();
        std::fs::write(root.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let expected = format!(
            "working directory `{0}` is not allowed: it would be writable, and `{0}` is a directory of git's own, \
             and what is in it steers what others run; work in a worktree or a clone of it, or with `sandbox` `read-only`",
            root.display()
        );
        assert_eq!(refused(&root, SandboxMode::WorkspaceWrite), Some(expected));
    }
}
