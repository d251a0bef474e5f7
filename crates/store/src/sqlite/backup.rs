//! A copy of the file to keep elsewhere, made while others write.
//!
//! SQLite writes it from one read transaction, without the log: the copy is one file, and whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{BUSY_TIMEOUT, site};

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("the name `{path}` is not UTF-8; choose another")]
    Name { path: PathBuf },
    #[error("`{path}` cannot be made; name a file that does not exist yet")]
    Make { path: PathBuf, source: io::Error },
    #[error("the record cannot be copied to `{path}`")]
    Copy { path: PathBuf, source: rusqlite::Error },
    #[error("`{path}` cannot be brought to the disk")]
    Flush { path: PathBuf, source: io::Error },
}

pub(crate) fn write(directory: &Path, to: &Path) -> Result<u64, BackupError> {
    // SQLite takes names as text: another file would be written than the one that is told of.
    let name = to.to_str().ok_or_else(|| BackupError::Name { path: to.to_owned() })?;
    // Made first, so that it is nobody else's to read from the beginning.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    made.map_err(|source| BackupError::Make {
        path: to.to_owned(),
        source,
    })?;
    let written = copy(&directory.join(site::FILE_NAME), name).map_err(|source| BackupError::Copy {
        path: to.to_owned(),
        source,
    });
    let flushed = written.and_then(|()| {
        let flush = || {
            let file = File::open(to)?;
            file.sync_all()?;
            // Its name too.
            let directory = to.parent().filter(|it| !it.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file.metadata()?.len())
        };
        flush().map_err(|source| BackupError::Flush {
            path: to.to_owned(),
            source,
        })
    });
    if flushed.is_err() {
        // Half a copy must not be taken for a whole one.
        let _ = fs::remove_file(to);
    }
    flushed
}

fn copy(from: &Path, to: &str) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(from, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute("VACUUM INTO ?1", [to])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_copy_is_never_made_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        Connection::open(dir.path().join(site::FILE_NAME)).unwrap();
        let to = dir.path().join(OsStr::from_bytes(b"copy-\xff"));
        assert!(matches!(write(dir.path(), &to), Err(BackupError::Name { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
