//! A file that others write too, a client's or the operator's: found as it is, and replaced as a whole or
//! not at all.
//!
//! The new text stands in a file of its own before it takes the old one's name, so that no reader
//! ever sees half of it; links, permissions and the owner stay. Clients rewrite their files while they
//! run, and people save theirs: if one did so since we looked, we do not write over it.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use countersign_gateway::clock::Clock;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::config;

/// Larger than any client's file; those of Claude Code grow to some megabytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
const LINKS_MAX: usize = 40;
const BACKUPS_A_SECOND_MAX: u32 = 100;
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Who may read a file that did not exist before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Private,
    Shared,
}

/// A file as it was when we looked.
#[derive(Debug)]
pub(crate) struct Found {
    /// Behind all links.
    path: PathBuf,
    /// Nothing where there is no file.
    text: Option<String>,
    metadata: Option<Metadata>,
}

impl Found {
    pub(crate) fn look(path: &Path) -> anyhow::Result<Self> {
        let path = follow(path)?;
        let shown = path.display();
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self {
                    path,
                    text: None,
                    metadata: None,
                });
            }
            Err(error) => return Err(error).with_context(|| format!("cannot look at `{shown}`")),
        };
        ensure!(!metadata.is_dir(), "`{shown}` is a directory, not a file");
        ensure!(metadata.is_file(), "`{shown}` is not an ordinary file");
        ensure!(metadata.len() <= FILE_BYTES_MAX, "`{shown}` is too large to be edited");
        let bytes = fs::read(&path).with_context(|| format!("cannot read `{shown}`"))?;
        let text = String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("`{shown}` is not UTF-8 text"))?;
        Ok(Self {
            path,
            text: Some(text),
            metadata: Some(metadata),
        })
    }

    /// What the file says, without a byte order mark.
    pub(crate) fn text(&self) -> &str {
        let text = self.text.as_deref().unwrap_or_default();
        text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
    }

    /// Refuses a file that a link led out of the project for: whoever may write there, agents among
    /// them, could have made the link.
    pub(crate) fn check_inside(&self, project: &Path) -> anyhow::Result<()> {
        ensure!(
            config::inside(&self.path, project),
            "the project's file is a link to `{}`, out of the project; edit that file by hand if you trust it",
            self.path.display()
        );
        Ok(())
    }

    /// Gives the file another text; answers with the copy of the old one.
    pub(crate) fn replace(&self, text: &str, keep: Keep) -> anyhow::Result<Option<PathBuf>> {
        self.with_new(text, keep, |new| self.place(new))
    }

    /// Gives the file a text that has the old one within it, so that no copy is needed; what it would say
    /// is checked first, as a file beside it. A file that was not there is readable to its owner alone.
    pub(crate) fn extend(&self, text: &str, check: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.with_new(text, Keep::Private, |new| check(new).and_then(|()| self.exchange(new)))
    }

    fn with_new<T>(&self, text: &str, keep: Keep, place: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(dir).with_context(|| format!("cannot make `{}`", dir.display()))?;
        let mark = match &self.text {
            Some(text) if text.starts_with(BYTE_ORDER_MARK) => BYTE_ORDER_MARK,
            _ => "",
        };
        let new = self.beside(&format!("new-{}", std::process::id()));
        self.make(&new, &format!("{mark}{text}"), keep)?;
        let placed = place(&new);
        if placed.is_err() {
            // What could not be used is only in the way.
            let _ = fs::remove_file(&new);
        }
        placed
    }

    /// Puts the new file in the place of the old one, which is copied first.
    fn place(&self, new: &Path) -> anyhow::Result<Option<PathBuf>> {
        let backup = self.text.as_deref().map(|text| self.back_up(text)).transpose()?;
        match self.exchange(new) {
            Ok(()) => Ok(backup),
            Err(error) => {
                if let Some(backup) = backup {
                    let _ = fs::remove_file(backup);
                }
                Err(error)
            }
        }
    }

    fn exchange(&self, new: &Path) -> anyhow::Result<()> {
        let shown = self.path.display();
        let directory = File::open(self.path.parent().unwrap_or(Path::new("/"))).ok();
        // Of two of us who looked at the same text, the second must look again.
        let is_alone = directory.as_ref().is_none_or(|directory| {
            flock(directory, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
        });
        ensure!(
            is_alone && Self::look(&self.path)?.text == self.text,
            "`{shown}` was changed by another program just now; run this again"
        );
        fs::rename(new, &self.path).with_context(|| format!("cannot replace `{shown}`"))?;
        // The name is durable once its directory is; where that cannot be asked for, it soon is.
        if let Some(directory) = directory {
            let _ = directory.sync_all();
        }
        Ok(())
    }

    fn back_up(&self, text: &str) -> anyhow::Result<PathBuf> {
        let now = Clock::system().now().to_string();
        let second = now.split('.').next().unwrap_or(&now).replace(['-', ':'], "");
        for attempt in 1..=BACKUPS_A_SECOND_MAX {
            let suffix = if attempt == 1 {
                String::new()
            } else {
                format!("-{attempt}")
            };
            let path = self.beside(&format!("bak-{second}Z{suffix}"));
            match self.make(&path, text, Keep::Private) {
                Ok(()) => return Ok(path),
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        bail!("cannot keep a copy of `{}`: all names are taken", self.path.display())
    }

    /// Makes a file like the old one with another text.
    fn make(&self, path: &Path, text: &str, keep: Keep) -> anyhow::Result<()> {
        let mode = if keep == Keep::Private || self.metadata.is_some() {
            0o600
        } else {
            0o666
        };
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(mode).open(path);
        let mut file = made.with_context(|| format!("cannot write `{}`", path.display()))?;
        let filled = self.fill(&mut file, text);
        if filled.is_err() {
            let _ = fs::remove_file(path);
        }
        filled.with_context(|| format!("cannot write `{}`", path.display()))
    }

    fn fill(&self, file: &mut File, text: &str) -> io::Result<()> {
        file.write_all(text.as_bytes())?;
        if let Some(old) = &self.metadata {
            let new = file.metadata()?;
            if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                fchown(&*file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.sync_all()
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{suffix}"));
        path.into()
    }
}

fn is_taken(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::AlreadyExists)
}

/// The file behind links, also where the last one points to nothing yet.
fn follow(path: &Path) -> anyhow::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            // Not a link, or nothing there.
            Err(_) => return Ok(path),
        }
    }
    bail!("`{}` is a link that leads nowhere", path.display())
}

/// A text with the line ends of another, where that has only one kind of them.
pub(crate) fn with_newlines_of(model: &str, text: String) -> String {
    let crlf = model.matches("\r\n").count();
    if crlf > 0 && crlf == model.matches('\n').count() {
        return text.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<std::ffi::OsString> {
        fs::read_dir(dir)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect()
    }

    #[test]
    fn what_another_program_wrote_meanwhile_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for before in [None, Some("one")] {
            if let Some(text) = before {
                fs::write(&path, text).unwrap();
            }
            let found = Found::look(&path).unwrap();
            fs::write(&path, "theirs").unwrap();
            let refusal = found.replace("ours", Keep::Private).unwrap_err().to_string();
            assert!(
                refusal.ends_with("was changed by another program just now; run this again"),
                "{refusal}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
            assert_eq!(names(dir.path()), ["file"], "neither copy nor new file is left");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_that_another_of_us_is_just_replacing_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "one").unwrap();
        let found = Found::look(&path).unwrap();
        let other = File::open(dir.path()).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(found.replace("two", Keep::Private).is_err());
        assert_eq!(names(dir.path()), ["file"], "neither copy nor new file is left");
        drop(other);
        found.replace("two", Keep::Private).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    }

    #[test]
    fn a_file_larger_than_the_bound_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(FILE_BYTES_MAX).unwrap();
        assert!(Found::look(&path).is_ok());
        file.set_len(FILE_BYTES_MAX + 1).unwrap();
        let refusal = Found::look(&path).unwrap_err().to_string();
        assert!(refusal.ends_with("is too large to be edited"), "{refusal}");
    }

    #[test]
    fn line_ends_are_taken_over_where_they_are_of_one_kind() {
        let with = |model: &str| with_newlines_of(model, "a\r\nb\n".to_owned());
        assert_eq!(with("x\r\ny\r\n"), "a\r\nb\r\n");
        assert_eq!(with("x\r\ny\n"), "a\r\nb\n");
        assert_eq!(with(""), "a\r\nb\n");
    }
}
