//! The one place that reads the clock. Wall time is what the record says; how long something took
//! is measured on the monotonic clock by whoever measures it, which this one shows too.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A moment in UTC, printed as RFC 3339 with milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timestamp(i64);

/// Text that is not a moment in time.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not an RFC 3339 time such as `2026-11-15T10:00:00Z`")]
pub struct BadTimestamp {
    text: String,
}

/// Text that is neither a moment nor a time ago.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is neither an RFC 3339 time such as `2026-11-15T10:00:00Z` nor a time ago such as `24h`")]
pub struct BadMoment {
    text: String,
}

impl Timestamp {
    pub fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// The moment this much later; the end of time when there is none.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// How long ago `earlier` was; nothing if it is still to come.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub fn parse(text: &str) -> Result<Self, BadTimestamp> {
        let moment = text.parse::<jiff::Timestamp>().ok().filter(|_| is_within_a_day(text));
        moment
            .map(|moment| Self(moment.as_millisecond()))
            .ok_or_else(|| BadTimestamp { text: text.to_owned() })
    }

    /// A moment, or how long before `now` it was: `90s`, `30m`, `24h`, `7d`.
    pub fn parse_or_ago(text: &str, now: Self) -> Result<Self, BadMoment> {
        let ago = || {
            let (count, unit) = text.split_at(text.len().checked_sub(1)?);
            let millis = match unit {
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            let is_whole = count.bytes().all(|byte| byte.is_ascii_digit());
            let count: i64 = count.parse().ok().filter(|_| is_whole)?;
            // So long ago there was no record, wherever that is.
            Some(Self(now.0.saturating_sub(count.saturating_mul(millis)).max(0)))
        };
        // The last byte may be a part of a character, where nothing is cut.
        let ago = text.is_ascii().then(ago).flatten();
        ago.or_else(|| Self::parse(text).ok())
            .ok_or_else(|| BadMoment { text: text.to_owned() })
    }
}

/// Whether the offset of a time, if it has one, is less than a day, as RFC 3339 wants it.
fn is_within_a_day(text: &str) -> bool {
    let time = text.find(['T', 't', ' ']).map_or("", |at| &text[at..]);
    let Some((_, offset)) = time.split_once(['+', '-']) else {
        return true;
    };
    let hours = offset.get(..2).and_then(|hours| hours.parse::<u8>().ok());
    hours.is_some_and(|hours| hours < 24)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// A moment of this process alone, on a clock that nobody sets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Steady(Duration);

impl Steady {
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Tells the time; tests hold it still.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Fixed(Arc<Hands>),
}

/// A clock that stands still.
#[derive(Debug)]
struct Hands {
    shown_ms: AtomicI64,
    passed_ms: AtomicI64,
}

/// What steady moments are counted from.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    pub fn system() -> Self {
        Self(Source::System)
    }

    pub fn fixed(at: Timestamp) -> Self {
        Self(Source::Fixed(Arc::new(Hands {
            shown_ms: AtomicI64::new(at.0),
            passed_ms: AtomicI64::new(0),
        })))
    }

    /// Moves a clock that stands still; the system's is left alone.
    pub fn advance(&self, by: Duration) {
        match &self.0 {
            Source::System => {}
            Source::Fixed(hands) => {
                let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
                hands.shown_ms.fetch_add(by, Ordering::Relaxed);
                hands.passed_ms.fetch_add(by, Ordering::Relaxed);
            }
        }
    }

    /// Sets a clock that stands still, as people and time servers do: nothing has passed. The system's is left alone.
    pub fn set(&self, to: Timestamp) {
        match &self.0 {
            Source::System => {}
            Source::Fixed(hands) => hands.shown_ms.store(to.0, Ordering::Relaxed),
        }
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp(jiff::Timestamp::now().as_millisecond()),
            Source::Fixed(hands) => Timestamp(hands.shown_ms.load(Ordering::Relaxed)),
        }
    }

    /// The same moment, for what is measured within this process.
    pub fn steady(&self) -> Steady {
        match &self.0 {
            Source::System => Steady(BEGUN.elapsed()),
            Source::Fixed(hands) => {
                let passed = u64::try_from(hands.passed_ms.load(Ordering::Relaxed)).unwrap_or(0);
                Steady(Duration::from_millis(passed))
            }
        }
    }
}

/// Notices when a clock was set.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    shown: Timestamp,
    steady: Steady,
}

/// A clock that is kept right by small steps was not set.
const STEP_MAX: Duration = Duration::from_secs(30);

impl Watch {
    pub fn on(clock: &Clock) -> Self {
        Self {
            shown: clock.now(),
            steady: clock.steady(),
        }
    }

    /// By how many milliseconds it was set ahead, or back, since this was last asked; none when it was not.
    pub fn step_ms(&mut self, clock: &Clock) -> Option<i64> {
        let before = std::mem::replace(self, Self::on(clock));
        let expected = before.shown.after(self.steady.since(before.steady));
        let step = self.shown.0.saturating_sub(expected.0);
        (u128::from(step.unsigned_abs()) > STEP_MAX.as_millis()).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_prints_with_milliseconds_and_reads_back() {
        let moment = Timestamp::from_millis(1_763_203_326_007);
        assert_eq!(moment.to_string(), "2025-11-15T10:42:06.007Z");
        assert_eq!(Timestamp::parse(&moment.to_string()).unwrap(), moment);
        assert!(Timestamp::parse("yesterday").is_err());
    }

    #[test]
    fn a_clock_that_was_set_is_told_from_one_that_went_on() {
        let begin = Timestamp::from_millis(1_763_203_326_007);
        let clock = Clock::fixed(begin);
        let mut watch = Watch::on(&clock);
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(watch.step_ms(&clock), None);
        clock.set(begin);
        assert_eq!(watch.step_ms(&clock), Some(-3_600_000));
        assert_eq!(watch.step_ms(&clock), None);
        clock.advance(Duration::from_secs(1));
        clock.set(begin.after(Duration::from_secs(61)));
        assert_eq!(watch.step_ms(&clock), Some(60_000));
        clock.set(begin.after(Duration::from_secs(62)));
        assert_eq!(watch.step_ms(&clock), None);
    }

    #[test]
    fn a_time_ago_is_counted_back_from_now() {
        let now = Timestamp::from_millis(1_763_203_326_007);
        for (text, millis) in [
            ("90s", 90_000),
            ("30m", 1_800_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
        ] {
            let ago = Timestamp::parse_or_ago(text, now).unwrap();
            assert_eq!(now.as_millis() - ago.as_millis(), millis, "{text}");
        }
        let written = "2025-11-15T10:42:06.007Z";
        assert_eq!(Timestamp::parse_or_ago(written, now).unwrap(), now);
        let long_ago = Timestamp::parse_or_ago("99999999999999999d", now).unwrap();
        assert_eq!(long_ago.as_millis(), 0);
        for bad in ["", "h", "-1h", "+1h", "1.5h", "24", "1w", "é"] {
            assert!(Timestamp::parse_or_ago(bad, now).is_err(), "{bad}");
        }
    }
}
