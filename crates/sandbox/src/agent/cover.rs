//! How hidden paths are kept from an agent: chosen before the fork, because the agent is told which it is.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::AgentError;
use crate::keeper::mask;
use crate::landlock;
use crate::sys::mounts::Presence;
use crate::sys::{self, process::Side};

/// What keeps an agent from the hidden paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    /// There is nothing to hide.
    Nothing,
    /// Empty places are mounted over them. The agent's own sandbox works inside.
    Mounts,
    /// Landlock. Mounts are impossible inside, so the agent's own sandbox is too.
    Landlock,
    /// It is another user, to whom they are closed.
    OtherUser,
}

/// The cover and what it needs.
#[derive(Debug)]
pub(super) enum Plan {
    Nothing,
    OtherUser,
    Mounts {
        spaces: Spaces,
        hidden: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
    },
    Landlock(OwnedFd),
}

/// Namespaces in which mounts can be made.
#[derive(Debug, Clone)]
pub(super) enum Spaces {
    /// Root needs no more than a mount namespace.
    Own,
    /// Others need a user namespace around it, in which they stay who they are.
    User { uid_map: String, gid_map: String },
}

pub(super) fn plan(hidden: Vec<PathBuf>, read_only: Vec<PathBuf>, is_other_user: bool) -> Result<Plan, AgentError> {
    if hidden.is_empty() && read_only.is_empty() {
        return Ok(Plan::Nothing);
    }
    let spaces = Spaces::best();
    let without = match spaces_work(&spaces) {
        Ok(()) => {
            return Ok(Plan::Mounts {
                spaces,
                hidden,
                read_only,
            });
        }
        Err(reason) => reason,
    };
    if let Some(path) = read_only.into_iter().next() {
        return Err(AgentError::Writable { path, reason: without });
    }
    let Some(first) = hidden.first() else {
        return Ok(Plan::Nothing);
    };
    if is_other_user && hidden.iter().all(|path| is_closed_to_others(path)) {
        return Ok(Plan::OtherUser);
    }
    match landlock::all_but(&hidden) {
        Ok(rules) => Ok(Plan::Landlock(rules)),
        Err(error) => Err(AgentError::Exposed {
            path: first.clone(),
            reason: format!("no mount namespace can be had ({without}), nor landlock ({error})"),
        }),
    }
}

impl Plan {
    pub(super) fn cover(&self) -> Cover {
        match self {
            Plan::Nothing => Cover::Nothing,
            Plan::OtherUser => Cover::OtherUser,
            Plan::Mounts { .. } => Cover::Mounts,
            Plan::Landlock(_) => Cover::Landlock,
        }
    }

    pub(super) fn namespaces(&self) -> Option<&Spaces> {
        match self {
            Plan::Mounts { spaces, .. } => Some(spaces),
            Plan::Nothing | Plan::OtherUser | Plan::Landlock(_) => None,
        }
    }

    pub(super) fn rules(&self) -> Option<&OwnedFd> {
        match self {
            Plan::Landlock(rules) => Some(rules),
            Plan::Nothing | Plan::OtherUser | Plan::Mounts { .. } => None,
        }
    }

    /// Covers the hidden paths in the mount namespace of this process, and closes others to writing.
    pub(super) fn mount(&self) -> io::Result<()> {
        match self {
            Plan::Mounts { hidden, read_only, .. } => {
                // First, so that what is hidden within them stays so.
                read_only.iter().try_for_each(|path| still(path))?;
                entering_anew(|| hidden.iter().try_for_each(|path| pin_above(path)))?;
                hidden.iter().try_for_each(|path| mask(path))
            }
            Plan::Nothing | Plan::OtherUser | Plan::Landlock(_) => Ok(()),
        }
    }
}

impl Spaces {
    fn best() -> Spaces {
        match sys::effective_uid() {
            0 => Spaces::Own,
            uid => {
                let gid = sys::effective_gid();
                Spaces::User {
                    uid_map: format!("{uid} {uid} 1"),
                    gid_map: format!("{gid} {gid} 1"),
                }
            }
        }
    }

    /// Moves this process, which must have one thread, into them.
    pub(super) fn enter(&self) -> io::Result<()> {
        match self {
            Spaces::Own => sys::process::unshare(libc::CLONE_NEWNS)?,
            Spaces::User { uid_map, gid_map } => {
                sys::process::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
                // The files in /proc/self belong to root while a process is closed to others.
                sys::set_dumpable(true)?;
                std::fs::write("/proc/self/setgroups", "deny")?;
                std::fs::write("/proc/self/uid_map", uid_map)?;
                std::fs::write("/proc/self/gid_map", gid_map)?;
            }
        }
        sys::mounts::make_private()
    }
}

/// Closes a directory to writing. Whoever is in it already enters it anew: before, they are on the mount beneath.
fn still(path: &Path) -> io::Result<()> {
    entering_anew(|| {
        sys::mounts::pin(path)?;
        sys::mounts::add_attributes(path, sys::mounts::READ_ONLY)
    })
}

/// Makes the directories above a hidden path mount points, as far up as somebody but root could rename them: what is
/// hidden would otherwise be found under another name by the next agent.
fn pin_above(path: &Path) -> io::Result<()> {
    let is_roots = |directory: &Path| directory.metadata().is_ok_and(|found| found.uid() == 0);
    let above = path.ancestors().skip(1);
    let mut renamable: Vec<&Path> = above
        .take_while(|directory| directory.parent().is_some_and(|parent| !is_roots(parent)))
        .collect();
    renamable.reverse();
    for directory in renamable {
        let presence = sys::mounts::presence(&sys::c_path(directory)?);
        if let Presence::Present(..) = presence {
            sys::mounts::pin(directory)?;
        }
    }
    Ok(())
}

/// Mounts something, and enters the working directory again: it would lie below what was mounted.
fn entering_anew(mount: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let here = std::env::current_dir();
    mount()?;
    here.and_then(std::env::set_current_dir)
}

/// Tried once, in a process of its own: nothing else tells whether this machine allows it.
fn spaces_work(spaces: &Spaces) -> Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    TRIED
        .get_or_init(|| attempt(spaces).map_err(|error| error.to_string()))
        .clone()
}

fn attempt(spaces: &Spaces) -> io::Result<()> {
    match sys::process::fork_threaded()? {
        Side::Child => {
            let errno = match spaces.enter() {
                Ok(()) => 0,
                Err(error) => sys::errno_of(&error).clamp(1, 255),
            };
            sys::process::exit_now(errno)
        }
        Side::Parent { child } => match sys::process::exit_code_of(child)? {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        },
    }
}

/// Whether others than its owner and root are kept out of a directory or file.
fn is_closed_to_others(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|found| found.uid() == 0 && found.mode() & 0o077 == 0)
}
