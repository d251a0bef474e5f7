//! How long the log must be, as the index says that SQLite keeps of it for all processes.
//!
//! A log that is shorter than it was is nothing bad by itself: whoever stops empties it, and others may begin it anew.
//! Only the index tells that from one that was cut: it is set to nothing before SQLite shortens the log, and counts frames
//! behind their writing. Read like any file, it is what processes see that have it mapped.

use std::fs::{File, Metadata};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::Identity;

/// What a log begins with, and each frame of it.
const LOG_HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;
const PAGE_BYTES: u64 = 4_096;

/// The head of the index stands in it twice.
const HEAD_BYTES: usize = 48;
const VERSION: u32 = 3_007_000;

/// Others write while it is read.
const TRIES: usize = 50;

#[derive(Default)]
pub(super) struct Index {
    /// Never closed: that would take away every lock that this process holds on the file, SQLite's own included. It is
    /// opened only once a log looks cut, which is as rare as the end of another process.
    open: Mutex<Option<(Identity, ManuallyDrop<File>)>>,
}

impl Index {
    /// Whether the log ends before what is in it. `pages` were in it when this process last wrote: one that is as long needs
    /// no second look.
    pub(super) fn finds_cut(&self, [log_at, index_at]: &[impl AsRef<Path>; 2], log: &Metadata, pages: u64) -> bool {
        if log.len() >= length(pages, PAGE_BYTES).max(LOG_HEADER_BYTES) {
            return false;
        }
        // What cannot be looked at is told by whoever writes next.
        self.looks_cut(log_at.as_ref(), index_at.as_ref()).unwrap_or(false)
    }

    fn looks_cut(&self, log: &Path, index: &Path) -> io::Result<bool> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = Identity::of(&index.metadata()?);
        let file = match open.take() {
            Some(kept) if kept.0 == identity => open.insert(kept),
            Some(_) | None => open.insert((identity, ManuallyDrop::new(File::open(index)?))),
        };
        for _ in 0..TRIES {
            let before = read(&file.1)?;
            let found = log.metadata()?.len();
            // Nothing was begun anew meanwhile, so the log was never as short as this by right.
            if read(&file.1)? == before {
                return Ok(expected(&before).is_some_and(|expected| found < expected));
            }
        }
        Ok(false)
    }
}

fn read(index: &File) -> io::Result<[u8; 2 * HEAD_BYTES]> {
    let mut heads = [0; 2 * HEAD_BYTES];
    index.read_exact_at(&mut heads, 0)?;
    Ok(heads)
}

/// How long the log is at least; none where nobody can say, because the index is not ready.
fn expected(heads: &[u8; 2 * HEAD_BYTES]) -> Option<u64> {
    let (head, again) = heads.split_at(HEAD_BYTES);
    let number = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let is_ready = head == again && number(0)? == VERSION && head[12] != 0;
    let page = match u16::from_ne_bytes([head[14], head[15]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let frames = number(16)?;
    is_ready.then(|| length(frames.into(), page))
}

fn length(frames: u64, page: u64) -> u64 {
    match frames {
        0 => 0,
        _ => LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page),
    }
}
