//! What a keeper's mount namespace changes about the file system: secrets are covered, files that steer other
//! tools are read-only, writable places are not executable.
//!
//! Mounts of another namespace come off silently when somebody outside replaces the file below them, and
//! Landlock's rules stay with a directory that was moved away. Each path therefore leaves a guard, which is
//! asked before every launch whether it is still as it was.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use super::aliases;
use crate::landlock::{SHARED_MEMORY, SharedMemory};
use crate::opened::{self, Opened, moved};
use crate::profile::{NoExec, Profile};
use crate::sys::mounts::{self, Presence};
use crate::sys::watch::Watch;
use crate::sys::{self, c_path};

/// Files in a command's shared memory; each takes memory of its own that their size does not tell.
const SHARED_FILES_MAX: u32 = 1 << 16;

/// What was done.
pub(super) struct Covers {
    pub(super) guards: Vec<Guard>,
    /// A protected path that is reached by a link, which could be replaced: mounts hold files, not links.
    pub(super) linked: Option<PathBuf>,
    /// A directory that can be reached by another name, at which nothing is covered.
    pub(super) doubled: Option<PathBuf>,
    pub(super) shared_memory: SharedMemory,
}

impl Covers {
    pub(super) fn none() -> Covers {
        Covers {
            guards: Vec::new(),
            linked: None,
            doubled: None,
            shared_memory: SharedMemory::Host,
        }
    }
}

/// A path and what must still be true of it.
pub(super) struct Guard {
    path: CString,
    expected: Presence,
}

impl Guard {
    fn after(path: &Path) -> io::Result<Guard> {
        let path = c_path(path)?;
        let expected = mounts::presence(&path);
        Ok(Guard { path, expected })
    }

    /// The same for a path that is covered or protected, if anything is there. Where it is neither, something was moved
    /// while that was done. A link is looked at elsewhere.
    fn covering(path: &Path) -> io::Result<Guard> {
        let guard = Guard::after(path)?;
        match guard.expected {
            Presence::Present(..) if !path.is_symlink() => Err(moved()),
            Presence::Absent | Presence::Present(..) | Presence::MountPoint(..) => Ok(guard),
        }
    }

    pub(super) fn holds(&self) -> bool {
        mounts::presence(&self.path) == self.expected
    }
}

/// Changes the mount namespace of this process as the profile asks.
pub(super) fn arrange(profile: &Profile, opened: &Opened) -> io::Result<Covers> {
    let mut covers = Covers::none();
    // While the table of mounts has nothing of ours in it.
    let aliases = aliases::of(profile, opened)?;
    covers.doubled = aliases.around;
    // The roots also where they are only read: whoever maps a program from there need not write it.
    let closed: Vec<&Path> = match profile.noexec {
        NoExec::Nothing => Vec::new(),
        NoExec::Private => profile.home.iter().chain(&profile.tmp).map(PathBuf::as_path).collect(),
        NoExec::Everything => profile.private_and_roots().collect(),
    };
    for path in closed {
        if let Some(itself) = opened.get(path) {
            forbid_execution(path, itself)?;
        }
    }
    for path in &profile.protected {
        if is_there(path)? {
            pin_parents(profile, path)?;
            mounts::pin(path)?;
            mounts::add_attributes(path, mounts::READ_ONLY)?;
        }
        let leads_elsewhere = fs::canonicalize(path).is_ok_and(|real| real != *path);
        if leads_elsewhere || path.is_symlink() {
            covers.linked.get_or_insert_with(|| path.clone());
        }
        covers.guards.push(Guard::covering(path)?);
    }
    // Private shared memory comes before the masks: one of them could be inside.
    if !touches_shared_memory(profile) && Path::new(SHARED_MEMORY).is_dir() {
        mounts::tmpfs(Path::new(SHARED_MEMORY), &shared_memory_options(profile)?)?;
        mounts::add_attributes(Path::new(SHARED_MEMORY), mounts::NO_EXEC)?;
        covers.shared_memory = SharedMemory::Private;
    }
    for path in profile.masked.iter().chain(&aliases.found) {
        pin_parents(profile, path)?;
        mask_around(profile, opened, path)?;
        covers.guards.push(Guard::covering(path)?);
    }
    Ok(covers)
}

/// Mounts an opened directory over itself, without the right to execute. By its path another could be meant meanwhile, and
/// what was opened may lie under the mount of a root around it.
fn forbid_execution(path: &Path, itself: &File) -> io::Result<()> {
    mounts::pin(&by_descriptor(&on_top(path, itself)?))?;
    mounts::add_attributes(&by_descriptor(&on_top(path, itself)?), mounts::NO_EXEC)?;
    Guard::covering(path).map(drop)
}

/// The same directory as its path leads to it now.
fn on_top(path: &Path, itself: &File) -> io::Result<File> {
    let found = opened::open(path)?.ok_or_else(moved)?;
    if sys::identity(found.as_fd())? == sys::identity(itself.as_fd())? {
        Ok(found)
    } else {
        Err(moved())
    }
}

fn by_descriptor(opened: &File) -> PathBuf {
    format!("/proc/self/fd/{}", opened.as_raw_fd()).into()
}

/// Watches the directories in which something must not come into being. Where that cannot be had it is looked for when
/// a call ends.
pub(super) fn watch(profile: &Profile) -> Option<Watch> {
    let parents: BTreeSet<&Path> = profile.barred.iter().filter_map(|path| path.parent()).collect();
    if parents.is_empty() || !profile.confines() {
        return None;
    }
    let watch = Watch::new().ok()?;
    for parent in parents {
        watch.add(&c_path(parent).ok()?).ok()?;
    }
    Some(watch)
}

/// Guards for the directories that Landlock's rules are about. They are at their paths still, and pinned where they were to
/// be.
pub(super) fn guard_opened(profile: &Profile, opened: &Opened) -> io::Result<Vec<Guard>> {
    let mut guards = Vec::new();
    for path in profile.private_and_roots() {
        let guard = Guard::after(path)?;
        let found = opened
            .get(path)
            .map(|opened| sys::identity(opened.as_fd()))
            .transpose()?;
        if found.is_some_and(|found| guard.expected.file() != Some(found)) {
            return Err(moved());
        }
        guards.push(guard);
    }
    for path in &profile.read_paths {
        guards.push(Guard::after(path)?);
    }
    Ok(guards)
}

/// Whether a path leads somewhere. What cannot be looked at may lead to anything.
fn is_there(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether an error says that there is nothing, rather than that nobody may look. Links that lead to each other lead to nothing.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ELOOP)
}

/// Makes the directories between a covered or protected path and its root mount points. Otherwise a parent could be
/// moved aside and made anew without the protection, or be looked into under its other name by the next call.
fn pin_parents(profile: &Profile, path: &Path) -> io::Result<()> {
    let Some(root) = profile
        .writable()
        .filter(|root| path.starts_with(root))
        .max_by_key(|root| root.as_os_str().len())
    else {
        return Ok(());
    };
    let mut parents: Vec<&Path> = path.ancestors().skip(1).take_while(|parent| *parent != root).collect();
    parents.reverse();
    for parent in parents {
        if !is_there(parent)? {
            return Ok(());
        }
        if !matches!(mounts::presence(&c_path(parent)?), Presence::MountPoint(..)) {
            mounts::pin(parent)?;
        }
    }
    Ok(())
}

/// Covers a path. What of the command's own lies in it is put back.
fn mask_around(profile: &Profile, opened: &Opened, path: &Path) -> io::Result<()> {
    let own = profile
        .home
        .iter()
        .chain(&profile.tmp)
        .filter(|own| own.starts_with(path));
    let own: Vec<(&PathBuf, &File)> = own.filter_map(|own| Some((own, opened.get(own)?))).collect();
    if own.is_empty() {
        return mask(path);
    }
    mounts::tmpfs(path, c"mode=0755,size=4k")?;
    for (own, _) in &own {
        fs::create_dir_all(own)?;
    }
    mounts::add_attributes(path, mounts::READ_ONLY)?;
    for (own, opened) in own {
        mounts::bind(&by_descriptor(opened), own)?;
        if profile.noexec != NoExec::Nothing {
            mounts::add_attributes(own, mounts::NO_EXEC)?;
        }
    }
    Ok(())
}

/// Covers a directory by an empty one and a file by an empty one.
pub(crate) fn mask(path: &Path) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    if found.is_dir() {
        mounts::tmpfs(path, c"mode=0555,size=4k")?;
    } else {
        mounts::bind(Path::new("/dev/null"), path)?;
    }
    mounts::add_attributes(path, mounts::READ_ONLY)
}

/// Files there are memory that no process has: without a cgroup nothing else would bound them.
fn shared_memory_options(profile: &Profile) -> io::Result<CString> {
    let size = match profile.limits.memory_bytes {
        Some(bytes) => bytes.to_string(),
        None => "25%".to_owned(),
    };
    Ok(CString::new(format!(
        "mode=1777,size={size},nr_inodes={SHARED_FILES_MAX}"
    ))?)
}

fn touches_shared_memory(profile: &Profile) -> bool {
    profile
        .writable()
        .chain(profile.roots.iter().chain(&profile.read_paths).map(PathBuf::as_path))
        .any(|path| path.starts_with(SHARED_MEMORY))
}

/// Masked paths that commands can reach when nothing covers them. In directories of the system Landlock leaves them out,
/// and with full access only the roots are looked at: nothing else is closed there either.
pub(super) fn exposed(profile: &Profile, landlocked: bool) -> Vec<PathBuf> {
    const KERNEL: &[&str] = &["/proc", "/sys"];
    let kernel: &[&str] = if profile.confines() { KERNEL } else { &[] };
    let all = profile.confines() && !landlocked;
    let reachable = |masked: &Path| {
        let opened = profile
            .writable()
            .chain(profile.roots.iter().chain(&profile.read_paths).map(PathBuf::as_path));
        all || opened
            .chain(kernel.iter().map(Path::new))
            .any(|root| masked.starts_with(root) || root.starts_with(masked))
    };
    profile
        .masked
        .iter()
        .filter(|masked| is_there(masked).unwrap_or(true) && reachable(masked))
        .cloned()
        .collect()
}
