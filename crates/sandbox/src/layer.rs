//! The closed list of confinement layers, under the names that results, audit lines and `doctor` print.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One kind of confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Layer {
    /// A session of its own, so no controlling terminal.
    Session,
    /// Limits on one process: CPU seconds, files, cores.
    Rlimits,
    /// Limits on the whole tree: memory, processes, CPU share.
    Cgroup,
    /// Another user than the server's, without groups or capabilities of it.
    Uid,
    /// Set-uid programs give nothing.
    NoNewPrivs,
    /// Files, TCP, abstract sockets and signals, by the kernel's own path rules.
    Landlock,
    /// Only listed programs can be executed.
    ExecList,
    /// Dangerous system calls are refused.
    Seccomp,
    /// A network namespace with nothing in it.
    Netns,
    /// A mount namespace in which secrets are covered.
    Mountns,
    /// Files inside the workspace that steer other tools are read-only.
    ProtectedPaths,
    /// A pid namespace: the tree ends with its first process.
    Pidns,
    /// A process that ends the tree when the server goes away.
    Guardian,
}

impl Layer {
    /// Every layer, in the order they are printed.
    pub const ALL: [Layer; 13] = [
        Layer::Session,
        Layer::Rlimits,
        Layer::Cgroup,
        Layer::Uid,
        Layer::NoNewPrivs,
        Layer::Landlock,
        Layer::ExecList,
        Layer::Seccomp,
        Layer::Netns,
        Layer::Mountns,
        Layer::ProtectedPaths,
        Layer::Pidns,
        Layer::Guardian,
    ];

    /// The printed name.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Session => "session",
            Layer::Rlimits => "rlimits",
            Layer::Cgroup => "cgroup",
            Layer::Uid => "uid",
            Layer::NoNewPrivs => "no-new-privs",
            Layer::Landlock => "landlock",
            Layer::ExecList => "exec-list",
            Layer::Seccomp => "seccomp",
            Layer::Netns => "netns",
            Layer::Mountns => "mountns",
            Layer::ProtectedPaths => "protected-paths",
            Layer::Pidns => "pidns",
            Layer::Guardian => "guardian",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a confinement layer")]
pub struct UnknownLayer(pub String);

impl FromStr for Layer {
    type Err = UnknownLayer;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Layer::ALL
            .into_iter()
            .find(|layer| layer.name() == word)
            .ok_or_else(|| UnknownLayer(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_its_layer() {
        for layer in Layer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
        }
        assert_eq!("chroot".parse::<Layer>(), Err(UnknownLayer("chroot".into())));
    }
}
