//! How often a declared tool may be used. Counted by the process that serves it, since it began.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal};

const MINUTE: Duration = Duration::from_secs(60);

/// What a tool file says under `limits`. What is absent is not limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ToolLimits {
    /// At work at once; more wait for their turn.
    pub concurrency: Option<usize>,
    pub rate_per_minute: Option<usize>,
    pub max_total: Option<u64>,
}

/// What was used of the limits; it outlives another reading of the file.
#[derive(Debug)]
pub struct Usage {
    limits: ToolLimits,
    counted: Mutex<Counted>,
    turns: Option<Arc<Semaphore>>,
}

#[derive(Debug, Default)]
struct Counted {
    total: u64,
    /// The beginnings within the last minute, oldest first.
    latest: VecDeque<Timestamp>,
}

impl Usage {
    pub fn new(limits: ToolLimits) -> Self {
        Self {
            limits,
            counted: Mutex::default(),
            turns: limits.concurrency.map(|turns| Arc::new(Semaphore::new(turns))),
        }
    }

    /// Goes on, in the tool that takes this one's place, with what was counted here.
    pub(super) fn hand_over(&self, to: &Self) {
        let counted = {
            let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            Counted {
                total: counted.total,
                latest: counted.latest.clone(),
            }
        };
        *to.counted.lock().unwrap_or_else(PoisonError::into_inner) = counted;
    }

    /// Whether one more use could begin now, so that nobody is asked in vain.
    pub fn has_room(&self, tool: &str, now: Timestamp) -> Result<(), Refusal> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        self.room(&mut counted, tool, now)
    }

    /// Counts one more use, or says why there is none.
    pub fn begin(&self, tool: &str, now: Timestamp) -> Result<(), Refusal> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        self.room(&mut counted, tool, now)?;
        counted.total += 1;
        if self.limits.rate_per_minute.is_some() {
            counted.latest.push_back(now);
        }
        Ok(())
    }

    fn room(&self, counted: &mut Counted, tool: &str, now: Timestamp) -> Result<(), Refusal> {
        if let Some(max) = self.limits.max_total.filter(|max| counted.total >= *max) {
            let message = format!("the tool `{tool}` may be used {max} times in all, and was");
            return Err(Refusal::new(ErrorCode::LimitExceeded, message).with("max_total", max));
        }
        while counted.latest.front().is_some_and(|at| now.since(*at) >= MINUTE) {
            counted.latest.pop_front();
        }
        match self.limits.rate_per_minute {
            Some(max) if counted.latest.len() >= max => {
                let message = format!("the tool `{tool}` may be used {max} times a minute; try again later");
                Err(Refusal::new(ErrorCode::QueueFull, message).with("rate_per_minute", max))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A turn at working, where there are only so many.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.as_ref()?.clone().acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_tool_is_used_so_often_a_minute_and_no_more() {
        let usage = Usage::new(ToolLimits {
            rate_per_minute: Some(2),
            ..ToolLimits::default()
        });
        assert!(usage.begin("t", at(0)).is_ok() && usage.begin("t", at(30)).is_ok());
        assert_eq!(usage.begin("t", at(59)).unwrap_err().code, ErrorCode::QueueFull);
        assert!(usage.begin("t", at(60)).is_ok());
        assert!(usage.has_room("t", at(61)).is_err());
    }

    #[test]
    fn the_total_outlives_another_reading_of_the_file() {
        let limits = ToolLimits {
            max_total: Some(1),
            ..ToolLimits::default()
        };
        let before = Usage::new(limits);
        assert!(before.begin("t", at(0)).is_ok());
        let after = Usage::new(limits);
        before.hand_over(&after);
        assert_eq!(after.begin("t", at(999)).unwrap_err().code, ErrorCode::LimitExceeded);
    }
}
