//! Files in a workspace that steer programs which others run there later, outside of every sandbox: hooks and
//! configuration of git, and our own. Which of them are protected below a root, and which directories are no roots.

use std::path::{Path, PathBuf};

/// Existing parts of the workspace that commands may read but not change: they steer programs that
/// others run there later.
const PROTECTED: &str = ".countersign";
/// The same in a repository.
const PROTECTED_OF_GIT: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];

/// Parts of a repository that would do the same if they came into being: `commondir` names another
/// directory to take configuration and hooks from, and `config.worktree` is read where the configuration says so.
const BARRED_OF_GIT: [&str; 3] = ["hooks", "commondir", "config.worktree"];

/// What is protected below a root, and what is barred from coming into being. Looked at before every command, so
/// where there is no repository nothing in one is looked for.
pub(crate) fn parts(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut protected: Vec<_> = Some(root.join(PROTECTED))
        .into_iter()
        .filter(|path| path.exists())
        .collect();
    let git = root.join(".git");
    match git.metadata() {
        Ok(found) if found.is_dir() => {
            let parts = PROTECTED_OF_GIT.iter().map(|name| git.join(name));
            protected.extend(parts.filter(|path| path.exists()));
        }
        // In a linked worktree or a submodule a file says where the repository is.
        Ok(found) if found.is_file() => {
            protected.push(git);
            return (protected, Vec::new());
        }
        Ok(_) | Err(_) => return (protected, Vec::new()),
    }
    // Without a configuration there is no repository yet, and making one is a command's right.
    if !git.join("config").is_file() {
        return (protected, Vec::new());
    }
    let barred = BARRED_OF_GIT.iter().map(|name| git.join(name));
    let missing = barred.filter(|path| path.symlink_metadata().is_err());
    (protected, missing.collect())
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
    use std::fs;

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
            let (protected, barred) = parts(root);
            (names(root, &protected), names(root, &barred))
        };
        let none = Vec::<String>::new();
        assert_eq!(found(), (none.clone(), none.clone()));
        fs::create_dir(root.join(".countersign")).unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        let begun = vec![".countersign".to_owned(), ".git/hooks".to_owned()];
        assert_eq!(found(), (begun, none.clone()));
        fs::write(root.join(".git/config"), "").unwrap();
        fs::write(root.join(".git/config.worktree"), "").unwrap();
        fs::remove_dir(root.join(".git/hooks")).unwrap();
        let protected = [".countersign", ".git/config", ".git/config.worktree"].map(str::to_owned);
        let barred = [".git/commondir", ".git/hooks"].map(str::to_owned);
        assert_eq!(found(), (protected.to_vec(), barred.to_vec()));
        // A link to a repository elsewhere is one too.
        fs::rename(root.join(".git"), root.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", root.join(".git")).unwrap();
        assert_eq!(found(), (protected.to_vec(), barred.to_vec()));
        fs::remove_file(root.join(".git")).unwrap();
        fs::write(root.join(".git"), "gitdir: elsewhere").unwrap();
        let linked = vec![".countersign".to_owned(), ".git".to_owned()];
        assert_eq!(found(), (linked, none));
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
