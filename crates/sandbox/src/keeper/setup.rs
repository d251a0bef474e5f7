//! Making a keeper out of a fresh process, in an order in which each step still can be done.

use std::fs;
use std::io;

use super::report::{Act, KeeperReport, SetupError};
use super::standing::Standing;
use super::tree::Tree;
use super::{Keeper, Namespaces, Seat, mounts};
use crate::Layer;
use crate::landlock;
use crate::opened::Opened;
use crate::profile::{Network, Profile};
use crate::rlimit::{self, ProcessCount};
use crate::seccomp;
use crate::sys::{self, process::Stack};

/// The namespaces a profile asks for.
pub(crate) fn namespace_flags(profile: &Profile, namespaces: &Namespaces) -> i32 {
    let own = match namespaces {
        Namespaces::None(_) => return 0,
        Namespaces::Own => libc::CLONE_NEWNS | libc::CLONE_NEWPID,
        Namespaces::User { .. } => libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID,
    };
    if !profile.confines() {
        return own;
    }
    own | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | match profile.network {
            Network::Deny => libc::CLONE_NEWNET,
            Network::Allow => 0,
        }
}

pub(super) fn prepare(seat: Seat) -> Result<(Keeper, KeeperReport), SetupError> {
    let Seat {
        profile,
        namespaces,
        leaf,
        socket,
        runner,
    } = seat;
    let has_namespaces = !matches!(namespaces, Namespaces::None(_));
    let has_user_namespace = matches!(namespaces, Namespaces::User { .. });
    if let Namespaces::User { uid, gid } = namespaces {
        map_own_user(uid, gid).map_err(failed(Act::MapUser))?;
    }
    let is_root = sys::effective_uid() == 0;
    // Leaving a cgroup out is a weaker sandbox but not a broken one; entering a limited one and failing is.
    if let Ok(leaf) = &leaf {
        leaf.enter().map_err(|error| SetupError::Act {
            act: Act::EnterCgroup,
            errno: error.errno(),
        })?;
    }
    let counters = leaf.as_ref().map(|leaf| leaf.counters()).unwrap_or_default();
    let mut covers = mounts::Covers::none();
    if has_namespaces {
        sys::mounts::make_private().map_err(failed(Act::PrivateMounts))?;
        sys::mounts::fresh_proc().map_err(failed(Act::MountProc))?;
    } else {
        sys::set_child_subreaper().map_err(failed(Act::Reaper))?;
    }
    let landlocked = profile.confines() && landlock::abi() > 0;
    let mut opened = Opened::nothing();
    if landlocked || has_namespaces && profile.confines() {
        opened = Opened::of(&profile).map_err(not_covered)?;
    }
    if has_namespaces && profile.confines() {
        covers = mounts::arrange(&profile, &opened).map_err(not_covered)?;
    }
    let guards = mounts::guard_opened(&profile, &opened).map_err(not_covered)?;
    covers.guards.extend(guards);
    let count = match (&leaf, &namespaces) {
        (Ok(_), _) => ProcessCount::Cgroup,
        (Err(_), Namespaces::User { .. }) => ProcessCount::OwnUserNamespace,
        (Err(_), _) => {
            let uid = profile
                .identity
                .as_ref()
                .map_or_else(sys::effective_uid, |identity| identity.uid);
            ProcessCount::SharedUser { uid }
        }
    };
    rlimit::set_inherited(&profile.limits, count).map_err(failed(Act::Rlimits))?;
    // Groups matter for nothing a keeper does, so it may wear the command's and save each child the change.
    if let Some(identity) = profile.identity.as_ref().filter(|_| is_root) {
        sys::set_groups(identity.gid, &identity.groups).map_err(failed(Act::Groups))?;
    }
    // Root that was asked for together with full access is given whole.
    let drops_capabilities = profile.confines() || profile.identity.is_some() || has_user_namespace;
    if drops_capabilities && (is_root || has_user_namespace) {
        sys::empty_bounding_set().map_err(failed(Act::BoundingSet))?;
    }
    // While the file is still ours to open.
    let standing = counters.has_memory().then(Standing::open).flatten();
    sys::set_dumpable(false).map_err(failed(Act::Undumpable))?;
    sys::set_no_new_privs().map_err(failed(Act::NoNewPrivs))?;

    let filtered = profile.confines() && seccomp::available();
    let report = report(&profile, &namespaces, &leaf, &covers, is_root);
    require(&profile, &report)?;
    let watch = has_namespaces.then(|| mounts::watch(&profile)).flatten();
    let most_files = sys::hard_limit(libc::RLIMIT_NOFILE).map_err(failed(Act::Rlimits))?;
    let stack = Stack::new().map_err(failed(Act::Stack))?;
    // Last, because it refuses the very calls that the steps above are made of.
    if filtered {
        seccomp::install(seccomp::Options::of(&profile, has_namespaces)).map_err(failed(Act::Seccomp))?;
    }
    let keeper = Keeper {
        socket,
        tree: if has_namespaces {
            Tree::Namespace
        } else {
            Tree::Descendants
        },
        counted: counters.read(),
        counters,
        standing,
        shared_memory: covers.shared_memory,
        shared_memory_opened: None,
        is_spoiled: false,
        guards: covers.guards,
        in_mount_namespace: has_namespaces && profile.confines(),
        made_barred: false,
        ran_on: false,
        watch,
        landlocked,
        drops_capabilities,
        open_files: profile.limits.open_files.min(most_files),
        rulesets: Vec::new(),
        stack,
        runner,
        opened,
        profile,
    };
    Ok((keeper, report))
}

/// The first layer that must be there and is not.
fn require(profile: &Profile, report: &KeeperReport) -> Result<(), SetupError> {
    let is_lacking = |layer: &Layer| profile.heeds(*layer) && !report.layers.contains(layer);
    let Some(layer) = profile.require.iter().copied().find(is_lacking) else {
        return Ok(());
    };
    let known = report.missing.iter().find(|(missing, _)| *missing == layer);
    Err(match known {
        Some((_, reason)) => SetupError::Required {
            layer,
            reason: reason.clone(),
        },
        None => SetupError::LeftOut { layer },
    })
}

fn failed(act: Act) -> impl Fn(io::Error) -> SetupError {
    move |error| SetupError::Act {
        act,
        errno: sys::errno_of(&error),
    }
}

/// What is wrong where paths cannot be covered. A directory that was swapped meanwhile is nothing that the machine lacks.
fn not_covered(error: io::Error) -> SetupError {
    match error.raw_os_error() {
        Some(libc::ESTALE) => SetupError::Moved,
        _ => failed(Act::Cover)(error),
    }
}

/// Maps this user and group to themselves. The kernel lets a process without rights do this only for its
/// own ids and only after it gave up changing groups.
fn map_own_user(uid: u32, gid: u32) -> io::Result<()> {
    // The files in /proc/self belong to root while a process is closed to others.
    sys::set_dumpable(true)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    sys::set_dumpable(false)
}

fn report(
    profile: &Profile,
    namespaces: &Namespaces,
    leaf: &Result<crate::cgroup::Leaf, String>,
    covers: &mounts::Covers,
    is_root: bool,
) -> KeeperReport {
    let mut layers = vec![Layer::Session, Layer::Rlimits, Layer::NoNewPrivs, Layer::Guardian];
    let mut missing = Vec::new();
    let mut note = |layer: Layer, reason: Result<(), String>| match reason {
        Ok(()) => layers.push(layer),
        Err(reason) => missing.push((layer, reason)),
    };
    note(Layer::Cgroup, leaf.as_ref().map(|_| ()).map_err(String::clone));
    if profile.identity.is_some() && is_root {
        note(Layer::Uid, Ok(()));
    } else if is_root {
        note(
            Layer::Uid,
            Err("commands run as root because no other user was asked for".to_owned()),
        );
    }
    let spaces = match namespaces {
        Namespaces::None(reason) => Err(reason.clone()),
        Namespaces::Own | Namespaces::User { .. } => Ok(()),
    };
    note(Layer::Pidns, spaces.clone());
    let mut exposed = Vec::new();
    if profile.confines() {
        note(Layer::Mountns, spaces.clone());
        if profile.network == Network::Deny {
            note(Layer::Netns, spaces.clone());
        }
        if !profile.protected.is_empty() {
            let ways = match (&covers.linked, &covers.doubled) {
                (None, None) => Ok(()),
                (Some(path), _) => Err(format!("`{}` is reached by a symbolic link", path.display())),
                (None, Some(path)) => Err(format!("`{}` is mounted a second time, around itself", path.display())),
            };
            note(Layer::ProtectedPaths, spaces.clone().and(ways));
        }
        let rules = if landlock::abi() > 0 {
            Ok(())
        } else {
            Err("this kernel has no landlock".to_owned())
        };
        note(Layer::Landlock, rules.clone());
        if profile.exec_list {
            note(Layer::ExecList, rules.clone());
        }
        let filter = if seccomp::available() {
            Ok(())
        } else {
            Err("this kernel has no system call filters".to_owned())
        };
        note(Layer::Seccomp, filter);
        if spaces.is_err() {
            exposed = mounts::exposed(profile, rules.is_ok());
        }
    } else {
        for layer in [
            Layer::Landlock,
            Layer::Seccomp,
            Layer::Netns,
            Layer::Mountns,
            Layer::ProtectedPaths,
            Layer::ExecList,
        ] {
            note(layer, Err("off in danger-full-access".to_owned()));
        }
        exposed = mounts::exposed(profile, false);
    }
    layers.sort();
    missing.sort();
    KeeperReport {
        layers,
        missing,
        exposed,
    }
}
