//! The witness: a file, usually on another disk or machine, that gets a copy of every checkpoint.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::checkpoint::Checkpoint;

/// Lines that wait while the file cannot be written; the oldest give way, later ones cover them.
const WAITING_MAX: usize = 1_000;

pub(crate) struct Witness {
    path: Option<PathBuf>,
    waiting: VecDeque<Checkpoint>,
}

impl Witness {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            waiting: VecDeque::new(),
        }
    }

    /// Hands over checkpoints. The record does not wait for its witness: what cannot be written
    /// now is tried again with the next one.
    pub(crate) fn tell(&mut self, checkpoints: impl IntoIterator<Item = Checkpoint>) {
        let Some(path) = &self.path else { return };
        self.waiting.extend(checkpoints);
        let surplus = self.waiting.len().saturating_sub(WAITING_MAX);
        self.waiting.drain(..surplus);
        if self.waiting.is_empty() {
            return;
        }
        let lines: String = self
            .waiting
            .iter()
            .map(|checkpoint| format!("{}\n", checkpoint.to_json()))
            .collect();
        match append(path, &lines) {
            Ok(()) => self.waiting.clear(),
            Err(error) => tracing::warn!(path = %path.display(), %error, "witness not written"),
        }
    }
}

/// One write per call: lines of several processes do not mix.
fn append(path: &PathBuf, lines: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(lines.as_bytes())?;
    file.sync_data()
}
