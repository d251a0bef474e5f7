//! What a command may touch. A profile is complete before a keeper is made for it: nothing in here is
//! looked up later, and nothing has a default that someone might forget to think about.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Layer;
use crate::directory::Seen;
use crate::landlock::SHARED_MEMORY;

/// How much of the file system a command may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Only the private home and temporary directory are writable.
    ReadOnly,
    /// The roots are writable too.
    WorkspaceWrite,
    /// Files, network and system calls are not confined. Limits, user, no-new-privs (without which the user
    /// would be no promise) and tree ending stay.
    DangerFullAccess,
}

/// Whether a command may use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Network {
    /// No socket of any family can be made.
    Deny,
    /// Internet sockets; local sockets stay refused.
    Allow,
}

/// The user a command runs as.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Identity {
    /// Whether becoming this user changes anything: root it must not be, and -1 leaves everything as it is.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        const UNCHANGED: u32 = u32::MAX;
        if self.uid == 0 {
            return Err(ProfileError::RootIdentity);
        }
        let numbers = [self.uid, self.gid];
        match numbers.iter().chain(&self.groups).find(|number| **number == UNCHANGED) {
            Some(number) => Err(ProfileError::NobodysNumber(*number)),
            None => Ok(()),
        }
    }
}

/// Bounds on the whole tree. `None` is no bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    /// Thousandths of one CPU.
    pub cpu_millicores: Option<u32>,
    pub pids: Option<u32>,
    /// Size of the largest file one process may write.
    pub file_bytes: Option<u64>,
    /// Open descriptors of one process.
    pub open_files: u64,
}

/// What is mounted so that nothing in it can be executed or mapped as a program, whether it is writable or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NoExec {
    Nothing,
    /// Home and temporary directory.
    Private,
    /// The roots too.
    Everything,
}

/// Everything a keeper is made from. All paths are absolute and canonical.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Profile {
    pub mode: Mode,
    pub network: Network,
    /// `None` keeps the server's user.
    pub identity: Option<Identity>,
    /// Writable in [`Mode::WorkspaceWrite`], readable in [`Mode::ReadOnly`].
    pub roots: Vec<PathBuf>,
    /// Readable besides the roots and the system directories.
    pub read_paths: Vec<PathBuf>,
    /// Covered by an empty read-only directory or file, also inside roots.
    pub masked: Vec<PathBuf>,
    /// Not read among the directories of the system, in which they lie: homes. What of them is opened by itself is.
    pub closed: Vec<PathBuf>,
    /// Made read-only where they exist inside a root.
    pub protected: Vec<PathBuf>,
    /// Not there yet and to stay so: a command that makes one is ended, and what it made is removed. A mount cannot
    /// protect what does not exist.
    pub barred: Vec<PathBuf>,
    /// Launches come with a list of programs; programs made at run time in memory are refused.
    pub exec_list: bool,
    pub noexec: NoExec,
    /// Private and writable.
    pub home: Option<PathBuf>,
    /// Private and writable.
    pub tmp: Option<PathBuf>,
    /// The directories among the roots, home and temporary directory as the server saw them. Another one in such a place
    /// is not opened to commands.
    pub seen: Vec<Seen>,
    pub limits: Limits,
    /// Without these no keeper is made.
    pub require: Vec<Layer>,
}

/// Why a profile makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ProfileError {
    #[error("a command is never given to root by name; leave the user out to keep the server's")]
    RootIdentity,
    #[error("{0} is no number of a user or group: the kernel takes it for the one there is")]
    NobodysNumber(u32),
    #[error("path `{0}` is not absolute")]
    RelativePath(PathBuf),
    #[error("`{0}` cannot be opened to the sandbox: it is or contains a whole system")]
    RootTooWide(PathBuf),
    #[error("`{0}` cannot be opened to the sandbox: what lies there are no files but devices and the kernel's own")]
    RootOfKernel(PathBuf),
}

impl Profile {
    /// Paths that commands may write, in this mode.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &Path> {
        let roots: &[PathBuf] = match self.mode {
            Mode::ReadOnly => &[],
            Mode::WorkspaceWrite | Mode::DangerFullAccess => &self.roots,
        };
        roots.iter().chain(&self.home).chain(&self.tmp).map(PathBuf::as_path)
    }

    /// The roots, the home and the temporary directory, in every mode.
    pub(crate) fn private_and_roots(&self) -> impl Iterator<Item = &Path> {
        let paths = self.roots.iter().chain(&self.home).chain(&self.tmp);
        paths.map(PathBuf::as_path)
    }

    /// Whether what `require` says of a layer counts for this profile. Full access was asked for by name and is not a
    /// lack of anything; where nothing is protected, nothing goes unprotected.
    pub(crate) fn heeds(&self, layer: Layer) -> bool {
        match layer {
            Layer::Session
            | Layer::Rlimits
            | Layer::Cgroup
            | Layer::Uid
            | Layer::NoNewPrivs
            | Layer::Pidns
            | Layer::Guardian => true,
            Layer::Landlock | Layer::ExecList | Layer::Seccomp | Layer::Netns | Layer::Mountns => self.confines(),
            Layer::ProtectedPaths => self.confines() && !self.protected.is_empty(),
        }
    }

    /// True where files and system calls are confined.
    pub(crate) fn confines(&self) -> bool {
        match self.mode {
            Mode::ReadOnly | Mode::WorkspaceWrite => true,
            Mode::DangerFullAccess => false,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        if let Some(identity) = &self.identity {
            identity.check()?;
        }
        let paths = [
            &self.roots,
            &self.read_paths,
            &self.masked,
            &self.closed,
            &self.protected,
            &self.barred,
        ];
        for path in paths.into_iter().flatten().chain(&self.home).chain(&self.tmp) {
            if !path.is_absolute() {
                return Err(ProfileError::RelativePath(path.clone()));
            }
        }
        if !self.confines() {
            return Ok(());
        }
        // A root of `/` would hand out /proc and /dev for writing, which no other layer could take back.
        if let Some(wide) = self.writable().find(|path| *path == Path::new("/")) {
            return Err(ProfileError::RootTooWide(wide.to_owned()));
        }
        // One inside of them would hand out the user's terminals, groups that were handed to them, settings of processes.
        match self.roots.iter().find(|root| is_kernels_own(root)) {
            Some(root) => Err(ProfileError::RootOfKernel(root.clone())),
            None => Ok(()),
        }
    }
}

/// Shared memory lies among the devices and holds files like any other.
fn is_kernels_own(path: &Path) -> bool {
    ["/proc", "/dev", "/sys"]
        .iter()
        .any(|kernels| path.starts_with(kernels))
        && !path.starts_with(SHARED_MEMORY)
}
