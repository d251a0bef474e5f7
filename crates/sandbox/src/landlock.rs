//! File rules by Landlock: what a command may read, write and execute, TCP, abstract sockets and signals.
//!
//! A ruleset is built once per profile and list of programs by the keeper, which may look at every path; a
//! child only restricts itself with the finished descriptor. Rules hold on files, not on names, so they
//! survive renames, and paths that do not exist when the ruleset is built stay closed.
//!
//! A rule opens everything beneath a directory. Where a place that must not be seen lies in one that everybody may
//! read and no mount covers it, the entries around it are opened one by one.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::launch::{ExecList, ExecRights};
use crate::opened::{self, Opened};
use crate::profile::{Network, Profile};
use crate::sys::check;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

const READ: u64 = READ_FILE | READ_DIR;
/// Rights that make sense on a file; the kernel refuses others there.
const ON_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const TCP_BIND_AND_CONNECT: u64 = 0b11;
const SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS: u64 = 0b11;
const SCOPE_SIGNALS: u64 = 0b10;
/// The version that knows scopes.
const ABI_OF_SCOPES: u32 = 6;

/// Programs, libraries and their data: what every command may read.
pub const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
];
/// The same without directories of programs. What else lies in `/usr` and `/usr/local` is added by looking.
const SYSTEM_WITHOUT_PROGRAMS: &[&str] = &["/lib", "/lib32", "/lib64", "/libx32", "/etc"];
/// People work in `src`: what one call writes there another must not have the loader run.
const PROGRAM_DIRECTORIES: &[&str] = &["bin", "sbin", "libexec", "games", "local", "src"];
/// Kernel tables that libraries read at start (CPU topology, own maps). What tells of other processes' memory, files and
/// variables in `/proc` stays closed: Landlock refuses it to a confined process.
const KERNEL: &[&str] = &["/proc", "/sys"];
/// Devices without memory of who wrote to them. No terminals: they could belong to the operator.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];
/// Where `/etc/resolv.conf` points to on systems with a resolver service.
const RESOLVER: &[&str] = &[
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
];
/// Shared memory and semaphores; a private, emptied file system in a mount namespace.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// The highest Landlock version this crate knows the rights of.
const ABI_KNOWN: u32 = 7;

/// The kernel's Landlock version, 0 when there is none.
pub fn abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel takes no attributes and returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Whether the private shared memory directory is there to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedMemory {
    Private,
    Host,
}

/// Whether mounts cover what must not be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Masks {
    Mounted,
    Missing,
}

impl Masks {
    /// The places that a ruleset has to leave out.
    pub(crate) fn left_out(self, profile: &Profile) -> &[PathBuf] {
        match self {
            Self::Mounted => &[],
            Self::Missing => &profile.masked,
        }
    }
}

/// A finished ruleset for one profile and one list of programs.
pub(crate) fn ruleset(
    profile: &Profile,
    opened: &Opened,
    exec: &ExecRights,
    shared_memory: SharedMemory,
    masks: Masks,
) -> io::Result<OwnedFd> {
    let rules = Rules::create(profile.network, abi().min(ABI_KNOWN))?;
    let left_out = [masks.left_out(profile), &profile.closed].concat();
    let left_out = left_out.as_slice();
    let execute = match exec {
        ExecRights::Any => EXECUTE,
        ExecRights::Only(_) => 0,
    };
    match exec {
        ExecRights::Any => rules.allow_all_but(SYSTEM.iter().map(Path::new), READ | EXECUTE, left_out)?,
        ExecRights::Only(list) => {
            rules.allow_all_but(SYSTEM_WITHOUT_PROGRAMS.iter().map(Path::new), READ, left_out)?;
            rules.allow_all_but(beside_programs().iter().map(PathBuf::as_path), READ, left_out)?;
            // Names in program directories are no secret and shells look for them.
            rules.allow(Path::new("/usr"), READ_DIR)?;
            rules.allow_listed(list, profile, opened)?;
        }
    }
    rules.allow_all(KERNEL.iter().map(Path::new), READ)?;
    rules.allow(Path::new("/dev"), READ_DIR)?;
    rules.allow_all(DEVICES.iter().map(Path::new), READ_FILE | WRITE_FILE | IOCTL_DEV)?;
    if profile.network == Network::Allow {
        rules.allow_all(RESOLVER.iter().map(Path::new), READ)?;
    }
    if shared_memory == SharedMemory::Private {
        rules.allow(Path::new(SHARED_MEMORY), rules.handled & !EXECUTE)?;
    }
    for directory in profile
        .roots
        .iter()
        .chain(&profile.read_paths)
        .filter_map(|path| opened.get(path))
    {
        rules.allow_opened(directory, READ | execute)?;
    }
    for directory in profile.writable().filter_map(|path| opened.get(path)) {
        rules.allow_opened(directory, (rules.handled & !EXECUTE & !IOCTL_DEV) | execute)?;
    }
    Ok(rules.fd)
}

/// Everything but these paths. A directory on the way to one of them is opened entry by entry, so it cannot
/// be listed, and what is made in it later stays closed.
pub(crate) fn all_but(hidden: &[PathBuf]) -> io::Result<OwnedFd> {
    let rules = Rules::create(Network::Allow, abi().min(ABI_KNOWN))?;
    for path in around(Path::new("/"), hidden)? {
        rules.allow(&path, rules.handled)?;
    }
    Ok(rules.fd)
}

/// The path itself, or where something hidden lies in it, everything that lies around that.
fn around(path: &Path, hidden: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        if hidden.iter().any(|hidden| path.starts_with(hidden)) {
            continue;
        }
        if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            found.push(path);
            continue;
        }
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            // What nobody can look into stays closed.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            Err(error) => return Err(error),
        };
        // A link is no place: what it leads to is opened where it is.
        let places = entries.flatten().filter(|entry| !entry.path().is_symlink());
        open.extend(places.map(|entry| entry.path()));
    }
    Ok(found)
}

/// Nothing but signals: they reach only what is restricted by the same rules. No file is handled, so mounts can still be
/// made. None where the kernel does not know how.
pub(crate) fn own_signals_only() -> io::Result<Option<OwnedFd>> {
    if abi() < ABI_OF_SCOPES {
        return Ok(None);
    }
    let attributes = Attributes {
        fs: 0,
        net: 0,
        scoped: SCOPE_SIGNALS,
    };
    attributes.create(size_of::<Attributes>()).map(Some)
}

/// Restricts this process, which must have one thread and no new privileges.
pub(crate) fn restrict_self(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) }).map(drop)
}

/// Everything in `/usr` and `/usr/local` that is not a directory of programs.
fn beside_programs() -> Vec<PathBuf> {
    let entries = |directory| fs::read_dir(directory).into_iter().flatten().flatten();
    entries("/usr")
        .chain(entries("/usr/local"))
        .filter(|entry| !PROGRAM_DIRECTORIES.iter().any(|name| entry.file_name() == *name))
        .map(|entry| entry.path())
        .collect()
}

/// What a ruleset handles, as the kernel takes it.
#[repr(C)]
struct Attributes {
    fs: u64,
    net: u64,
    scoped: u64,
}

impl Attributes {
    /// Makes a ruleset of the first `size` bytes.
    fn create(&self, size: usize) -> io::Result<OwnedFd> {
        let size = size.min(size_of::<Self>());
        // SAFETY: the struct outlives the call and is at least `size` bytes long.
        let fd = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const *self, size, 0) })?;
        // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

struct Rules {
    fd: OwnedFd,
    handled: u64,
}

impl Rules {
    /// An empty ruleset: everything this kernel can handle is refused.
    fn create(network: Network, abi: u32) -> io::Result<Rules> {
        if abi == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let handled = handled_fs(abi);
        let attributes = Attributes {
            fs: handled,
            net: if network == Network::Deny {
                TCP_BIND_AND_CONNECT
            } else {
                0
            },
            scoped: SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS,
        };
        // Older kernels know shorter structs and refuse longer ones with content.
        let size = match abi {
            0..=3 => 8,
            4..ABI_OF_SCOPES => 16,
            _ => size_of::<Attributes>(),
        };
        let fd = attributes.create(size)?;
        Ok(Rules { fd, handled })
    }

    fn allow_all<'a>(&self, paths: impl Iterator<Item = &'a Path>, rights: u64) -> io::Result<()> {
        paths.into_iter().try_for_each(|path| self.allow(path, rights))
    }

    /// Programs that may be executed. Where commands can write, one is opened by a path without links: what a link leads
    /// to could be anything.
    fn allow_listed(&self, list: &ExecList, profile: &Profile, opened: &Opened) -> io::Result<()> {
        for path in list.paths() {
            if let Some(directory) = opened.get(path) {
                self.allow_opened(directory, READ | EXECUTE)?;
            } else if profile.private_and_roots().any(|place| path.starts_with(place)) {
                if let Some(program) = opened::open(path).ok().flatten() {
                    self.allow_opened(&program, READ | EXECUTE)?;
                }
            } else {
                self.allow(path, READ | EXECUTE)?;
            }
        }
        Ok(())
    }

    /// The same for what lies around hidden places. A directory may be reached by a link, as `/lib` often is.
    fn allow_all_but<'a>(
        &self,
        paths: impl Iterator<Item = &'a Path>,
        rights: u64,
        hidden: &[PathBuf],
    ) -> io::Result<()> {
        if hidden.is_empty() {
            return self.allow_all(paths, rights);
        }
        for path in paths.filter_map(|path| fs::canonicalize(path).ok()) {
            self.allow_all(around(&path, hidden)?.iter().map(PathBuf::as_path), rights)?;
        }
        Ok(())
    }

    /// Adds rights for a file or everything beneath a directory. A missing path gets none.
    fn allow(&self, path: &Path, rights: u64) -> io::Result<()> {
        let file = match fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path) {
            Ok(file) => file,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES)) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.allow_opened(&file, rights)
    }

    /// The same for what was opened.
    fn allow_opened(&self, file: &File, rights: u64) -> io::Result<()> {
        #[repr(C, packed)]
        struct PathBeneath {
            allowed: u64,
            parent: RawFd,
        }
        const PATH_BENEATH: u32 = 1;
        let mut allowed = rights & self.handled;
        if !file.metadata()?.is_dir() {
            allowed &= ON_FILES;
        }
        if allowed == 0 {
            return Ok(());
        }
        let rule = PathBeneath {
            allowed,
            parent: file.as_raw_fd(),
        };
        // SAFETY: the rule is a struct landlock_path_beneath_attr and both descriptors are open.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.fd.as_raw_fd(),
                PATH_BENEATH,
                &raw const rule,
                0,
            )
        })
        .map(drop)
    }
}

/// Every file right that a kernel of this version knows.
fn handled_fs(abi: u32) -> u64 {
    let count = match abi {
        0 => 0,
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    (1 << count) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_adds_its_rights() {
        assert_eq!(handled_fs(0), 0);
        assert_eq!(handled_fs(1) & TRUNCATE, 0);
        assert_eq!(handled_fs(3) & TRUNCATE, TRUNCATE);
        assert_eq!(handled_fs(4) & IOCTL_DEV, 0);
        assert_eq!(handled_fs(7), 0xffff);
    }
}
