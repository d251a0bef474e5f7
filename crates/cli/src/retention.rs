//! Retention: what is older than it must be kept goes, by a clock that can be believed.
//!
//! A clock that was set years ahead, by mistake or by somebody who wants the record gone, makes every row old at once. So the
//! age of rows is counted from a moment that was seen to come: the clock's own once this process has watched it run evenly
//! for a day, and before that the last row that is a day old by now.

use std::time::Duration;

use anyhow::Context as _;
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::IdSource;
use countersign_store::Store;

/// How long a clock stands where it does before it is believed.
const BELIEVED_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// How far a clock may run from the time that passes and not have been set.
const STEP_MAX: Duration = Duration::from_secs(600);

/// The clock, as this process has seen it run.
pub(crate) struct Watched {
    /// What it showed when it was looked at first, or when it was set, and how long this machine was up then.
    since: (Timestamp, Duration),
}

impl Watched {
    pub(crate) fn begin() -> Self {
        Self {
            since: (Clock::system().now(), uptime()),
        }
    }

    /// Removes what is older than so many days.
    pub(crate) fn prune(&mut self, record: &Store, days: u32) -> anyhow::Result<()> {
        let now = Clock::system().now();
        let counted_from = match self.is_believed(now, uptime()) {
            true => Some(now),
            false => last_before(record, now)?,
        };
        if let Some(moment) = counted_from {
            record.prune_older_than(days, moment, &IdSource::random())?;
        }
        Ok(())
    }

    fn is_believed(&mut self, now: Timestamp, up: Duration) -> bool {
        let (shown, up_then) = self.since;
        let passed = up.saturating_sub(up_then);
        let expected = shown.after(passed);
        if now.since(expected).max(expected.since(now)) > STEP_MAX {
            tracing::warn!(
                %expected, %now,
                "the clock was set; what is old is counted from the record's own time until the clock has run evenly for a day"
            );
            self.since = (now, up);
            return false;
        }
        passed >= BELIEVED_AFTER
    }
}

/// When the last row was written that is a day old by this clock.
fn last_before(record: &Store, now: Timestamp) -> anyhow::Result<Option<Timestamp>> {
    let day = i64::try_from(BELIEVED_AFTER.as_millis()).unwrap_or(i64::MAX);
    let last = Filter {
        to: Some(Timestamp::from_millis(now.as_millis().saturating_sub(day))),
        limit: 1,
        pick: Pick::Newest,
        ..Filter::everything()
    };
    let rows = record.query_events(&last).context("cannot look for the last row")?;
    let at = |text: &str| Timestamp::parse(text).context("a row has no time");
    rows.first().map(|row| at(&row.timestamp)).transpose()
}

/// How long this machine is up, whatever its clock says; sleep counts. Where the kernel does not tell, no clock is believed.
fn uptime() -> Duration {
    let told = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = told.split('.').next().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_believed_when_it_has_run_evenly_for_a_day_and_not_when_it_was_set() {
        let hours = |count: u64| Duration::from_secs(count * 3_600);
        let begin = Timestamp::from_millis(1_763_203_326_007);
        let mut watched = Watched {
            since: (begin, hours(5)),
        };
        assert!(!watched.is_believed(begin, hours(5)));
        assert!(!watched.is_believed(begin.after(hours(23)), hours(28)));
        assert!(watched.is_believed(begin.after(hours(24)), hours(29)));
        // Ten years ahead, and it stays there.
        let ahead = begin.after(hours(24 * 3_650));
        assert!(!watched.is_believed(ahead, hours(30)));
        assert!(!watched.is_believed(ahead.after(hours(23)), hours(53)));
        assert!(watched.is_believed(ahead.after(hours(24)), hours(54)));
        // Back again.
        assert!(!watched.is_believed(begin.after(hours(50)), hours(55)));
        assert!(watched.is_believed(begin.after(hours(74)), hours(79)));
    }
}
