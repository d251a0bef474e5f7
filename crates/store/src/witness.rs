//! The witness: a file or a service, usually on another disk or machine, that gets a copy of every checkpoint.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::checkpoint::Checkpoint;

/// Checkpoints that wait while they cannot be handed over; the oldest give way, later ones cover them.
const WAITING_MAX: usize = 1_000;

/// Where checkpoints go.
#[derive(Clone)]
pub enum WitnessAt {
    File(PathBuf),
    Elsewhere(Arc<dyn Courier>),
}

/// Brings checkpoints to a witness that is no file.
pub trait Courier: Send + Sync {
    /// Takes them along without waiting for their arrival. What it cannot take is offered again with the next ones.
    fn take(&self, checkpoints: &[Checkpoint]) -> io::Result<()>;
}

/// One for everybody in this process who signs: what one could not hand over goes with the next of another.
pub(crate) struct Witness {
    at: Option<WitnessAt>,
    waiting: Mutex<VecDeque<Checkpoint>>,
}

impl Witness {
    pub(crate) fn new(at: Option<WitnessAt>) -> Self {
        Self {
            at,
            waiting: Mutex::default(),
        }
    }

    /// Hands over checkpoints. The record does not wait for its witness: what cannot be written
    /// now is tried again with the next one.
    pub(crate) fn tell(&self, checkpoints: Vec<Checkpoint>) {
        let Some(at) = self.at.as_ref().filter(|_| !checkpoints.is_empty()) else {
            return;
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(checkpoints);
        let surplus = waiting.len().saturating_sub(WAITING_MAX);
        waiting.drain(..surplus);
        let offered = waiting.make_contiguous();
        let told = match at {
            WitnessAt::File(path) => append(path, offered).map_err(|error| format!("`{}`: {error}", path.display())),
            WitnessAt::Elsewhere(courier) => courier.take(offered).map_err(|error| error.to_string()),
        };
        match told {
            Ok(()) => waiting.clear(),
            Err(error) => tracing::warn!(
                "the witness (`audit.witness`) was not told, and is told with the next checkpoint: {error}"
            ),
        }
    }
}

/// One write per call: lines of several processes do not mix.
fn append(path: &Path, checkpoints: &[Checkpoint]) -> io::Result<()> {
    let lines: String = checkpoints
        .iter()
        .map(|checkpoint| format!("{}\n", checkpoint.to_json()))
        .collect();
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(lines.as_bytes())?;
    file.sync_data()
}

#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    #[error("it cannot be read")]
    Read { source: io::Error },
    #[error("line {line} is no checkpoint")]
    Line { line: usize },
}

/// What a witness was told, line by line.
pub fn read(reader: impl BufRead) -> Result<Vec<Checkpoint>, WitnessError> {
    let mut told = Vec::new();
    for (index, line) in reader.lines().enumerate() {
        let text = line.map_err(|source| WitnessError::Read { source })?;
        let checkpoint = serde_json::from_str(&text)
            .ok()
            .and_then(|value| Checkpoint::from_json(&value));
        told.push(checkpoint.ok_or(WitnessError::Line { line: index + 1 })?);
    }
    Ok(told)
}
