//! The machine as policy sees it: programs on the fixed path, and directories.
//!
//! A program is opened when it is first found and kept open; later finds only check that the file is
//! still the one that was opened. What policy decided on is therefore the very file that runs.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::policy::allowlist::{FoundProgram, Opened, Programs};
use countersign_gateway::policy::places::{Directories, OpenDirectory, OpenFailure};
use countersign_sandbox::directory::{self, DirectoryError};
use countersign_sandbox::mounted::Mounted;
use countersign_sandbox::program::{self, Identity, Program};

use crate::steering;

/// Programs and directories of this machine.
pub struct Machine {
    search_path: Vec<PathBuf>,
    /// The search path with links resolved: the same directories by their other names.
    trusted: Vec<PathBuf>,
    opened: Mutex<HashMap<PathBuf, (Arc<Program>, FoundProgram)>>,
    mounted: Mounted,
}

/// Programs kept open; beyond this many the table starts afresh.
const OPEN_PROGRAMS_MAX: usize = 256;

impl Machine {
    pub fn new(search_path: Vec<PathBuf>) -> Self {
        let trusted = search_path
            .iter()
            .filter_map(|dir| fs::canonicalize(dir).ok())
            .collect();
        Self {
            search_path,
            trusted,
            opened: Mutex::default(),
            mounted: Mounted::watch(),
        }
    }

    /// The program at a path, from the table if it is still the same file.
    fn at(&self, requested: &Path) -> Option<FoundProgram> {
        // By its text: what a link leads to now may be elsewhere when a shell goes the same way.
        let mut trusted = self.search_path.iter().chain(&self.trusted);
        let on_trusted_path = trusted.any(|directory| requested.parent() == Some(directory));
        // Elsewhere commands lay out the way, and the kernel would go it to its end.
        if !on_trusted_path && directory::is_linked(requested) && links(requested).1.as_os_str().is_empty() {
            return None;
        }
        let metadata = fs::metadata(requested).ok()?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return None;
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((program, found)) = opened.get(requested)
            && is_current(program, &metadata)
        {
            return Some(found.clone());
        }
        let program = Arc::new(program::open(requested).ok()?);
        let chain = program
            .exec_paths(&self.search_path)
            .into_iter()
            .filter(|path| *path != program.path)
            .collect();
        let found = FoundProgram {
            path: program.path.clone(),
            requested: requested.to_owned(),
            on_trusted_path,
            version: (!on_trusted_path).then(|| version(&program.identity)),
            is_script: program.interpreter.is_some(),
            interpreter_chain: chain,
            opened: Opened::new(program.clone()),
        };
        if opened.len() >= OPEN_PROGRAMS_MAX {
            opened.clear();
        }
        opened.insert(requested.to_owned(), (program, found.clone()));
        Some(found)
    }
}

impl Programs for Machine {
    fn find(&self, word: &str) -> Option<FoundProgram> {
        match word {
            "" | "." | ".." => None,
            absolute if absolute.starts_with('/') => self.at(Path::new(absolute)),
            relative if relative.contains('/') => None,
            name => self
                .search_path
                .iter()
                .map(|dir| dir.join(name))
                .find_map(|path| self.at(&path)),
        }
    }
}

impl Directories for Machine {
    fn open(&self, path: &Path) -> Result<OpenDirectory, OpenFailure> {
        match directory::open(path) {
            Ok(opened) => Ok(OpenDirectory {
                path: opened.path,
                handle: Arc::new(opened.fd),
            }),
            Err(DirectoryError::Missing { .. }) => Err(OpenFailure::Missing),
            Err(DirectoryError::NotADirectory { .. }) => Err(OpenFailure::NotADirectory),
            Err(DirectoryError::Open { .. }) => Err(OpenFailure::Refused),
        }
    }

    fn links(&self, path: &Path) -> (Vec<PathBuf>, PathBuf) {
        links(path)
    }

    fn git_directory(&self, path: &Path) -> Option<PathBuf> {
        steering::git_directory(path)
    }

    fn names(&self, places: &Arc<[PathBuf]>) -> io::Result<Arc<[PathBuf]>> {
        self.mounted.names(places)
    }
}

/// Another text for another file. Devices are left out: they are numbered anew when a machine starts.
fn version(identity: &Identity) -> String {
    let Identity {
        device: _,
        inode,
        bytes,
        modified_s,
        modified_ns,
        changed_s,
        changed_ns,
    } = identity;
    format!("{inode} {bytes} {modified_s}.{modified_ns} {changed_s}.{changed_ns}")
}

/// Whether the opened file and its interpreters are still what their paths lead to.
fn is_current(program: &Program, metadata: &fs::Metadata) -> bool {
    let is_same = Identity::of(metadata) == program.identity;
    is_same
        && program.interpreter.as_ref().is_none_or(|interpreter| {
            let program = &interpreter.program;
            fs::metadata(&program.path).is_ok_and(|metadata| is_current(program, &metadata))
        })
}

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;
/// What a way may cost that nobody laid out to be long: each part of it is looked at by its whole path, part by part.
const STEPS_MAX: usize = 8192;

/// The links on the way to where an absolute path leads, each by its canonical place, and where it leads; nowhere where the way is
/// too long.
fn links(path: &Path) -> (Vec<PathBuf>, PathBuf) {
    let mut found = Vec::new();
    let mut here = PathBuf::from("/");
    let mut ahead: Vec<PathBuf> = parts(path);
    let mut steps = 0;
    while let Some(part) = ahead.pop() {
        steps += here.components().count();
        if steps > STEPS_MAX {
            return (found, PathBuf::new());
        }
        if part == Path::new("..") {
            here.pop();
            continue;
        }
        let next = here.join(part);
        match fs::read_link(&next) {
            Ok(target) if found.len() < LINKS_MAX => {
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                ahead.extend(parts(&target));
                found.push(next);
            }
            Ok(_) | Err(_) => here = next,
        }
    }
    (found, here)
}

/// The parts of a path that lead somewhere, the first one last.
fn parts(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().rev();
    let leads = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    parts
        .filter(leads)
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("tool");
        let machine = Machine::new(vec![dir.path().to_owned()]);
        fs::copy("/bin/true", &tool).unwrap();
        let first = machine.find("tool").expect("found");
        let again = machine.find("tool").expect("found");
        assert!(Opened::same(&first.opened, &again.opened));
        fs::remove_file(&tool).unwrap();
        fs::copy("/bin/false", &tool).unwrap();
        let replaced = machine.find("tool").expect("found");
        assert!(!Opened::same(&first.opened, &replaced.opened));
        fs::remove_file(&tool).unwrap();
        assert!(machine.find("tool").is_none());
    }

    #[test]
    fn a_link_elsewhere_is_not_on_the_trusted_path() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("ls");
        std::os::unix::fs::symlink("/bin/ls", &link).unwrap();
        let machine = Machine::new(vec!["/usr/bin".into(), "/bin".into()]);
        assert!(machine.find("ls").expect("found").on_trusted_path);
        assert!(!machine.find(link.to_str().unwrap()).expect("found").on_trusted_path);
        assert!(machine.find("./ls").is_none());
        // Whoever can change a link on the way chooses what it leads to when a shell goes it.
        let bin = dir.path().join("bin");
        std::os::unix::fs::symlink("/usr/bin", &bin).unwrap();
        for elsewhere in [bin.join("ls").to_str().unwrap(), "/proc/self/root/usr/bin/ls"] {
            assert!(!machine.find(elsewhere).expect("found").on_trusted_path, "{elsewhere}");
        }
        for same in ["/usr/bin/ls", "/bin/ls"] {
            assert!(machine.find(same).expect("found").on_trusted_path, "{same}");
        }
    }

    #[test]
    fn a_way_that_is_laid_out_to_be_long_is_not_gone_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (real, link) = (base.join("real"), base.join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        assert_eq!(links(&link), (vec![link.clone()], real));
        let deep: PathBuf = std::iter::repeat_n("d", 300).collect();
        fs::create_dir_all(base.join(&deep)).unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(base.join(&deep).join("back"), &link).unwrap();
        std::os::unix::fs::symlink(base.join(&deep), base.join(&deep).join("back")).unwrap();
        let (_, end) = links(&link);
        assert_eq!(end, PathBuf::new());
        let tool = base.join(&deep).join("tool");
        fs::copy("/bin/true", &tool).unwrap();
        let machine = Machine::new(vec!["/usr/bin".into()]);
        assert!(machine.find(link.join("tool").to_str().unwrap()).is_none());
        assert!(machine.find(tool.to_str().unwrap()).is_some());
        assert_eq!(directory::real_name(&link).unwrap(), base.join(&deep));
    }
}
