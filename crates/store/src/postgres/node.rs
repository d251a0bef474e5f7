//! Who this is among the nodes: a name kept in the state directory, and the process as others see it.
//!
//! A node's name is the name of its chain. A process id means something on its node only, and elsewhere a process is
//! judged by its last sign of life, which it leaves in the database by the database's own clock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_gateway::clock::Timestamp;

use super::link::Link;
use super::trouble::Trouble;
use crate::process::Process;
use crate::{hex, once, random};

pub(super) const FILE_NAME: &str = "record-node";

/// How often a process says that it lives.
pub(super) const SIGN_EVERY: Duration = Duration::from_secs(2);
/// How long a process of another node counts as alive without a sign.
pub(super) const SILENT_FOR: &str = "20 seconds";

/// A node, with this process on it.
pub(super) struct Node {
    name: String,
    process: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the node's name cannot be kept in `{path}`")]
pub struct NodeError {
    path: PathBuf,
    source: io::Error,
}

impl Node {
    pub(super) fn load_or_create(directory: &Path) -> Result<Self, NodeError> {
        let path = directory.join(FILE_NAME);
        let named = name(&path).map_err(|source| NodeError { path, source })?;
        let process = format!("{named}/{}", Process::current().as_str());
        Ok(Self { name: named, process })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn process(&self) -> &str {
        &self.process
    }

    /// Whether a process is one of this node.
    pub(super) fn is_of(&self, process: &str) -> bool {
        self.own(process).is_some()
    }

    /// A process of this node, as the system knows it.
    fn own<'p>(&self, process: &'p str) -> Option<&'p str> {
        process.strip_prefix(&self.name)?.strip_prefix('/')
    }

    /// Whether a process was one of this node and is gone.
    pub(super) fn has_lost(&self, process: &str) -> bool {
        self.own(process).is_some_and(|own| !Process::is_alive(own))
    }

    /// Says that this process lives.
    pub(super) fn sign(&self, link: &Link) -> Result<(), Trouble> {
        link.execute(
            "INSERT INTO processes (process, node, seen_at) VALUES ($1, $2, clock_timestamp())
             ON CONFLICT (process) DO UPDATE SET seen_at = clock_timestamp()",
            &[&self.process, &self.name],
        )
        .map(drop)
    }

    /// The last thing a process says.
    pub(super) fn sign_off(&self, link: &Link) -> Result<(), Trouble> {
        link.execute("DELETE FROM processes WHERE process = $1", &[&self.process])
            .map(drop)
    }

    /// Forgets processes that are long gone, and agents of nodes that none is left of: a node that comes back sooner
    /// finds in these what it left running.
    pub(super) fn forget_gone(link: &Link) -> Result<(), Trouble> {
        link.batch(
            "DELETE FROM processes WHERE seen_at < clock_timestamp() - interval '1 day';
             DELETE FROM agent_processes WHERE NOT EXISTS (SELECT 1 FROM processes
                     WHERE processes.node = agent_processes.node)
                 AND created_at_ms < extract(epoch FROM clock_timestamp() - interval '1 day') * 1000",
        )
    }

    /// Whether a process lives: on this node the system tells, elsewhere its signs of life do.
    pub(super) fn is_alive(&self, link: &Link, process: &str) -> Result<bool, Trouble> {
        if process == self.process {
            return Ok(true);
        }
        if let Some(own) = self.own(process) {
            return Ok(Process::is_alive(own));
        }
        link.exists(
            &format!(
                "SELECT 1 FROM processes WHERE process = $1 AND seen_at > clock_timestamp() - interval '{SILENT_FOR}'"
            ),
            &[&process],
        )
    }

    /// Whether whoever held a job then is gone, or hangs. When a process of another node was seen is told by that node's
    /// clock, which says nothing here: it counts as alive for as long as it signs by the database's.
    pub(super) fn is_lost(
        &self,
        link: &Link,
        process: &str,
        seen_at: Timestamp,
        silent_since: Timestamp,
    ) -> Result<bool, Trouble> {
        let hangs = self.is_of(process) && seen_at < silent_since;
        Ok(hangs || !self.is_alive(link, process)?)
    }
}

/// The name of a state directory's node, if it has one.
pub(super) fn named(directory: &Path) -> Result<Option<String>, NodeError> {
    let path = directory.join(FILE_NAME);
    read(&path).map_err(|source| NodeError { path, source })
}

/// Gives the node of a state directory this name, unless it has one.
pub(super) fn name_it(directory: &Path, name: &str) -> Result<(), NodeError> {
    let path = directory.join(FILE_NAME);
    once::write(&path, name).map_err(|source| NodeError { path, source })
}

fn name(path: &Path) -> io::Result<String> {
    if let Some(name) = read(path)? {
        return Ok(name);
    }
    once::write(path, &format!("node-{}", &hex::encode(&random::secret()?)[..16]))?;
    // Two processes may start at once: the file that stands now is the one to use.
    fs::read_to_string(path).map(|text| text.trim().to_owned())
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => Ok(Some(text.trim().to_owned())),
        Ok(_) => Err(io::Error::other("the file is empty")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
