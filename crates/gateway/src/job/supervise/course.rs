//! What follows for a job from what happened to its agent. Pure: no clock, no world.

use std::time::Duration;

use super::super::driver::{DriverError, TurnEnd};
use super::super::lifecycle::JobStep;
use super::super::state::ErrorDetails;
use crate::clock::Timestamp;
use crate::error::ErrorCode;
use crate::limits;

/// Why a turn is being ended, where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    None,
    /// Somebody interrupted it.
    Interrupt,
    /// Its time is over.
    TimeOut,
}

/// What a job has behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind {
    pub wish: Wish,
    pub retries: u32,
    /// Until when the agent may not go on, if it said that it may not.
    pub limited_until: Option<Timestamp>,
}

/// What follows.
#[must_use]
#[derive(Clone, PartialEq, Debug)]
pub enum Next {
    End(Ending),
    /// Once more, after a pause.
    TryAgain {
        pause: Duration,
        why: String,
    },
    /// By another process, at once.
    HandOn {
        why: String,
    },
    /// Once more when the limit is reset.
    PauseUntil {
        until: Timestamp,
        why: String,
    },
}

/// How a job ends.
#[derive(Clone, PartialEq, Debug)]
pub struct Ending {
    pub step: JobStep,
    pub result: Option<String>,
    pub error: Option<ErrorDetails>,
}

impl Ending {
    pub fn failed(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            step: JobStep::Fail,
            result: None,
            error: Some(ErrorDetails::new(code, message)),
        }
    }

    pub fn cancelled() -> Self {
        Self {
            step: JobStep::Cancel,
            result: None,
            error: Some(ErrorDetails::new(ErrorCode::Cancelled, "the job was interrupted")),
        }
    }

    pub fn timed_out() -> Self {
        let message = "the job's time was over; start it with a longer `timeout`";
        Self {
            step: JobStep::TimeOut,
            result: None,
            error: Some(ErrorDetails::new(ErrorCode::CommandTimeout, message)),
        }
    }
}

/// After a turn ended by the agent's own word.
pub fn after_turn(end: &TurnEnd, behind: Behind) -> Next {
    match (end, behind.wish) {
        // It was done before anybody could stop it, unless its time was over.
        (TurnEnd::Completed { result }, Wish::None | Wish::Interrupt) => Next::End(Ending {
            step: JobStep::Complete,
            result: result.clone(),
            error: None,
        }),
        (
            TurnEnd::Completed { .. } | TurnEnd::Interrupted | TurnEnd::Failed { .. } | TurnEnd::Crashed { .. },
            Wish::TimeOut,
        ) => Next::End(Ending::timed_out()),
        (TurnEnd::Interrupted | TurnEnd::Failed { .. } | TurnEnd::Crashed { .. }, Wish::Interrupt) => {
            Next::End(Ending::cancelled())
        }
        (TurnEnd::Crashed { message, .. }, Wish::None) => after_loss(message, behind),
        (TurnEnd::Interrupted, Wish::None) => once_more("the agent broke off its turn", behind),
        (TurnEnd::Failed { message, retryable }, Wish::None) => match (retryable, behind.limited_until) {
            (_, Some(until)) => Next::PauseUntil {
                until,
                why: message.clone(),
            },
            (true, None) => once_more(message, behind),
            (false, None) => Next::End(Ending::failed(ErrorCode::UpstreamError, message).final_()),
        },
    }
}

/// After an agent that was gone, or hung, before its turn ended.
pub fn after_loss(how: &str, behind: Behind) -> Next {
    match (behind.wish, behind.limited_until) {
        (Wish::TimeOut, _) => Next::End(Ending::timed_out()),
        (Wish::Interrupt, _) => Next::End(Ending::cancelled()),
        (Wish::None, Some(until)) => Next::PauseUntil {
            until,
            why: how.to_owned(),
        },
        // What killed a process once has mostly passed; whoever dies again waits as after any failure.
        (Wish::None, None) if behind.retries == 0 => Next::TryAgain {
            pause: limits::JOB_RESTART_PAUSE,
            why: how.to_owned(),
        },
        (Wish::None, None) => once_more(how, behind),
    }
}

/// After an agent that could not be started or taken up.
pub fn after_refusal(error: &DriverError, behind: Behind) -> Next {
    match error {
        DriverError::Missing { .. } | DriverError::Unusable { .. } | DriverError::Unsupported(_) => {
            Next::End(Ending::failed(ErrorCode::ConfigurationError, error.to_string()))
        }
        DriverError::Lost(_) => Next::End(Ending::failed(ErrorCode::UpstreamError, error.to_string()).final_()),
        DriverError::Silent(_) | DriverError::Protocol(_) | DriverError::Process(_) => {
            after_loss(&error.to_string(), behind)
        }
    }
}

/// What to say of an agent whose process ended.
pub fn exit_words(status: Option<i32>, signal: Option<i32>) -> String {
    match (status, signal) {
        (_, Some(signal)) => format!("the agent was ended by signal {signal} before its turn was"),
        (Some(status), None) => format!("the agent ended with status {status} before its turn did"),
        (None, None) => "the agent was gone before its turn ended".to_owned(),
    }
}

fn once_more(why: &str, behind: Behind) -> Next {
    if behind.retries >= limits::JOB_RETRIES_MAX {
        let message = format!("{why}; it was tried {} times", behind.retries + 1);
        return Next::End(Ending::failed(ErrorCode::UpstreamError, message));
    }
    Next::TryAgain {
        pause: pause_before(behind.retries + 1),
        why: why.to_owned(),
    }
}

/// Twice as long each time.
fn pause_before(retry: u32) -> Duration {
    let factor = 1_u32.checked_shl(retry.saturating_sub(1)).unwrap_or(u32::MAX);
    limits::JOB_RETRY_PAUSE
        .saturating_mul(factor)
        .min(limits::JOB_RETRY_PAUSE_MAX)
}

impl Ending {
    /// The same again would end the same way.
    fn final_(mut self) -> Self {
        if let Some(error) = &mut self.error {
            error.retryable = false;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(wish: Wish, retries: u32) -> Behind {
        Behind {
            wish,
            retries,
            limited_until: None,
        }
    }

    fn completed() -> TurnEnd {
        TurnEnd::Completed {
            result: Some("done".to_owned()),
        }
    }

    fn failed(retryable: bool) -> TurnEnd {
        TurnEnd::Failed {
            message: "no".to_owned(),
            retryable,
        }
    }

    fn crashed() -> TurnEnd {
        TurnEnd::Crashed {
            message: "gone".to_owned(),
            status: None,
            signal: Some(9),
        }
    }

    fn step(next: &Next) -> Option<JobStep> {
        match next {
            Next::End(ending) => Some(ending.step),
            Next::TryAgain { .. } | Next::HandOn { .. } | Next::PauseUntil { .. } => None,
        }
    }

    #[test]
    fn how_a_turn_ended_and_who_wished_it_decide_how_a_job_ends() {
        for (end, wish, expected) in [
            (completed(), Wish::None, Some(JobStep::Complete)),
            (completed(), Wish::Interrupt, Some(JobStep::Complete)),
            (completed(), Wish::TimeOut, Some(JobStep::TimeOut)),
            (TurnEnd::Interrupted, Wish::None, None),
            (TurnEnd::Interrupted, Wish::Interrupt, Some(JobStep::Cancel)),
            (TurnEnd::Interrupted, Wish::TimeOut, Some(JobStep::TimeOut)),
            (failed(true), Wish::None, None),
            (failed(false), Wish::None, Some(JobStep::Fail)),
            (failed(true), Wish::Interrupt, Some(JobStep::Cancel)),
            (crashed(), Wish::None, None),
            (crashed(), Wish::Interrupt, Some(JobStep::Cancel)),
            (crashed(), Wish::TimeOut, Some(JobStep::TimeOut)),
        ] {
            let next = after_turn(&end, behind(wish, 0));
            assert_eq!(step(&next), expected, "{end:?} {wish:?}");
        }
        for (wish, expected) in [
            (Wish::None, None),
            (Wish::Interrupt, Some(JobStep::Cancel)),
            (Wish::TimeOut, Some(JobStep::TimeOut)),
        ] {
            assert_eq!(step(&after_loss("gone", behind(wish, 0))), expected, "{wish:?}");
        }
    }

    #[test]
    fn what_may_pass_is_tried_again_a_bounded_number_of_times_with_growing_pauses() {
        let mut pauses = Vec::new();
        for retries in 0..limits::JOB_RETRIES_MAX {
            match after_turn(&failed(true), behind(Wish::None, retries)) {
                Next::TryAgain { pause, .. } => pauses.push(pause.as_secs()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(pauses, [2, 4, 8]);
        let last = after_turn(&failed(true), behind(Wish::None, limits::JOB_RETRIES_MAX));
        assert_eq!(step(&last), Some(JobStep::Fail));
        assert_eq!(pause_before(60), limits::JOB_RETRY_PAUSE_MAX);
    }

    #[test]
    fn an_agent_that_is_gone_is_started_again_soon_once_and_later_after_growing_pauses() {
        let pauses =
            (0..limits::JOB_RETRIES_MAX).map(|retries| match after_loss("gone", behind(Wish::None, retries)) {
                Next::TryAgain { pause, .. } => pause,
                other => panic!("{other:?}"),
            });
        let expected = [
            limits::JOB_RESTART_PAUSE,
            limits::JOB_RETRY_PAUSE * 2,
            limits::JOB_RETRY_PAUSE * 4,
        ];
        assert_eq!(pauses.collect::<Vec<_>>(), expected);
        let last = after_loss("gone", behind(Wish::None, limits::JOB_RETRIES_MAX));
        assert_eq!(step(&last), Some(JobStep::Fail));
    }

    #[test]
    fn a_limit_pauses_and_is_no_failure() {
        let until = Timestamp::from_millis(9);
        let limited = Behind {
            limited_until: Some(until),
            ..behind(Wish::None, limits::JOB_RETRIES_MAX)
        };
        for next in [after_turn(&failed(false), limited), after_loss("gone", limited)] {
            assert!(matches!(next, Next::PauseUntil { until: at, .. } if at == until));
        }
    }

    #[test]
    fn an_agent_that_is_missing_is_said_to_be() {
        let missing = DriverError::Missing {
            agent: "codex".to_owned(),
            install: "npm i -g @openai/codex".to_owned(),
        };
        let Next::End(ending) = after_refusal(&missing, behind(Wish::None, 0)) else {
            panic!("it ends")
        };
        let error = ending.error.unwrap();
        assert_eq!(error.code, "CONFIGURATION_ERROR");
        assert!(error.message.contains("npm i -g @openai/codex"));
    }
}
