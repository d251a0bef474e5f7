//! Secrets nobody can guess, from the system's own source.

use std::fs::File;
use std::io::{self, Read as _};

/// 256 random bits.
pub(crate) fn secret() -> io::Result<[u8; 32]> {
    let mut bits = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(bits)
}
