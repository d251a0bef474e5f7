//! S4's run as it is kept.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lifecycle::{IllegalRunStep, RunStatus, RunStep, Runtime, TriggerKind, WaitState, transition};
use crate::clock::Timestamp;
use crate::ids::{CorrelationId, JobId, RunId};

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    pub id: RunId,
    /// Counts its changes; a change is made over the version it was made from.
    pub version: u64,
    /// What ties together all that happens in it.
    pub correlation_id: CorrelationId,
    pub project: Option<String>,
    /// `owner/name`.
    pub repository: Option<String>,
    pub agent_key: String,
    pub trigger_kind: TriggerKind,
    /// The `run:*` label; a manual run may have none.
    pub trigger_label: Option<String>,
    pub runtime: Runtime,
    pub namespace: Option<String>,
    pub issue_number: Option<u64>,
    pub pull_request_number: Option<u64>,
    /// The other labels of its issue when it was set off.
    pub labels: BTreeSet<String>,
    pub status: RunStatus,
    pub wait_state: Option<WaitState>,
    pub timer: Timer,
    /// What its agent last said of itself.
    pub reported_status: Option<String>,
    /// Why it ended as it did.
    pub reason: Option<String>,
    /// The job that does its work.
    pub job_id: Option<JobId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

impl Run {
    /// The run after a step.
    pub fn after(&self, step: RunStep, now: Timestamp) -> Result<Self, IllegalRunStep> {
        let status = transition(self.status, step)?;
        let mut next = self.clone();
        next.version += 1;
        next.status = status;
        next.updated_at = now;
        if step == RunStep::Start {
            next.started_at = Some(now);
            next.timer = self.timer.resumed(now);
        }
        if status.has_ended() {
            next.finished_at = Some(now);
            next.wait_state = None;
            next.timer = self.timer.paused(now);
        }
        Ok(next)
    }
}

/// A clock that stands still while a person thinks. It keeps what is left, not when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timer {
    /// What was left when it last began or stopped to run.
    pub remaining: Duration,
    /// Since when it runs; none while it stands still.
    pub since: Option<Timestamp>,
}

impl Timer {
    pub fn standing(remaining: Duration) -> Self {
        Self { remaining, since: None }
    }

    pub fn left(&self, now: Timestamp) -> Duration {
        let run = self.since.map_or(Duration::ZERO, |since| now.since(since));
        self.remaining.saturating_sub(run)
    }

    /// When it runs out, if nothing stops it before.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.since.map(|since| since.after(self.remaining))
    }

    #[must_use]
    pub fn paused(&self, now: Timestamp) -> Self {
        Self::standing(self.left(now))
    }

    #[must_use]
    pub fn resumed(&self, now: Timestamp) -> Self {
        Self {
            remaining: self.left(now),
            since: Some(now),
        }
    }
}
