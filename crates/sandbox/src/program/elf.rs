//! The one thing we want from an ELF file: which dynamic loader it names.

use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const PT_INTERP: u32 = 3;
const LOADER_BYTES_MAX: u64 = 4096;
const SEGMENTS_MAX: u16 = 128;

/// The loader of a 64-bit little-endian ELF file that starts with `head`; `None` for anything else.
pub(super) fn loader(file: &File, head: &[u8]) -> Option<PathBuf> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = u64::from_le_bytes(*head.get(32..)?.first_chunk()?);
    let entry_bytes = u16::from_le_bytes(*head.get(54..)?.first_chunk()?);
    let entries = u16::from_le_bytes(*head.get(56..)?.first_chunk()?).min(SEGMENTS_MAX);
    for index in 0..entries {
        let mut entry = [0; 56];
        file.read_exact_at(
            &mut entry,
            table.checked_add(u64::from(index) * u64::from(entry_bytes))?,
        )
        .ok()?;
        if u32::from_le_bytes(*entry.first_chunk()?) == PT_INTERP {
            let offset = u64::from_le_bytes(*entry[8..].first_chunk()?);
            let bytes = u64::from_le_bytes(*entry[32..].first_chunk()?).min(LOADER_BYTES_MAX);
            let mut name = vec![0; bytes as usize];
            file.read_exact_at(&mut name, offset).ok()?;
            name.truncate(name.iter().position(|byte| *byte == 0)?);
            let path = PathBuf::from(std::ffi::OsString::from_vec(name));
            return path.is_absolute().then_some(path);
        }
    }
    None
}
