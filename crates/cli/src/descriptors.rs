//! How many files this process may have open, and how many of them its clients may take. A server whose clients
//! took them all could neither answer the next one nor start a command nor write its record.

use countersign_server::limits::CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::start::BadUsage;

/// Whoever may open fewer files runs no command: the record, the helper process and one call take half of them.
const LEAST: u64 = 64;
/// Kept for what is no connection: the record, commands and their streams, agents.
const KEPT: u64 = 1_024;

/// Takes what is needed to run commands at all, where the system lets us. To be asked before anything is opened: libraries
/// that we use end the process where they cannot open a file.
pub(crate) fn require_least() -> Result<(), BadUsage> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= LEAST) {
        return Ok(());
    }
    let most = now.maximum.map_or(KEPT, |most| most.min(KEPT));
    let more = Rlimit {
        current: Some(most),
        maximum: now.maximum,
    };
    if most >= LEAST && setrlimit(Resource::Nofile, more).is_ok() {
        return Ok(());
    }
    Err(BadUsage(format!(
        "too few files may be open at once: {most}, and commands need {LEAST} at least; raise the limit (`ulimit -n {KEPT}`, \
         or `LimitNOFILE` of a service)"
    )))
}

/// Takes as many as all connections need, where the system lets us. What it gives at first (1,024 as a rule) is meant
/// for programs that know no better.
pub(crate) fn take_enough() {
    let now = getrlimit(Resource::Nofile);
    let Some(more) = wanted(now) else { return };
    if let Err(error) = setrlimit(Resource::Nofile, more) {
        tracing::warn!(%error, "cannot have more files open; fewer clients may connect at once");
    }
}

/// How many connections there may be at once.
pub(crate) fn for_connections() -> usize {
    shared(getrlimit(Resource::Nofile).current)
}

/// The limits that are enough, unless those of now are.
fn wanted(now: Rlimit) -> Option<Rlimit> {
    let enough = CONNECTIONS_MAX as u64 + KEPT;
    let most = now.maximum.map_or(enough, |most| most.min(enough));
    let is_short = now.current.is_some_and(|current| current < most);
    is_short.then_some(Rlimit {
        current: Some(most),
        maximum: now.maximum,
    })
}

/// Half of a few, and all but those that are kept of many.
fn shared(open_max: Option<u64>) -> usize {
    let Some(open_max) = open_max else {
        return CONNECTIONS_MAX;
    };
    let left = open_max - KEPT.min(open_max / 2);
    usize::try_from(left).map_or(CONNECTIONS_MAX, |left| left.min(CONNECTIONS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_all_files_that_may_be_open() {
        for (open_max, connections) in [
            (None, CONNECTIONS_MAX),
            (Some(1 << 20), CONNECTIONS_MAX),
            (Some(5_120), 4_096),
            (Some(4_096), 3_072),
            (Some(1_024), 512),
            (Some(2), 1),
        ] {
            assert_eq!(shared(open_max), connections, "{open_max:?}");
        }
    }

    #[test]
    fn as_many_files_are_wanted_as_connections_need_and_no_more_than_there_may_be() {
        let limits = |current, maximum| Rlimit { current, maximum };
        for (now, then) in [
            (limits(Some(1_024), Some(1 << 19)), Some(5_120)),
            (limits(Some(1_024), None), Some(5_120)),
            (limits(Some(1_024), Some(4_096)), Some(4_096)),
            (limits(Some(4_096), Some(4_096)), None),
            (limits(Some(65_536), Some(65_536)), None),
            (limits(None, None), None),
        ] {
            assert_eq!(wanted(now).and_then(|more| more.current), then);
        }
    }
}
