//! Execution: the port through which a cleared plan runs, and what is known of it while it does.
//!
//! An executor takes a [`Cleared`](crate::approval::Cleared) plan and a [`Gate`]. It may prepare as
//! much as it likes, but a program starts only behind the gate, and the gate opens only with proof
//! that the record is durable. So preparing overlaps with writing, and *no record, no run* still holds.

pub mod advice;
pub mod live;
pub mod output;

use std::sync::Arc;

use crate::approval::Cleared;
use crate::audit::{Pending, RecordError, Recorded};
use crate::error::Refusal;
use crate::policy::effective::Layer;
use crate::policy::plan::Plan;
use live::Live;

/// Port: runs plans.
pub trait Executor: Send + Sync + 'static {
    /// Runs to the end: of the command, its deadline, or its cancelling. When this resolves nothing
    /// the command started is left. Output and cancelling go through `live`.
    fn run(&self, cleared: Cleared, gate: Gate, live: Arc<Live>) -> Pending<Ended>;

    /// Makes ready what plans like this one need, so that the first call does not wait for it.
    fn warm(&self, plan: &Plan) -> Pending<()>;

    /// Whether commands can be confined; `Err` says in one sentence what is missing.
    fn ready(&self) -> Result<(), String>;

    /// How often what confines commands died and was made anew.
    fn renewals(&self) -> u64;
}

/// What an executor waits for before it lets a program start.
pub struct Gate(Pending<Result<Recorded, RecordError>>);

impl Gate {
    pub(crate) fn new(opening: Pending<Result<Recorded, RecordError>>) -> Self {
        Self(opening)
    }

    pub async fn open(self) -> Result<Recorded, RecordError> {
        self.0.await
    }
}

/// How an execution ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Ended {
    pub how: How,
    /// The layers of confinement that were in force.
    pub layers: Vec<Layer>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum How {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    Cancelled,
    MemoryLimit(Option<i32>),
    ProcessLimit(Option<i32>),
    CpuLimit(Option<i32>),
    /// It was let go, and what became of it cannot be told any more; it is gone.
    Lost(Refusal),
    /// Nothing ran.
    NotStarted(Refusal),
    /// Nothing ran, because the record could not be opened.
    NotRecorded(RecordError),
}
