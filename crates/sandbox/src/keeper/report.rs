//! What a new keeper says about itself.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Layer;

/// The layers of one keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperReport {
    /// In force for every launch, in the order they are printed.
    pub layers: Vec<Layer>,
    /// Asked for or usual, but not in force, and why.
    pub missing: Vec<(Layer, String)>,
    /// Paths that should be covered and are not: commands can read them.
    pub exposed: Vec<PathBuf>,
}

/// Why no keeper was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum SetupError {
    #[error("{act} failed: {}", io::Error::from_raw_os_error(*errno))]
    Act { act: Act, errno: i32 },
    #[error("layer `{layer}` is required: {reason}")]
    Required { layer: Layer, reason: String },
    /// Nothing that the machine lacks.
    #[error("layer `{layer}` is required, and other settings leave it out of this call")]
    LeftOut { layer: Layer },
    #[error("only root can run commands as user {uid}")]
    OtherUser { uid: u32 },
    #[error("a directory that commands are given was moved or replaced")]
    Moved,
    #[error("the keeper ended while it was made")]
    Died,
}

/// The acts of making a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Act {
    #[error("making a process")]
    Fork,
    #[error("mapping the user")]
    MapUser,
    #[error("entering the cgroup")]
    EnterCgroup,
    #[error("making mounts private")]
    PrivateMounts,
    #[error("mounting /proc")]
    MountProc,
    #[error("covering and protecting paths")]
    Cover,
    #[error("becoming the reaper")]
    Reaper,
    #[error("setting resource limits")]
    Rlimits,
    #[error("changing groups")]
    Groups,
    #[error("emptying the capability bounding set")]
    BoundingSet,
    #[error("closing itself to other processes")]
    Undumpable,
    #[error("giving up new privileges")]
    NoNewPrivs,
    #[error("installing the system call filter")]
    Seccomp,
    #[error("making a stack")]
    Stack,
}

impl SetupError {
    /// True when a keeper without namespaces could still be made.
    pub(crate) fn blames_namespaces(&self) -> bool {
        match self {
            SetupError::Act { act, .. } => match act {
                Act::Fork | Act::MapUser | Act::PrivateMounts | Act::MountProc => true,
                // Covering fails by what a workspace contains; a command must not weaken the next one that way.
                Act::Cover
                | Act::EnterCgroup
                | Act::Reaper
                | Act::Rlimits
                | Act::Groups
                | Act::BoundingSet
                | Act::Undumpable
                | Act::NoNewPrivs
                | Act::Seccomp
                | Act::Stack => false,
            },
            SetupError::Required { .. }
            | SetupError::LeftOut { .. }
            | SetupError::OtherUser { .. }
            | SetupError::Moved
            | SetupError::Died => false,
        }
    }
}
