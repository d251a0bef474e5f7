//! Where a file `.git` leads: `gitdir: PATH`, as git reads it. A repository outside of the root is out of reach; one
//! inside is protected like any other, if nobody who writes there can lead git past it.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use countersign_sandbox::{directory, is_absent};

use super::Unprotected;

/// The longest path there is, with what stands before it.
const BYTES_MAX: u64 = 4096 + 16;

/// The directory in the root that the file leads to, if it leads there.
pub(super) fn inside(root: &Path, file: &Path) -> Result<Option<PathBuf>, Unprotected> {
    let astray = || Unprotected::Astray(file.to_owned());
    let read = read(file).map_err(|source| Unprotected::Unreadable {
        path: file.to_owned(),
        source,
    })?;
    let written = read.strip_prefix(b"gitdir: ").ok_or_else(astray)?;
    let ends = written.iter().rev().take_while(|byte| b"\r\n".contains(byte)).count();
    let written = &written[..written.len() - ends];
    if written.is_empty() || read.len() as u64 > BYTES_MAX {
        return Err(astray());
    }
    let mut at = root.to_owned();
    for part in Path::new(OsStr::from_bytes(written)).components() {
        let next = match part {
            Component::RootDir | Component::Prefix(_) => PathBuf::from("/"),
            Component::CurDir => continue,
            // What is there by now has no links in it.
            Component::ParentDir => at.parent().unwrap_or(&at).to_owned(),
            Component::Normal(name) => match step(root, at.join(name)) {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(None),
                Err(Step::Linked(path)) => return Err(Unprotected::Linked(path)),
                Err(Step::Absent) => return Err(astray()),
                Err(Step::Unreadable(path, source)) => return Err(Unprotected::Unreadable { path, source }),
            },
        };
        at = next;
    }
    if !at.starts_with(root) {
        return Ok(None);
    }
    match at.is_dir() {
        true => Ok(Some(at)),
        false => Err(astray()),
    }
}

/// Why there is no way on inside of the root.
enum Step {
    Linked(PathBuf),
    /// A command could make it.
    Absent,
    Unreadable(PathBuf, io::Error),
}

/// Where a path leads whose directory is free of links; nothing where that is unknown, and none of ours.
fn step(root: &Path, next: PathBuf) -> Result<Option<PathBuf>, Step> {
    let is_ours = next.starts_with(root) && next != root;
    match next.symlink_metadata() {
        Ok(found) if !found.is_symlink() => Ok(Some(next)),
        Ok(_) if is_ours => Err(Step::Linked(next)),
        Ok(_) => Ok(directory::real_name(&next).ok()),
        Err(_) if !is_ours => Ok(None),
        Err(error) if is_absent(&error) => Err(Step::Absent),
        Err(error) => Err(Step::Unreadable(next, error)),
    }
}

/// The file itself, and nothing that a link leads to or that waits for a writer.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let mut read = Vec::new();
    opened.take(BYTES_MAX + 1).read_to_end(&mut read)?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::{owner, parts};
    use super::*;

    /// A root with a repository in `.bare`, and another outside.
    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("root");
        for repository in ["root/.bare", "root/deep/er", "outside"] {
            let repository = root.parent().unwrap().join(repository);
            fs::create_dir_all(repository.join("hooks")).unwrap();
            fs::write(repository.join("config"), "").unwrap();
        }
        (dir, root)
    }

    fn found(root: &Path, written: &str) -> Result<Option<PathBuf>, String> {
        let file = root.join(".git");
        fs::write(&file, written).unwrap();
        inside(root, &file).map_err(|unprotected| unprotected.to_string())
    }

    #[test]
    fn a_repository_in_the_root_is_protected_under_whatever_name() {
        let (_dir, root) = workspace();
        let absolute = format!("gitdir: {}/.bare\r\n", root.display());
        let back = "gitdir: ../root/deep/../.bare/\n";
        for written in ["gitdir: .bare", "gitdir: ./.bare\n", &absolute, back] {
            assert_eq!(found(&root, written), Ok(Some(root.join(".bare"))), "{written}");
            let parts = parts(&root, owner(&root).unwrap()).unwrap();
            for name in [".git", ".bare/config", ".bare/hooks", ".bare/config.worktree"] {
                assert!(parts.protected.contains(&root.join(name)), "{name} by {written}");
            }
            assert_eq!(parts.barred, [root.join(".bare/commondir")]);
        }
        assert_eq!(found(&root, "gitdir: deep/er\n"), Ok(Some(root.join("deep/er"))));
        // By a name of the root that commands cannot change.
        let other = root.with_file_name("other");
        symlink(&root, &other).unwrap();
        let other = format!("gitdir: {}/.bare\n", other.display());
        assert_eq!(found(&root, &other), Ok(Some(root.join(".bare"))));
    }

    #[test]
    fn a_repository_outside_of_the_root_is_out_of_reach() {
        let (_dir, root) = workspace();
        let gone = format!("gitdir: {}/gone/.git/worktrees/x\n", root.parent().unwrap().display());
        for written in ["gitdir: ../outside\n", "gitdir: deep/../../outside", &gone] {
            assert_eq!(found(&root, written), Ok(None), "{written}");
        }
    }

    #[test]
    fn a_file_that_commands_could_lead_elsewhere_makes_no_workspace() {
        let (_dir, root) = workspace();
        symlink(".bare", root.join("link")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        let long = format!("gitdir: {}", "./".repeat(3000));
        for (written, expected) in [
            ("", "leads to no repository"),
            ("gitdir: ", "leads to no repository"),
            ("gitdir:.bare\n", "leads to no repository"),
            ("gitdir: .bare/config\n", "leads to no repository"),
            ("gitdir: missing\n", "leads to no repository"),
            ("gitdir: missing/../../outside\n", "leads to no repository"),
            (long.as_str(), "leads to no repository"),
            ("gitdir: link\n", "is a symbolic link"),
            ("gitdir: out\n", "is a symbolic link"),
        ] {
            let refused = found(&root, written).unwrap_err();
            assert!(refused.contains(expected), "{written}: {refused}");
            assert!(parts(&root, owner(&root).unwrap()).is_err(), "{written}");
        }
        fs::write(root.join(".git"), "gitdir: .bare\n").unwrap();
        fs::write(root.join(".bare/commondir"), "../deep/er\n").unwrap();
        let refused = parts(&root, owner(&root).unwrap()).unwrap_err().to_string();
        assert!(refused.contains(".bare/commondir` makes git take hooks"), "{refused}");
        fs::remove_file(root.join(".bare/commondir")).unwrap();
        fs::rename(root.join(".bare/hooks"), root.join("hooks")).unwrap();
        symlink("../hooks", root.join(".bare/hooks")).unwrap();
        let refused = parts(&root, owner(&root).unwrap()).unwrap_err().to_string();
        assert!(refused.contains(".bare/hooks` is a symbolic link"), "{refused}");
    }
}
