//! A small file that is made once, whole or not at all, and is there after a loss of power: a record signed by a key
//! that is gone could not be proved.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Makes a file of one line, for its owner only. Where somebody was first their file stays. It is written under another
/// name, so that nobody ever reads half of it.
pub(crate) fn write(path: &Path, line: &str) -> io::Result<()> {
    let draft = path.with_extension(std::process::id().to_string());
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    let written = file
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| file.sync_all());
    let linked = written.and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // Also where another was first: it may not have come to this yet.
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
