//! The directories that commands are given, each opened once by a path without links. Rules and covers are made from what
//! was opened: a command in a root around or beside them may put a link in the place of a directory at any time.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::profile::Profile;
use crate::sys;

pub(crate) struct Opened(Vec<(PathBuf, File)>);

impl Opened {
    /// Where nothing is confined, nothing has to be opened.
    pub(crate) fn nothing() -> Opened {
        Opened(Vec::new())
    }

    /// Opens the roots, the home, the temporary directory and what else may be read. `ESTALE` for one of the first three
    /// that is not what the server saw, or that a link leads to.
    pub(crate) fn of(profile: &Profile) -> io::Result<Opened> {
        let mut opened = Vec::new();
        for path in profile.private_and_roots() {
            let found = open(path)?;
            let mut seen = profile.seen.iter().filter(|seen| seen.path == *path);
            if !seen.all(|seen| found.as_ref().is_some_and(|found| seen.is(found.as_fd()))) {
                return Err(moved());
            }
            opened.extend(found.map(|found| (path.to_owned(), found)));
        }
        for path in &profile.read_paths {
            // What is not there any more, or not there itself, is not read.
            let found = open(path).ok().flatten();
            opened.extend(found.map(|found| (path.clone(), found)));
        }
        Ok(Opened(opened))
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&File> {
        self.0.iter().find(|(of, _)| of == path).map(|(_, opened)| opened)
    }
}

/// What is at a path that no link is part of; none where there is nothing.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    match sys::open_how(&sys::c_path(path)?, libc::O_PATH, sys::NO_LINKS) {
        Ok(opened) => Ok(Some(opened.into())),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES) => Ok(None),
            Some(libc::ELOOP) => Err(moved()),
            _ => Err(error),
        },
    }
}

/// Something else is there by now.
pub(crate) fn moved() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}
