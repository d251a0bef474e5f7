//! What the server and a keeper say to each other about one command. Only words here; `wire` carries them.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::program::Identity as FileIdentity;

/// One command. The descriptors that travel with it are, in this order: working directory, stdin, stdout,
/// stderr, and then the program (for [`Body::Exec`]) or the programs (for [`Body::Run`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The first element is the program's `argv[0]`. Unused by [`Body::Run`].
    pub argv: Vec<CString>,
    /// `NAME=value`, the whole environment.
    pub env: Vec<CString>,
    /// Canonical path of the working directory's descriptor. Inside a mount namespace the directory is
    /// opened again by this path and must be the same one: the server's descriptor would lead past the mounts.
    pub cwd: CString,
    pub exec: ExecRights,
    pub cpu_seconds: Option<u64>,
    /// When the keeper ends the tree by itself. The server says so before, unless it is held up.
    pub ends_after_ms: Option<u64>,
    /// Canonical paths of the programs' descriptors, which are opened again as `cwd` is; empty for those that lie where no command writes and
    /// nothing is covered.
    pub programs: Vec<CString>,
    pub body: Body,
}

/// What runs behind the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// The program descriptor is executed; for a `#!` script it is the interpreter.
    Exec { unchanged: Unchanged },
    /// The function registered with the zygote runs with this payload.
    Run { payload: Vec<u8> },
}

/// What must still be as it was when it was looked at, just before a program is executed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unchanged {
    /// The scripts on the way to the executed file, which interpreters find by their paths.
    pub scripts: Vec<ScriptCheck>,
    /// The executed file, where others may write it: a descriptor leads to the same file whatever is in it by then.
    pub executable: Option<FileIdentity>,
}

/// A script's path and the file that was found there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptCheck {
    pub path: CString,
    pub identity: FileIdentity,
}

/// Which files a command may execute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExecRights {
    /// Everything readable.
    Any,
    /// Only what is listed; directories of programs are not even readable.
    Only(ExecList),
}

/// Programs, their loaders and interpreters, and directories whose contents may be executed. Kept as one
/// block of bytes because it travels with every launch and keepers compare it to what they have cached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExecList {
    // INVARIANT: absolute paths, sorted, without duplicates, each followed by a NUL.
    joined: Vec<u8>,
}

impl ExecList {
    /// The list of these paths. Relative ones are left out: they would mean something else to a keeper.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut paths: Vec<PathBuf> = paths.into_iter().filter(|path| path.is_absolute()).collect();
        paths.sort();
        paths.dedup();
        let mut joined = Vec::new();
        for path in paths {
            joined.extend_from_slice(path.as_os_str().as_bytes());
            joined.push(0);
        }
        ExecList { joined }
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.joined
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(|path| Path::new(OsStr::from_bytes(path)))
    }
}

/// A keeper's answer to a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The command ran and its whole tree is gone.
    Exited(Ending),
    /// The command did not run: this act failed.
    LaunchFailed { step: Step, errno: i32 },
    /// The gate was closed by the server; the command did not run.
    Aborted,
    /// A covered or protected path changed under the keeper, which can no longer promise what its layers
    /// say. The command did not run; ask for another keeper.
    Stale,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub outcome: Outcome,
    pub usage: Usage,
    pub hits: Hits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Code(i32),
    Signal(i32),
}

/// What the main process and the children it waited for used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    pub memory_peak_bytes: u64,
}

/// Limits that a failed command ran into. All false when it succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Hits {
    pub memory: bool,
    pub pids: bool,
    pub cpu: bool,
    /// It made what the profile bars, and was ended for it.
    pub barred: bool,
    /// It went on beyond its time, and was ended for it.
    pub time: bool,
}

/// The acts of a launch, in order; a failure names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[repr(u8)]
pub enum Step {
    #[error("reading the launch")]
    Receive,
    #[error("preparing the file rules")]
    Rules,
    #[error("starting a process")]
    Fork,
    #[error("making a session")]
    Session,
    #[error("connecting the standard streams")]
    Streams,
    #[error("setting resource limits")]
    Rlimits,
    #[error("changing the user")]
    User,
    #[error("dropping capabilities")]
    Capabilities,
    #[error("entering the working directory")]
    Directory,
    #[error("restricting itself by landlock")]
    Landlock,
    #[error("closing other descriptors")]
    Close,
    #[error("checking that the program is still the same")]
    Unchanged,
    #[error("executing the program")]
    Exec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_lists_with_the_same_programs_are_equal() {
        let one = ExecList::new(["/usr/bin/ls".into(), "/usr/bin/cat".into(), "relative".into()]);
        let two = ExecList::new(["/usr/bin/cat".into(), "/usr/bin/ls".into(), "/usr/bin/ls".into()]);
        assert_eq!(one, two);
        assert_eq!(
            one.paths().collect::<Vec<_>>(),
            [Path::new("/usr/bin/cat"), Path::new("/usr/bin/ls")]
        );
    }
}
