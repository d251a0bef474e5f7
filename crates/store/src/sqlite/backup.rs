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
    #[error("`{path}` cannot be made; name a file that does not exist yet")]
    Make { path: PathBuf, source: io::Error },
    #[error("the record cannot be copied to `{path}`")]
    Copy { path: PathBuf, source: rusqlite::Error },
    #[error("`{path}` cannot be brought to the disk")]
    Flush { path: PathBuf, source: io::Error },
}

pub(crate) fn write(directory: &Path, to: &Path) -> Result<u64, BackupError> {
    // Made first, so that it is nobody else's to read from the beginning.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    made.map_err(|source| BackupError::Make {
        path: to.to_owned(),
        source,
    })?;
    let written = copy(&directory.join(site::FILE_NAME), to).map_err(|source| BackupError::Copy {
        path: to.to_owned(),
        source,
    });
    let flushed = written.and_then(|()| {
        let flush = || {
            let file = File::open(to)?;
            file.sync_all()?;
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

fn copy(from: &Path, to: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(from, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
    Ok(())
}
