//! The lives of a job and of its session. Pure: state and step in, next state or a typed refusal out.
//!
//! ```text
//! job:      pending -> running -> completed | failed | cancelled | timeout
//!           pending -> cancelled | failed | timeout
//! session:  initializing -> active <-> idle
//!           active | idle -> recovering -> active
//!           any of these -> terminated
//! ```
//!
//! Beneath `pending` and `running` stands a [`SubState`]: why nothing seems to happen just now. The
//! database guards the same arrows.

use crate::audit::event::EventType;

macro_rules! words {
    ($(#[$doc:meta])* $kind:ident { $($(#[$note:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $kind { $($(#[$note])* $variant,)* }

        impl $kind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.as_str() == text)
            }
        }
    };
}
pub(crate) use words;

words! {
    /// S1's JobStatus.
    JobStatus {
        /// Accepted, waits for its turn or for its agent to begin.
        Pending "pending",
        Running "running",
        Completed "completed",
        Failed "failed",
        Cancelled "cancelled",
        Timeout "timeout",
    }
}

impl JobStatus {
    pub fn has_ended(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout => true,
        }
    }
}

words! {
    /// What can happen to a job.
    JobStep {
        /// Its agent has begun the conversation.
        Start "start",
        Complete "complete",
        Fail "fail",
        Cancel "cancel",
        TimeOut "time out",
    }
}

/// A step that does not follow from where a job stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a job that is {} cannot {}", from.as_str(), step.as_str())]
pub struct IllegalJobStep {
    pub from: JobStatus,
    pub step: JobStep,
}

/// The one transition function of jobs.
pub fn transition(status: JobStatus, step: JobStep) -> Result<JobStatus, IllegalJobStep> {
    use JobStatus::{Cancelled, Completed, Failed, Pending, Running, Timeout};
    match (status, step) {
        (Pending, JobStep::Start) => Ok(Running),
        (Running, JobStep::Complete) => Ok(Completed),
        (Pending | Running, JobStep::Fail) => Ok(Failed),
        (Pending | Running, JobStep::Cancel) => Ok(Cancelled),
        (Pending | Running, JobStep::TimeOut) => Ok(Timeout),
        (Pending, JobStep::Complete)
        | (Running, JobStep::Start)
        | (
            Completed | Failed | Cancelled | Timeout,
            JobStep::Start | JobStep::Complete | JobStep::Fail | JobStep::Cancel | JobStep::TimeOut,
        ) => Err(IllegalJobStep { from: status, step }),
    }
}

/// The event of the record that tells of a step.
pub fn recorded_as(step: JobStep) -> EventType {
    match step {
        JobStep::Start => EventType::JobStarted,
        JobStep::Complete => EventType::JobCompleted,
        JobStep::Fail => EventType::JobFailed,
        JobStep::Cancel => EventType::JobCancelled,
        JobStep::TimeOut => EventType::JobTimeout,
    }
}

words! {
    /// Why nothing seems to happen to a job that has not ended.
    SubState {
        /// The agent asked, and a person thinks.
        WaitingApproval "waiting_approval",
        /// Its turn is being ended.
        Interrupting "interrupting",
        /// Its agent may not go on before a limit is reset.
        PausedLimit "paused_limit",
        /// It lost its agent or its supervisor, and is being taken up again.
        Recovering "recovering",
    }
}

words! {
    /// S1's SessionStatus.
    SessionStatus {
        /// Its agent is being started.
        Initializing "initializing",
        /// A turn is under way.
        Active "active",
        /// Waits for the next message.
        Idle "idle",
        /// Its agent is being started again.
        Recovering "recovering",
        Terminated "terminated",
    }
}

words! {
    /// What can happen to a session.
    SessionStep {
        Activate "become active",
        Rest "become idle",
        Recover "recover",
        Terminate "be terminated",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a session that is {} cannot {}", from.as_str(), step.as_str())]
pub struct IllegalSessionStep {
    pub from: SessionStatus,
    pub step: SessionStep,
}

/// The one transition function of sessions.
pub fn session_transition(status: SessionStatus, step: SessionStep) -> Result<SessionStatus, IllegalSessionStep> {
    use SessionStatus::{Active, Idle, Initializing, Recovering, Terminated};
    match (status, step) {
        (Initializing | Idle | Recovering, SessionStep::Activate) => Ok(Active),
        (Active, SessionStep::Rest) => Ok(Idle),
        (Active | Idle, SessionStep::Recover) => Ok(Recovering),
        (Initializing | Active | Idle | Recovering, SessionStep::Terminate) => Ok(Terminated),
        (Initializing | Idle | Recovering, SessionStep::Rest)
        | (Active, SessionStep::Activate)
        | (Initializing | Recovering, SessionStep::Recover)
        | (Terminated, SessionStep::Activate | SessionStep::Rest | SessionStep::Recover | SessionStep::Terminate) => {
            Err(IllegalSessionStep { from: status, step })
        }
    }
}

/// What becomes of a session when its job ends: one that was at work rests, one whose agent is not there is over. None where
/// it stays as it is.
pub fn session_step_at_the_end(status: SessionStatus) -> Option<SessionStep> {
    match status {
        SessionStatus::Active => Some(SessionStep::Rest),
        SessionStatus::Initializing | SessionStatus::Recovering => Some(SessionStep::Terminate),
        SessionStatus::Idle | SessionStatus::Terminated => None,
    }
}

/// The event of the record that tells of a session's step.
pub fn session_recorded_as(step: SessionStep) -> EventType {
    match step {
        SessionStep::Activate => EventType::JobSessionActive,
        SessionStep::Rest => EventType::JobSessionIdle,
        SessionStep::Recover => EventType::JobSessionRecovering,
        SessionStep::Terminate => EventType::JobSessionTerminated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_table_of_a_jobs_legal_steps() {
        use JobStep::{Cancel, Complete, Fail, Start, TimeOut};
        for status in JobStatus::ALL {
            let expected: &[JobStep] = match status {
                JobStatus::Pending => &[Start, Fail, Cancel, TimeOut],
                JobStatus::Running => &[Complete, Fail, Cancel, TimeOut],
                JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled | JobStatus::Timeout => &[],
            };
            let legal: Vec<_> = JobStep::ALL
                .iter()
                .copied()
                .filter(|step| transition(*status, *step).is_ok())
                .collect();
            assert_eq!(legal, expected, "{status:?}");
        }
        let refused = transition(JobStatus::Completed, Start).unwrap_err();
        assert_eq!(refused.to_string(), "a job that is completed cannot start");
    }

    #[test]
    fn the_table_of_a_sessions_legal_steps() {
        use SessionStep::{Activate, Recover, Rest, Terminate};
        for status in SessionStatus::ALL {
            let expected: &[SessionStep] = match status {
                SessionStatus::Initializing => &[Activate, Terminate],
                SessionStatus::Active => &[Rest, Recover, Terminate],
                SessionStatus::Idle => &[Activate, Recover, Terminate],
                SessionStatus::Recovering => &[Activate, Terminate],
                SessionStatus::Terminated => &[],
            };
            let legal: Vec<_> = SessionStep::ALL
                .iter()
                .copied()
                .filter(|step| session_transition(*status, *step).is_ok())
                .collect();
            assert_eq!(legal, expected, "{status:?}");
            let at_the_end = session_step_at_the_end(*status);
            assert!(at_the_end.is_none_or(|step| legal.contains(&step)), "{status:?}");
        }
    }

    proptest! {
        /// Whatever is tried in whatever order: a job begins at most once and ends at most once, completes
        /// only what began, and nothing follows its end.
        #[test]
        fn a_job_ends_at_most_once_and_stays_ended(tried in proptest::collection::vec(0..JobStep::ALL.len(), 0..24)) {
            let mut status = JobStatus::Pending;
            let (mut begun, mut ended) = (0, 0);
            for step in tried.into_iter().map(|index| JobStep::ALL[index]) {
                let Ok(next) = transition(status, step) else { continue };
                prop_assert_eq!(ended, 0);
                begun += usize::from(next == JobStatus::Running);
                ended += usize::from(next.has_ended());
                prop_assert!(next != JobStatus::Pending, "nothing leads back");
                prop_assert!(next != JobStatus::Completed || begun == 1);
                status = next;
            }
            prop_assert!(begun <= 1 && ended <= 1);
        }

        #[test]
        fn a_session_is_used_only_while_it_lasts(tried in proptest::collection::vec(0..SessionStep::ALL.len(), 0..24)) {
            let mut status = SessionStatus::Initializing;
            for step in tried.into_iter().map(|index| SessionStep::ALL[index]) {
                let Ok(next) = session_transition(status, step) else { continue };
                prop_assert!(status != SessionStatus::Terminated);
                prop_assert!(next != SessionStatus::Initializing, "nothing leads back");
                prop_assert!(next != SessionStatus::Idle || status == SessionStatus::Active);
                status = next;
            }
        }
    }
}
