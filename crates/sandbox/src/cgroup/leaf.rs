//! One keeper's cgroup: limits in, counters out.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{CgroupError, Hierarchy};
use crate::profile::Limits;
use crate::sys;

/// Length of the window in which a CPU share is counted.
const CPU_PERIOD_US: u64 = 100_000;
/// A cgroup can be busy for a moment after its last process was reaped.
const REMOVE_ATTEMPTS: u32 = 50;

/// A leaf in every hierarchy that has a limit to set.
#[derive(Debug)]
pub struct Leaf {
    directories: Vec<PathBuf>,
    /// The one of them that only holds a share of CPU time.
    cpu_share: Option<PathBuf>,
    memory_events: Option<PathBuf>,
    pids_events: Option<PathBuf>,
}

/// Open counter files of a leaf; they stay readable when the leaf's path no longer is.
#[derive(Debug, Default)]
pub struct Counters {
    memory: Option<File>,
    pids: Option<File>,
}

impl Leaf {
    pub(super) fn create(hierarchy: &Hierarchy, name: &str, limits: &Limits) -> Result<Leaf, CgroupError> {
        let mut leaf = Leaf {
            directories: Vec::new(),
            cpu_share: None,
            memory_events: None,
            pids_events: None,
        };
        let made = leaf.fill(hierarchy, name, limits);
        if made.is_err() {
            leaf.remove();
        }
        made.map(|()| leaf)
    }

    fn fill(&mut self, hierarchy: &Hierarchy, name: &str, limits: &Limits) -> Result<(), CgroupError> {
        match hierarchy {
            Hierarchy::Missing => return Err(CgroupError::Missing),
            Hierarchy::V2 { base } => {
                let leaf = self.add(base, name)?;
                if let Some(bytes) = limits.memory_bytes {
                    set(&leaf, "memory.max", bytes)?;
                    // Without swap in the kernel the file does not exist.
                    let _ = set(&leaf, "memory.swap.max", 0);
                }
                if let Some(pids) = limits.pids {
                    set(&leaf, "pids.max", with_keeper(pids))?;
                }
                if let Some(quota) = limits.cpu_millicores {
                    set(&leaf, "cpu.max", format!("{} {CPU_PERIOD_US}", quota_us(quota)))?;
                }
                self.memory_events = Some(leaf.join("memory.events"));
                self.pids_events = Some(leaf.join("pids.events"));
            }
            Hierarchy::V1 { memory, pids, cpu } => {
                if let Some(bytes) = limits.memory_bytes {
                    let leaf = self.add(
                        memory
                            .as_ref()
                            .ok_or(CgroupError::Controller { controller: "memory" })?,
                        name,
                    )?;
                    set(&leaf, "memory.limit_in_bytes", bytes)?;
                    let _ = set(&leaf, "memory.memsw.limit_in_bytes", bytes);
                    self.memory_events = Some(leaf.join("memory.oom_control"));
                }
                if let Some(limit) = limits.pids {
                    let leaf = self.add(
                        pids.as_ref().ok_or(CgroupError::Controller { controller: "pids" })?,
                        name,
                    )?;
                    set(&leaf, "pids.max", with_keeper(limit))?;
                    self.pids_events = Some(leaf.join("pids.events"));
                }
                if let Some(quota) = limits.cpu_millicores {
                    let leaf = self.add(cpu.as_ref().ok_or(CgroupError::Controller { controller: "cpu" })?, name)?;
                    set(&leaf, "cpu.cfs_period_us", CPU_PERIOD_US)?;
                    set(&leaf, "cpu.cfs_quota_us", quota_us(quota))?;
                    self.cpu_share = Some(leaf);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, base: &Path, name: &str) -> Result<PathBuf, CgroupError> {
        let path = base.join(name);
        match fs::create_dir(&path) {
            // Left over from a server with the same number; its limits are overwritten.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(CgroupError::Create { path, source }),
            Ok(()) => {}
        }
        self.directories.push(path.clone());
        Ok(path)
    }

    /// Moves the calling process in.
    pub fn enter(&self) -> Result<(), CgroupError> {
        for directory in &self.directories {
            let path = directory.join("cgroup.procs");
            // Zero is whoever writes it, whatever its number is in which namespace.
            match fs::write(&path, "0") {
                Ok(()) => {}
                // A share of CPU time is for ordinary processes: the kernel takes no real-time one in, and
                // would not slow it down either. The other limits hold for both.
                Err(source)
                    if source.raw_os_error() == Some(libc::EINVAL)
                        && self.is_share(directory)
                        && sys::is_real_time() => {}
                Err(source) => return Err(CgroupError::Enter { path, source }),
            }
        }
        Ok(())
    }

    /// The lists of processes, opened for entering: a process that gave up its rights still can.
    pub(crate) fn entries(&self) -> Result<Vec<File>, CgroupError> {
        let open = |directory: &PathBuf| {
            let path = directory.join("cgroup.procs");
            let opened = fs::OpenOptions::new().write(true).open(&path);
            opened.map_err(|source| CgroupError::Enter { path, source })
        };
        self.directories.iter().map(open).collect()
    }

    fn is_share(&self, directory: &Path) -> bool {
        self.cpu_share.as_deref() == Some(directory)
    }

    /// Opens the counters of limit hits.
    pub fn counters(&self) -> Counters {
        let open = |path: &Option<PathBuf>| path.as_ref().and_then(|path| File::open(path).ok());
        Counters {
            memory: open(&self.memory_events),
            pids: open(&self.pids_events),
        }
    }

    /// Removes the leaf after its last process is gone.
    pub fn remove(&self) {
        for directory in &self.directories {
            for _ in 0..REMOVE_ATTEMPTS {
                match fs::remove_dir(directory) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(Duration::from_millis(2))
                    }
                    _ => break,
                }
            }
        }
    }
}

impl Counters {
    /// How often memory and processes ran out so far.
    pub fn read(&self) -> (u64, u64) {
        (count(&self.memory, "oom_kill"), count(&self.pids, "max"))
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.memory.is_some()
    }
}

fn count(file: &Option<File>, name: &str) -> u64 {
    let mut text = [0; 512];
    let length = file
        .as_ref()
        .and_then(|file| file.read_at(&mut text, 0).ok())
        .unwrap_or(0);
    let text = std::str::from_utf8(&text[..length]).unwrap_or("");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn set(leaf: &Path, file: &str, value: impl ToString) -> Result<(), CgroupError> {
    let path = leaf.join(file);
    fs::write(&path, value.to_string()).map_err(|source| CgroupError::Limit { path, source })
}

/// The keeper lives in the leaf too and is not part of what the limit was meant for.
fn with_keeper(pids: u32) -> u64 {
    u64::from(pids) + 1
}

fn quota_us(millicores: u32) -> u64 {
    // The kernel takes no quota below a millisecond.
    (u64::from(millicores) * CPU_PERIOD_US / 1000).max(1000)
}
