//! Moments as pages show them: exact for machines and on a second look, short for people.

use countersign_gateway::clock::Timestamp;

/// A moment, with how far away it is.
pub(super) struct Moment {
    /// RFC 3339.
    pub(super) at: String,
    pub(super) away: String,
}

impl Moment {
    pub(super) fn of(at: Timestamp, now: Timestamp) -> Self {
        let away = match at > now {
            true => format!("in {}", short(at.since(now).as_secs())),
            false => format!("{} ago", short(now.since(at).as_secs())),
        };
        Self {
            at: at.to_string(),
            away,
        }
    }

    /// Of a moment as the record keeps it.
    pub(super) fn parse(text: &str, now: Timestamp) -> Self {
        match Timestamp::parse(text) {
            Ok(at) => Self::of(at, now),
            Err(_) => Self {
                at: text.to_owned(),
                away: text.to_owned(),
            },
        }
    }
}

/// The largest unit that says enough.
fn short(seconds: u64) -> String {
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min", seconds / 60),
        3_600..=86_399 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// How long something took, or may.
pub(super) fn spoken_millis(millis: u64) -> String {
    match millis {
        0..=999 => format!("{millis} ms"),
        1_000..=59_999 if millis.is_multiple_of(1_000) => format!("{} s", millis / 1_000),
        1_000..=59_999 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => match (millis / 3_600_000, millis / 60_000 % 60, millis / 1_000 % 60) {
            (0, minutes, 0) => format!("{minutes} min"),
            (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
            (hours, 0, _) => format!("{hours} h"),
            (hours, minutes, _) => format!("{hours} h {minutes} min"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_says_how_far_away_it_is() {
        let now = Timestamp::from_millis(10_000_000);
        let away = |millis| Moment::of(Timestamp::from_millis(millis), now).away;
        assert_eq!(away(10_000_000 - 5_000), "5 s ago");
        assert_eq!(away(10_000_000 + 90_000), "in 1 min");
        assert_eq!(away(10_000_000 - 7_200_000), "2 h ago");
        assert_eq!(away(10_000_000 + 2 * 86_400_000), "in 2 d");
    }

    #[test]
    fn a_time_has_the_units_that_it_needs() {
        for (millis, text) in [
            (7, "7 ms"),
            (1_000, "1 s"),
            (1_340, "1.3 s"),
            (60_000, "1 min"),
            (95_000, "1 min 35 s"),
            (3_600_000, "1 h"),
            (5_400_000, "1 h 30 min"),
        ] {
            assert_eq!(spoken_millis(millis), text);
        }
    }
}
