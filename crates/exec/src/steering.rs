//! Files in a workspace that steer programs which others run there later, outside of every sandbox: hooks and
//! configuration of git, and our own. Which of them are protected below a root, and which directories are no roots.

mod led;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use countersign_sandbox::is_absent;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, mkdirat, openat};

/// Existing parts of the workspace that commands may read but not change: they steer programs that
/// others run there later.
const PROTECTED: &str = ".countersign";
/// The same in a repository.
const PROTECTED_OF_GIT: [&str; 4] = [HOOKS, "config", WORKTREE_CONFIG, COMMON_DIRECTORY];

/// Parts of a repository that would do the same if they came into being. A mount protects only what exists, so where one
/// is missing an empty one is made, to which git is indifferent.
const HOOKS: &str = "hooks";
const WORKTREE_CONFIG: &str = "config.worktree";
/// It names another directory to take configuration and hooks from, and there is no empty one. In a repository's own
/// directory git never puts it.
const COMMON_DIRECTORY: &str = "commondir";

/// What is protected below a root, and what is barred from coming into being.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) barred: Vec<PathBuf>,
}

/// Why a root is not used: what steers others in it cannot be protected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unprotected {
    #[error("`{}` cannot be looked at ({source}), and so not be protected from commands; make it readable again", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{}` cannot be made ({source}), and so not be protected from commands; make it, or its directory writable", path.display())]
    Unmade { path: PathBuf, source: io::Error },
    #[error("`{}` makes git take hooks and configuration from elsewhere, which cannot be protected from commands; remove it", .0.display())]
    Redirected(PathBuf),
    #[error("`{}` is a symbolic link, which commands could put something else in the place of; put what it leads to there", .0.display())]
    Linked(PathBuf),
    #[error("`{}` is a file that leads to no repository, or to one that commands could make; correct or remove it", .0.display())]
    Astray(PathBuf),
}

/// Looked at before every command, so where there is no repository nothing in one is looked for.
pub(crate) fn parts(root: &Path, server_uid: u32) -> Result<Parts, Unprotected> {
    let mut parts = Parts::default();
    let ours = root.join(PROTECTED);
    if is_there(&ours)? {
        parts.protected.push(not_a_link(ours)?);
    }
    let git = not_a_link(root.join(".git"))?;
    let found = match git.metadata() {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return Ok(parts),
        Err(source) => return Err(Unprotected::Unreadable { path: git, source }),
    };
    if found.is_dir() {
        parts.add_repository(&git, server_uid)?;
    } else if found.is_file() {
        // In a linked worktree, a submodule or beside a repository of another name it says where that is.
        if let Some(repository) = led::inside(root, &git)? {
            not_redirected(&repository)?;
            parts.add_repository(&repository, server_uid)?;
        }
        parts.protected.push(git);
    }
    Ok(parts)
}

impl Parts {
    fn add_repository(&mut self, git: &Path, server_uid: u32) -> Result<(), Unprotected> {
        let is_repository = is_there(&git.join("config"))?;
        // Without a configuration there is no repository yet, and making one is a command's right.
        if is_repository {
            not_redirected(git)?;
            fill(git, server_uid)?;
        }
        for name in PROTECTED_OF_GIT {
            let path = git.join(name);
            if is_there(&path)? {
                self.protected.push(not_a_link(path)?);
            } else if is_repository && name != "config" {
                self.barred.push(path);
            }
        }
        Ok(())
    }
}

fn not_redirected(git: &Path) -> Result<(), Unprotected> {
    let path = git.join(COMMON_DIRECTORY);
    match is_there(&path)? {
        true => Err(Unprotected::Redirected(path)),
        false => Ok(()),
    }
}

/// Whether something has this name; what cannot be told is an error, since it may be anything.
fn is_there(path: &Path) -> Result<bool, Unprotected> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(source) => Err(Unprotected::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

/// A mount protects what a link leads to, and not the link: whoever may write its directory makes another.
fn not_a_link(path: PathBuf) -> Result<PathBuf, Unprotected> {
    if path.is_symlink() {
        return Err(Unprotected::Linked(path));
    }
    Ok(path)
}

/// Makes what a repository lacks of what git reads, empty, for the repository's owner. Commands could make it
/// otherwise, and what they put there would be read when nobody looks. Where we may not make it and the owner is
/// another, commands may not either.
fn fill(git: &Path, server_uid: u32) -> Result<(), Unprotected> {
    let missing = |name: &str| git.join(name).symlink_metadata().is_err_and(|error| is_absent(&error));
    for name in [HOOKS, WORKTREE_CONFIG].into_iter().filter(|name| missing(name)) {
        let made = open_itself(git).and_then(|opened| make(&opened, name, server_uid));
        match made {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::ReadOnlyFilesystem) => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied && owner(git) != Some(server_uid) => {}
            Err(source) => {
                return Err(Unprotected::Unmade {
                    path: git.join(name),
                    source,
                });
            }
        }
    }
    Ok(())
}

/// The directory and nothing that a link leads to: somebody may have put one there meanwhile.
fn open_itself(directory: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags).open(directory)
}

fn make(directory: &File, name: &str, server_uid: u32) -> io::Result<()> {
    let open = Mode::from_raw_mode(0o755);
    if name == HOOKS {
        mkdirat(directory, name, open)?;
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
    }
    let owner = directory.metadata()?;
    if owner.uid() != server_uid {
        let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
        chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn owner(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.uid())
}

/// The directory, at or above a canonical path, that git would take for its own by what lies in it. What is at or
/// below a worktree is not git's own, wherever the worktree lies: some put theirs into the bare repository.
pub fn git_directory(path: &Path) -> Option<PathBuf> {
    let is_there = |path: PathBuf| path.symlink_metadata().is_ok();
    let below_worktrees = path.ancestors().take_while(|place| !is_there(place.join(".git")));
    let mut outside = below_worktrees.filter(|place| {
        // As git looks itself; in a linked worktree's the file leads to the rest.
        is_there(place.join("HEAD"))
            && (place.join("commondir").is_file() || (place.join("objects").is_dir() && place.join("refs").is_dir()))
    });
    outside.next().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(root: &Path, paths: &[PathBuf]) -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<_> = paths.iter().map(name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_steers_others_is_found_in_every_kind_of_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let found = || {
            let parts = parts(root, owner(root).unwrap()).unwrap();
            (names(root, &parts.protected), names(root, &parts.barred))
        };
        let none = Vec::<String>::new();
        assert_eq!(found(), (none.clone(), none.clone()));
        fs::create_dir(root.join(".countersign")).unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let begun = vec![".countersign".to_owned(), ".git/hooks".to_owned()];
        assert_eq!(found(), (begun, none.clone()));
        fs::write(root.join(".git/config"), "").unwrap();
        let protected = [".countersign", ".git/config", ".git/config.worktree", ".git/hooks"].map(str::to_owned);
        let barred = vec![".git/commondir".to_owned()];
        assert_eq!(found(), (protected.to_vec(), barred));
        fs::rename(root.join(".git"), root.join("elsewhere")).unwrap();
        fs::write(root.join(".git"), "gitdir: elsewhere").unwrap();
        let protected = [
            ".countersign",
            ".git",
            "elsewhere/config",
            "elsewhere/config.worktree",
            "elsewhere/hooks",
        ];
        let barred = vec!["elsewhere/commondir".to_owned()];
        assert_eq!(found(), (protected.map(str::to_owned).to_vec(), barred));
        fs::write(root.join(".git"), "gitdir: /nowhere/.git/worktrees/tree\n").unwrap();
        let linked = vec![".countersign".to_owned(), ".git".to_owned()];
        assert_eq!(found(), (linked, none));
    }

    #[test]
    fn what_a_repository_lacks_is_made_empty_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        fs::create_dir(&git).unwrap();
        fs::write(git.join("config"), "").unwrap();
        let us = owner(&git).unwrap();
        let theirs = if us == 0 { 4242 } else { us };
        std::os::unix::fs::chown(&git, Some(theirs), None).unwrap();
        parts(dir.path(), us).unwrap();
        assert!(git.join("hooks").is_dir() && fs::read(git.join("config.worktree")).unwrap().is_empty());
        for made in ["hooks", "config.worktree"] {
            assert_eq!(owner(&git.join(made)), Some(theirs), "{made}");
        }
        // What is there stays.
        fs::write(git.join("config.worktree"), "[core]").unwrap();
        fs::write(git.join("hooks/pre-commit"), "true").unwrap();
        parts(dir.path(), us).unwrap();
        assert_eq!(fs::read_to_string(git.join("config.worktree")).unwrap(), "[core]");
        assert!(git.join("hooks/pre-commit").exists());
    }

    #[test]
    fn a_repository_that_takes_its_hooks_from_elsewhere_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        fs::create_dir(&git).unwrap();
        fs::write(git.join("config"), "").unwrap();
        fs::write(git.join("commondir"), "../evil\n").unwrap();
        let refused = parts(dir.path(), 0).unwrap_err().to_string();
        assert!(refused.contains(".git/commondir` makes git take hooks"), "{refused}");
    }

    #[test]
    fn a_workspace_in_which_a_link_steers_others_is_not_used() {
        for part in [
            ".countersign",
            ".git",
            ".git/hooks",
            ".git/config",
            ".git/config.worktree",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path();
            fs::create_dir_all(root.join(".git/hooks")).unwrap();
            fs::create_dir(root.join(".countersign")).unwrap();
            fs::write(root.join(".git/config"), "").unwrap();
            fs::write(root.join(".git/config.worktree"), "").unwrap();
            let us = owner(root).unwrap();
            parts(root, us).unwrap();
            fs::rename(root.join(part), root.join("elsewhere")).unwrap();
            std::os::unix::fs::symlink(root.join("elsewhere"), root.join(part)).unwrap();
            let refused = parts(root, us).unwrap_err().to_string();
            let expected = format!("`{}` is a symbolic link", root.join(part).display());
            assert!(refused.starts_with(&expected), "{refused}");
        }
    }

    #[test]
    fn a_directory_of_gits_own_is_known_by_what_lies_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for part in [
            "bare/refs/heads",
            "bare/objects",
            "bare/hooks",
            "bare/worktrees/tree",
            "bare/tree/src",
            "linked",
            "work/.git/objects",
            "work/objects",
            "work/refs",
            "begun/objects",
            "begun/refs",
        ] {
            fs::create_dir_all(root.join(part)).unwrap();
        }
        let head = "ref: refs/heads/main\n";
        for file in ["bare/worktrees/tree/HEAD", "linked/HEAD", "work/HEAD"] {
            fs::write(root.join(file), head).unwrap();
        }
        // The older form, of a branch without a commit.
        std::os::unix::fs::symlink("refs/heads/main", root.join("bare/HEAD")).unwrap();
        fs::write(root.join("linked/commondir"), "../bare\n").unwrap();
        fs::write(root.join("bare/worktrees/tree/commondir"), "../..\n").unwrap();
        fs::write(root.join("bare/tree/.git"), "gitdir: ../worktrees/tree\n").unwrap();
        for (path, expected) in [
            ("", None),
            ("bare", Some("bare")),
            ("bare/hooks", Some("bare")),
            ("bare/refs/heads", Some("bare")),
            ("bare/worktrees/tree", Some("bare/worktrees/tree")),
            ("bare/tree", None),
            ("bare/tree/src", None),
            ("linked", Some("linked")),
            // Git looks for `.git` first.
            ("work", None),
            ("work/refs", None),
            ("begun", None),
        ] {
            let expected = expected.map(|name| root.join(name));
            assert_eq!(git_directory(&root.join(path)), expected, "{path}");
        }
    }
}
