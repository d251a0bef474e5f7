//! Limits on a whole tree: memory, processes, CPU share. Version 2 where its controllers are to be had,
//! else version 1, else nothing, and then the reason is kept for whoever asks.
//!
//! A keeper sits in its own leaf and its commands inherit it: moving a process into a cgroup per call would
//! cost a grace period of the kernel each time. Where the hierarchy is mounted is a parameter, because most
//! test machines have only one of the two versions.

mod leaf;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use leaf::{Counters, Leaf};

use crate::profile::Limits;

/// Where cgroups are mounted nearly everywhere.
pub const MOUNT: &str = "/sys/fs/cgroup";

const PREFIX: &str = "countersign-";
/// The end of the name of the leaf that a server steps aside into.
const ASIDE: &str = "-server";

/// The place under which leaves are made.
#[derive(Debug, Clone)]
pub struct Cgroups {
    hierarchy: Hierarchy,
}

#[derive(Debug, Clone)]
pub(crate) enum Hierarchy {
    V2 {
        base: PathBuf,
    },
    /// One directory per controller; some may be missing.
    V1 {
        memory: Option<PathBuf>,
        pids: Option<PathBuf>,
        cpu: Option<PathBuf>,
    },
    Missing,
}

/// Why there is no leaf.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no cgroup hierarchy with memory and pids controllers is mounted")]
    Missing,
    #[error("cannot create cgroup `{}`", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("cannot set `{}`", path.display())]
    Limit { path: PathBuf, source: io::Error },
    #[error("cannot enter cgroup `{}`", path.display())]
    Enter { path: PathBuf, source: io::Error },
    #[error("the {controller} controller is not available")]
    Controller { controller: &'static str },
}

impl CgroupError {
    /// The kernel's error number behind it.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            CgroupError::Create { source, .. }
            | CgroupError::Limit { source, .. }
            | CgroupError::Enter { source, .. } => crate::sys::errno_of(source),
            CgroupError::Missing | CgroupError::Controller { .. } => libc::ENOENT,
        }
    }
}

impl Cgroups {
    /// Finds the hierarchy mounted at `mount`, given the contents of `/proc/self/cgroup`.
    pub fn discover(mount: &Path, own: &str) -> Cgroups {
        let place = |root: PathBuf, path: &str| {
            // Inside a container the path may be one of the host's; the mount then is our own cgroup.
            let nested = root.join(path.trim_start_matches('/'));
            if nested.is_dir() && !path.contains("..") {
                nested
            } else {
                root
            }
        };
        let lines = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?))
        });
        let (mut v2, mut memory, mut pids, mut cpu) = (None, None, None, None);
        for (controllers, path) in lines {
            if controllers.is_empty() {
                let root = if mount.join("unified").is_dir() {
                    mount.join("unified")
                } else {
                    mount.to_owned()
                };
                v2 = Some(outside_of_servers(place(root, path)));
            }
            for controller in controllers.split(',') {
                let found = Some(mount.join(controller))
                    .filter(|root| root.is_dir())
                    .map(|root| place(root, path));
                match controller {
                    "memory" => memory = found,
                    "pids" => pids = found,
                    "cpu" => cpu = found,
                    _ => {}
                }
            }
        }
        let usable = v2.filter(|base| {
            let offered = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
            ["memory", "pids"]
                .iter()
                .all(|wanted| offered.split_whitespace().any(|controller| controller == *wanted))
        });
        let hierarchy = match usable {
            Some(base) => Hierarchy::V2 { base },
            None if memory.is_some() || pids.is_some() => Hierarchy::V1 { memory, pids, cpu },
            None => Hierarchy::Missing,
        };
        Cgroups { hierarchy }
    }

    /// The hierarchy of this process.
    pub fn of_this_process() -> Cgroups {
        Cgroups::discover(
            Path::new(MOUNT),
            &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
        )
    }

    /// A short name for messages.
    pub fn version(&self) -> &'static str {
        match self.hierarchy {
            Hierarchy::V2 { .. } => "v2",
            Hierarchy::V1 { .. } => "v1",
            Hierarchy::Missing => "none",
        }
    }

    /// Makes a leaf for a keeper of this server, with its limits set, empty. The name must be new among the
    /// server's leaves.
    pub fn create(&self, server: i32, name: &str, limits: &Limits) -> Result<Leaf, CgroupError> {
        if let Hierarchy::V2 { base } = &self.hierarchy {
            open_controllers(base, server);
        }
        Leaf::create(&self.hierarchy, &format!("{PREFIX}{server}-{name}"), limits)
    }

    /// Directories of the leaves with this name, of whichever server.
    pub(crate) fn leaves_named(&self, name: &str) -> Vec<PathBuf> {
        self.leaves(|found| found == name)
    }

    /// The same for the names that somebody wants.
    pub(crate) fn leaves(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let is_named = |entry: &fs::DirEntry| {
            let found = entry.file_name();
            let rest = found
                .to_str()
                .and_then(|found| found.strip_prefix(PREFIX)?.split_once('-'));
            rest.is_some_and(|(_, rest)| is_wanted(rest))
        };
        self.entries().filter(is_named).map(|entry| entry.path()).collect()
    }

    /// What there is beside and among the leaves, in every hierarchy.
    fn entries(&self) -> impl Iterator<Item = fs::DirEntry> {
        let bases: Vec<&PathBuf> = match &self.hierarchy {
            Hierarchy::V2 { base } => vec![base],
            Hierarchy::V1 { memory, pids, cpu } => memory.iter().chain(pids).chain(cpu).collect(),
            Hierarchy::Missing => Vec::new(),
        };
        bases
            .into_iter()
            .flat_map(|base| fs::read_dir(base).into_iter().flatten().flatten())
    }

    /// Removes leaves of servers that no longer run.
    pub fn remove_stale(&self, is_alive: impl Fn(i32) -> bool) {
        for entry in self.entries() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
            if owner.is_some_and(|server| !is_alive(server)) {
                // A leaf with processes in it cannot be removed, which is as it should be.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// Where the leaves are made beside which a server stepped aside; for anybody else the path itself.
fn outside_of_servers(mut base: PathBuf) -> PathBuf {
    let is_servers = |base: &PathBuf| {
        let name = base.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(ASIDE))
    };
    while is_servers(&base) && base.pop() {}
    base
}

/// Hands the controllers down to leaves. A cgroup that has processes of its own may not do so; where the
/// only ones are the server and its zygote, they step aside into a leaf first. When that fails too, setting
/// a limit will say so.
fn open_controllers(base: &Path, server: i32) {
    let wanted = ["+memory", "+pids", "+cpu"];
    let hand_down = || {
        let control = base.join("cgroup.subtree_control");
        let given = fs::read_to_string(&control).unwrap_or_default();
        wanted
            .iter()
            .filter(|word| !given.split_whitespace().any(|controller| controller == &word[1..]))
            .try_for_each(|word| fs::write(&control, word))
    };
    if hand_down().is_err() {
        let aside = base.join(format!("{PREFIX}{server}{ASIDE}"));
        // It is there when only one of the two has gone so far.
        let made = fs::create_dir(&aside);
        if made.is_ok() || aside.is_dir() {
            for pid in [server, std::process::id() as i32] {
                let _ = fs::write(aside.join("cgroup.procs"), pid.to_string());
            }
        }
        let _ = hand_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn limits() -> Limits {
        Limits {
            memory_bytes: Some(64 << 20),
            cpu_millicores: Some(1500),
            pids: Some(32),
            file_bytes: None,
            open_files: 64,
        }
    }

    /// A directory that looks like a version 2 mount.
    fn fake_v2(own: &str) -> (tempfile::TempDir, Cgroups) {
        let mount = tempfile::tempdir().unwrap();
        let base = mount.path().join(own.trim_start_matches('/'));
        fs::create_dir_all(&base).unwrap();
        fs::write(base.join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        let cgroups = Cgroups::discover(mount.path(), &format!("0::{own}\n"));
        (mount, cgroups)
    }

    #[test]
    fn version_2_limits_are_written_before_anyone_enters() {
        let (mount, cgroups) = fake_v2("/service");
        assert_eq!(cgroups.version(), "v2");
        let leaf = cgroups.create(77, "3", &limits()).unwrap();
        let read = |file: &str| fs::read_to_string(mount.path().join("service/countersign-77-3").join(file)).ok();
        assert_eq!(read("memory.max").as_deref(), Some("67108864"));
        assert_eq!(read("memory.swap.max").as_deref(), Some("0"));
        assert_eq!(read("pids.max").as_deref(), Some("33"));
        assert_eq!(read("cpu.max").as_deref(), Some("150000 100000"));
        assert_eq!(read("cgroup.procs"), None);
        leaf.enter().unwrap();
        assert_eq!(read("cgroup.procs").as_deref(), Some("0"));
        assert!(fs::read_to_string(mount.path().join("service/cgroup.subtree_control")).is_ok());
    }

    #[test]
    fn a_server_that_stepped_aside_makes_its_leaves_where_it_was() {
        let (mount, _) = fake_v2("/service");
        let aside = mount.path().join("service/countersign-77-server");
        fs::create_dir(&aside).unwrap();
        fs::write(aside.join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        let cgroups = Cgroups::discover(mount.path(), "0::/service/countersign-77-server\n");
        cgroups.create(77, "agent-a", &limits()).unwrap();
        assert!(mount.path().join("service/countersign-77-agent-a").is_dir());
        assert_eq!(cgroups.leaves_named("agent-a").len(), 1);
    }

    #[test]
    fn version_2_counters_are_read_by_name() {
        let (mount, cgroups) = fake_v2("/");
        let leaf = cgroups.create(77, "0", &limits()).unwrap();
        let directory = mount.path().join("countersign-77-0");
        fs::write(
            directory.join("memory.events"),
            "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n",
        )
        .unwrap();
        fs::write(directory.join("pids.events"), "max 4\n").unwrap();
        let counters = leaf.counters();
        assert_eq!(counters.read(), (1, 4));
        fs::write(directory.join("pids.events"), "max 5\n").unwrap();
        assert_eq!(counters.read(), (1, 5));
    }

    #[test]
    fn without_controllers_there_is_nothing_to_create() {
        let mount = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::discover(mount.path(), "0::/\n");
        assert_eq!(cgroups.version(), "none");
        assert!(matches!(cgroups.create(1, "0", &limits()), Err(CgroupError::Missing)));
    }

    #[test]
    fn leaves_of_dead_servers_are_removed_and_others_are_not() {
        let (mount, cgroups) = fake_v2("/");
        for name in ["countersign-10-0", "countersign-11-0", "other-10-0"] {
            fs::create_dir(mount.path().join(name)).unwrap();
        }
        cgroups.remove_stale(|server| server == 11);
        let left = |name: &str| mount.path().join(name).exists();
        assert_eq!(
            [left("countersign-10-0"), left("countersign-11-0"), left("other-10-0")],
            [false, true, true]
        );
    }
}
