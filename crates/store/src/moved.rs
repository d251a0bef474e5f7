//! The mark of a record that was moved into a database. The file stays as it was and is not gone on with: two
//! continuations of one chain, both signed by its key, would contradict each other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

pub(crate) const FILE_NAME: &str = "record-moved";

/// Where the record of a state directory went, if it was moved.
pub(crate) fn to(directory: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(directory.join(FILE_NAME)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says that it went there.
pub(crate) fn mark(directory: &Path, to: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(directory.join(FILE_NAME))?;
    writeln!(file, "{to}")?;
    file.sync_all()?;
    File::open(directory)?.sync_all()
}
