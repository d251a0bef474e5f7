//! The life of a run. Pure: state and step in, next state or a typed refusal out.
//!
//! ```text
//! pending -> running -> succeeded | failed | cancelled
//! pending -> failed | cancelled
//! ```
//!
//! The database guards the same arrows.

use crate::audit::event::EventType;
use crate::job::lifecycle::words;

words! {
    /// Where a run stands.
    RunStatus {
        /// Enqueued; waits for its turn.
        Pending "pending",
        Running "running",
        Succeeded "succeeded",
        Failed "failed",
        Cancelled "cancelled",
    }
}

impl RunStatus {
    pub fn has_ended(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
        }
    }
}

words! {
    /// What can happen to a run.
    RunStep {
        /// Its agent's job was started.
        Start "start",
        Succeed "succeed",
        Fail "fail",
        Cancel "be cancelled",
    }
}

/// A step that does not follow from where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a run that is {} cannot {}", from.as_str(), step.as_str())]
pub struct IllegalRunStep {
    pub from: RunStatus,
    pub step: RunStep,
}

/// The one transition function of runs.
pub fn transition(status: RunStatus, step: RunStep) -> Result<RunStatus, IllegalRunStep> {
    use RunStatus::{Cancelled, Failed, Pending, Running, Succeeded};
    match (status, step) {
        (Pending, RunStep::Start) => Ok(Running),
        (Running, RunStep::Succeed) => Ok(Succeeded),
        (Pending | Running, RunStep::Fail) => Ok(Failed),
        (Pending | Running, RunStep::Cancel) => Ok(Cancelled),
        (Pending, RunStep::Succeed)
        | (Running, RunStep::Start)
        | (Succeeded | Failed | Cancelled, RunStep::Start | RunStep::Succeed | RunStep::Fail | RunStep::Cancel) => {
            Err(IllegalRunStep { from: status, step })
        }
    }
}

/// The event of the record that tells of a step.
pub fn recorded_as(step: RunStep) -> EventType {
    match step {
        RunStep::Start => EventType::RunStarted,
        RunStep::Succeed | RunStep::Fail => EventType::RunFinished,
        RunStep::Cancel => EventType::RunCanceled,
    }
}

words! {
    /// What a run waits for while its clock stands still.
    WaitState {
        /// A person's answer to a question of the run.
        Mcp "mcp",
        OwnerReview "owner_review",
        Backpressure "backpressure",
    }
}

words! {
    /// What set a run off.
    TriggerKind {
        Label "label",
        /// A review that asked for changes.
        Review "review",
        Manual "manual",
    }
}

words! {
    /// What a run's agent is given around it.
    Runtime {
        /// A namespace of the cluster besides the code.
        FullEnv "full-env",
        CodeOnly "code-only",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_that_is_not_drawn_is_refused() {
        use RunStatus::{Cancelled, Failed, Pending, Running, Succeeded};
        let arrows = [
            (Pending, RunStep::Start, Running),
            (Pending, RunStep::Fail, Failed),
            (Pending, RunStep::Cancel, Cancelled),
            (Running, RunStep::Succeed, Succeeded),
            (Running, RunStep::Fail, Failed),
            (Running, RunStep::Cancel, Cancelled),
        ];
        for from in RunStatus::ALL.iter().copied() {
            for step in RunStep::ALL.iter().copied() {
                let drawn = arrows.iter().find(|(it, by, _)| (*it, *by) == (from, step));
                assert_eq!(
                    transition(from, step).ok(),
                    drawn.map(|(_, _, to)| *to),
                    "{from:?} {step:?}"
                );
            }
        }
    }
}
