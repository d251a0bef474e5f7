//! Starting a whole agent: a process of its own user, session and cgroup that cannot see what is hidden.
//!
//! An agent is not confined like a command. It needs the network, its own home and its own sandbox, and what
//! it does is the business of its protocol and of the policy behind it. What it never gets is root, our
//! descriptors, or a look at the paths that are *hidden*: a mount namespace covers them, so that the agent's
//! own sandbox can still make mounts inside; where none can be had, Landlock does, and then it cannot. Its signals reach
//! what it started and nobody else, where the kernel can tell (Linux 6.12).
//!
//! An agent may outlive us, so nobody keeps it: its processes are found again by the cgroup that carries its
//! *mark*, also by a later server.

mod cover;

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cgroup::{Cgroups, Leaf};
use crate::keeper::is_absent;
use crate::mounted;
use crate::profile::{Identity, Limits};
use crate::sys;

pub use cover::Cover;

/// More processes than a busy agent has, and far fewer than a machine bears.
const PROCESSES_MAX: u32 = 4096;

/// What the names of agents' cgroups begin with, before the mark.
const AGENT: &str = "agent-";

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The user it runs as; `None` keeps ours, which must not be root then.
    pub identity: Option<Identity>,
    /// Not to be seen by it. All paths are absolute and canonical; a missing one needs no cover.
    pub hidden: Vec<PathBuf>,
    /// Not to be written to by it, absolute and canonical as well. Only mounts can do that; where none can be made it is
    /// not started.
    pub read_only: Vec<PathBuf>,
    /// Names its cgroup: letters, digits, `-` and `_`.
    pub mark: String,
}

/// What holds for an agent that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub cover: Cover,
    /// Why there is no cgroup; its processes are then found by what `/proc` tells of them.
    pub cgroup_missing: Option<String>,
}

/// Why an agent is not started.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("an agent is never started as root; name an ordinary user in `command_policy.run_as`")]
    AsRoot,
    #[error("only a server that runs as root can start an agent as another user")]
    OtherUser,
    #[error("the mark `{0}` cannot name a cgroup")]
    Mark(String),
    #[error("`{}` is no absolute path", .0.display())]
    RelativePath(PathBuf),
    #[error(
        "the agent could read `{}`: {reason}; allow unprivileged user namespaces, or run the server as root",
        path.display()
    )]
    Exposed { path: PathBuf, reason: String },
    #[error(
        "the agent could write to `{}`: no mount namespace can be had ({reason}); allow unprivileged user namespaces, \
         or run the server as root",
        path.display()
    )]
    Writable { path: PathBuf, reason: String },
    #[error("cannot prepare the agent's confinement")]
    Prepare(#[source] io::Error),
}

/// The steps of a child on its way to the agent's program.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Step {
    Session = 1,
    Cgroup,
    Namespace,
    Cover,
    Groups,
    User,
    Privileges,
    Landlock,
    Directory,
}

/// A command that will confine itself. Kept until it was spawned.
#[derive(Debug)]
pub struct Prepared {
    held: Held,
    steps: PipeReader,
    leaf: Option<Leaf>,
}

/// Makes `command` confine itself before it becomes the agent. Nothing is started yet.
pub fn prepare(command: &mut Command, confinement: &Confinement) -> Result<Prepared, AgentError> {
    let own = sys::effective_uid();
    let identity = match (&confinement.identity, own) {
        (None, 0) => return Err(AgentError::AsRoot),
        (Some(identity), _) if identity.check().is_err() => return Err(AgentError::AsRoot),
        (Some(identity), 0) => Some(identity.clone()),
        (Some(identity), uid) if identity.uid != uid => return Err(AgentError::OtherUser),
        (Some(_) | None, _) => None,
    };
    if confinement.mark.is_empty() || !confinement.mark.bytes().all(is_plain) {
        return Err(AgentError::Mark(confinement.mark.clone()));
    }
    let mut named = confinement.hidden.iter().chain(&confinement.read_only);
    if let Some(path) = named.find(|path| !path.is_absolute()) {
        return Err(AgentError::RelativePath(path.clone()));
    }
    let names = mounted::names_now(&confinement.hidden).map_err(AgentError::Prepare)?;
    let hidden: Vec<PathBuf> = names.into_iter().filter(|path| may_be_there(path, own)).collect();
    let plan = cover::plan(hidden, confinement.read_only.clone(), identity.is_some())?;
    arrange(command, &confinement.mark, identity, plan)
}

fn arrange(
    command: &mut Command,
    mark: &str,
    identity: Option<Identity>,
    plan: cover::Plan,
) -> Result<Prepared, AgentError> {
    let made = Cgroups::of_this_process().create(std::process::id() as i32, &leaf_name(mark), &limits());
    let (leaf, entries, cgroup_missing) = match made.and_then(|leaf| leaf.entries().map(|entries| (leaf, entries))) {
        Ok((leaf, entries)) => (Some(leaf), entries, None),
        Err(error) => (None, Vec::new(), Some(error.to_string())),
    };
    let (steps, report) = io::pipe().map_err(AgentError::Prepare)?;
    // The command keeps the other end for as long as it lives, so that reading must not wait for its end.
    sys::set_nonblocking(steps.as_fd()).map_err(AgentError::Prepare)?;
    let held = Held {
        cover: plan.cover(),
        cgroup_missing,
    };
    // The rules that hide paths hold signals back as well.
    let signals = match plan.rules() {
        Some(_) => None,
        None => crate::landlock::own_signals_only().map_err(AgentError::Prepare)?,
    };
    let child = Child {
        directory: command.get_current_dir().map(Path::to_owned),
        signals,
        identity,
        entries,
        plan,
        report,
    };
    // SAFETY: the closure runs in the forked child. It takes no lock but the allocator's, which the C library
    // makes usable there, and otherwise makes system calls on what was opened before the fork.
    unsafe { command.pre_exec(move || child.confine()) };
    Ok(Prepared { held, steps, leaf })
}

impl Prepared {
    /// What holds for the agent.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// What a failed spawn failed at, in words.
    pub fn explain(mut self, error: &io::Error) -> String {
        if let Some(leaf) = &self.leaf {
            leaf.remove();
        }
        let mut step = [0];
        let act = match self.steps.read(&mut step) {
            Ok(1) => match step[0] {
                1 => "making a session",
                2 => "entering its cgroup",
                3 => "making a mount namespace",
                4 => "covering what is hidden",
                5 => "setting its groups",
                6 => "changing the user",
                7 => "giving up privileges",
                8 => "restricting itself by landlock",
                9 => "going back to its directory",
                _ => "starting it",
            },
            Ok(_) | Err(_) => "starting it",
        };
        format!("{act} failed: {error}")
    }
}

/// Processes in the cgroups of this mark, made by whichever server.
pub fn members(mark: &str) -> Vec<i32> {
    let leaves = Cgroups::of_this_process().leaves_named(&leaf_name(mark));
    let mut all: Vec<i32> = leaves.iter().flat_map(|leaf| leaf_members(leaf)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Processes in the cgroups of agents of any mark but this one, made by whichever server.
pub fn members_of_any(but: Option<&str>) -> Vec<i32> {
    let spared = but.map(leaf_name);
    let is_agents = |name: &str| name.starts_with(AGENT) && Some(name) != spared.as_deref();
    let leaves = Cgroups::of_this_process().leaves(is_agents);
    let mut all: Vec<i32> = leaves.iter().flat_map(|leaf| leaf_members(leaf)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Removes the cgroups of this mark once nobody is left in them.
pub fn forget(mark: &str) {
    for leaf in Cgroups::of_this_process().leaves_named(&leaf_name(mark)) {
        let _ = fs::remove_dir(leaf);
    }
}

fn leaf_name(mark: &str) -> String {
    format!("{AGENT}{mark}")
}

/// Whether a path has to be covered. One that nobody may look at now is opened again by whoever closed it.
fn may_be_there(path: &Path, own: u32) -> bool {
    let is_own = |directory: &Path| fs::metadata(directory).is_ok_and(|found| found.uid() == own);
    match fs::metadata(path) {
        Ok(_) => true,
        Err(error) if is_absent(&error) => false,
        Err(_) => path.ancestors().skip(1).any(is_own),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn limits() -> Limits {
    Limits {
        memory_bytes: None,
        cpu_millicores: None,
        pids: Some(PROCESSES_MAX),
        file_bytes: None,
        open_files: 0,
    }
}

/// Those in a cgroup and in all below it: an agent with a delegated one may have made some.
fn leaf_members(leaf: &Path) -> Vec<i32> {
    let listed = fs::read_to_string(leaf.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
    for below in fs::read_dir(leaf).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(leaf_members(&below.path()));
        }
    }
    all
}

/// Whether this process is where that path led when it was looked at, and not where a link leads that somebody has
/// put there since.
fn is_there(directory: &Path) -> io::Result<()> {
    match std::env::current_dir()? == directory {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

/// What the child needs between fork and execution; all of it was made before.
struct Child {
    /// Where it works, by the path that has no links in it. It is there before anything is covered, and goes there
    /// anew.
    directory: Option<PathBuf>,
    /// What keeps its signals to itself, where that can be had.
    signals: Option<OwnedFd>,
    identity: Option<Identity>,
    entries: Vec<File>,
    plan: cover::Plan,
    report: PipeWriter,
}

impl Child {
    fn confine(&self) -> io::Result<()> {
        self.step(Step::Session, sys::process::new_session())?;
        for entry in &self.entries {
            self.step(Step::Cgroup, sys::enter_cgroup(entry))?;
        }
        if let Some(spaces) = self.plan.namespaces() {
            self.step(Step::Namespace, spaces.enter())?;
            self.step(Step::Cover, self.plan.mount())?;
            // From below a cover everything beside could be read that the cover hides.
            if let Some(directory) = &self.directory {
                self.step(Step::Directory, std::env::set_current_dir(directory))?;
            }
        }
        if let Some(directory) = &self.directory {
            self.step(Step::Directory, is_there(directory))?;
        }
        if let Some(identity) = &self.identity {
            self.step(Step::Groups, sys::set_groups(identity.gid, &identity.groups))?;
            self.step(Step::Privileges, sys::empty_bounding_set())?;
            self.step(Step::User, sys::set_user(identity.uid))?;
        }
        self.step(Step::Privileges, sys::set_no_new_privs())?;
        self.step(Step::Privileges, sys::close_on_exec_all())?;
        if let Some(rules) = self.plan.rules().or(self.signals.as_ref()) {
            self.step(Step::Landlock, crate::landlock::restrict_self(rules))?;
        }
        Ok(())
    }

    fn step(&self, step: Step, done: io::Result<()>) -> io::Result<()> {
        if done.is_err() {
            sys::write_byte(self.report.as_raw_fd(), step as u8);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_are_no_plain_names_are_refused() {
        let confinement = |mark: &str| Confinement {
            identity: (sys::effective_uid() == 0).then_some(Identity {
                uid: 65534,
                gid: 65534,
                groups: Vec::new(),
            }),
            hidden: Vec::new(),
            read_only: Vec::new(),
            mark: mark.to_owned(),
        };
        for mark in ["", "..", "a/b", "a b"] {
            let refused = prepare(&mut Command::new("true"), &confinement(mark));
            assert!(matches!(refused, Err(AgentError::Mark(_))), "{mark}");
        }
    }

    #[test]
    fn landlock_hides_where_no_mounts_can_be_made() {
        if crate::landlock_abi() == 0 {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        fs::set_permissions(&base, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for (directory, text) in [("state", "the secret"), ("home", "not hidden")] {
            fs::create_dir(base.join(directory)).unwrap();
            fs::write(base.join(directory).join("file"), text).unwrap();
        }
        let nobody = (sys::effective_uid() == 0).then_some(Identity {
            uid: 65534,
            gid: 65534,
            groups: Vec::new(),
        });
        let plan = cover::Plan::Landlock(crate::landlock::all_but(&[base.join("state")]).unwrap());
        let mut command = Command::new("/bin/cat");
        command.arg(base.join("state/file")).arg(base.join("home/file"));
        let prepared = arrange(&mut command, "landlocked", nobody, plan).unwrap();
        assert_eq!(prepared.held().cover, Cover::Landlock);
        let said = command.output().unwrap();
        forget("landlocked");
        assert_eq!(String::from_utf8_lossy(&said.stdout), "not hidden");
    }

    #[test]
    fn nobody_is_ever_made_root() {
        let root = Confinement {
            identity: Some(Identity {
                uid: 0,
                gid: 0,
                groups: Vec::new(),
            }),
            hidden: Vec::new(),
            read_only: Vec::new(),
            mark: "a".to_owned(),
        };
        assert!(matches!(
            prepare(&mut Command::new("true"), &root),
            Err(AgentError::AsRoot)
        ));
        // The kernel takes -1 for whoever asks.
        let unchanged = Confinement {
            identity: Some(Identity {
                uid: u32::MAX,
                gid: 1,
                groups: Vec::new(),
            }),
            ..root.clone()
        };
        assert!(matches!(
            prepare(&mut Command::new("true"), &unchanged),
            Err(AgentError::AsRoot)
        ));
        if sys::effective_uid() == 0 {
            let kept = Confinement { identity: None, ..root };
            assert!(matches!(
                prepare(&mut Command::new("true"), &kept),
                Err(AgentError::AsRoot)
            ));
        }
    }
}
