//! The sweeper: closes commands that a process left open when it died.
//!
//! A command belongs to the process that opened it; while that one lives nobody touches it. Two
//! sweepers may run at once: closing is conditional on the command being open, so one event results.

use countersign_gateway::audit::RecordError;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::IdSource;
use countersign_gateway::limits;

use super::link::Link;
use super::node::Node;
use super::trouble::Trouble;
use super::{PgStore, approvals, proving, trouble};
use crate::rows::commands::{ORPHAN_COLUMNS, Orphan, VOUCHING, orphan};
use crate::waiting::count_swept;

impl PgStore {
    /// Closes abandoned commands, and sessions that lived in a process that is gone; gives the number of
    /// commands. A command that waits for an answer is not abandoned: it lies here until somebody decides
    /// and its caller comes back. Cheap when none is open. Blocks.
    pub fn sweep_abandoned(&self, now: Timestamp, ids: &IdSource) -> Result<usize, RecordError> {
        let forgotten = self.readers.read(Node::forget_gone);
        forgotten.map_err(|error| trouble::unavailable(&error))?;
        self.sweep_sessions(now, ids)?;
        self.sweep_acts(now, ids)?;
        let mut waiting = Vec::new();
        for orphan in self.orphans(now)? {
            if let Some(change) = orphan.closing(now, ids) {
                waiting.push(self.send(change)?);
            }
        }
        count_swept(waiting)
    }

    fn orphans(&self, now: Timestamp) -> Result<Vec<Orphan>, RecordError> {
        // What was denied is told to the caller that comes back, who is given a day to do so.
        let unheard = now.as_millis() - i64::try_from(limits::APPROVAL_USABLE_FOR.as_millis()).unwrap_or(i64::MAX);
        let orphans = self.readers.read(|link| {
            let distinct = "SELECT DISTINCT process FROM open_commands";
            let mut orphans = Vec::new();
            for process in link.all(distinct, &[], |row| Ok(row.try_get::<_, String>(0)?))? {
                if !self.site.node.is_alive(link, &process)? {
                    orphans.extend(left_by(link, &process, unheard)?);
                }
            }
            for orphan in &mut orphans {
                let rest = "WHERE owner = $1 AND request_id = $2 ORDER BY created_at_ms DESC, arrival DESC LIMIT 1";
                let key = (orphan.owner.as_str(), orphan.request_id.as_str());
                orphan.question = approvals::select(link, rest, &[&key.0, &key.1])?.pop();
            }
            let calls: Vec<_> = orphans.iter().flat_map(Orphan::calls).collect();
            let events = proving::events_of(link, &self.site, calls, &VOUCHING)?;
            for orphan in &mut orphans {
                orphan.vouch(&events);
            }
            Ok(orphans)
        });
        orphans.map_err(|error| trouble::unavailable(&error))
    }
}

/// What a process that is gone left open, but for what waits for an answer or for its caller to hear one.
fn left_by(link: &Link, process: &str, unheard: i64) -> Result<Vec<Orphan>, Trouble> {
    let sql = format!(
        "SELECT {ORPHAN_COLUMNS}
         FROM open_commands WHERE process = $1 AND NOT EXISTS
             (SELECT 1 FROM approvals WHERE approvals.owner = open_commands.owner
                 AND approvals.request_id = open_commands.request_id AND parks
                 AND (state IN ('pending', 'approved')
                     OR state IN ('denied', 'expired') AND resolved_at_ms > $2))
         ORDER BY opened_at_ms LIMIT 500"
    );
    link.all(&sql, &[&process, &unheard], orphan)
}
