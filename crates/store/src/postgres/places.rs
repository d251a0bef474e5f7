//! The order in which the rows of all chains are read.
//!
//! A row's place comes from one sequence, in the moment it is written; several nodes commit in another order than they
//! took their places. Whoever goes on reading behind a place must not pass one that is taken and not yet committed. So
//! every writer, before it takes its first, holds a lock that names the last place given out; all up to the lowest such
//! lock are settled.

use super::link::Link;
use super::trouble::Trouble;

/// The last place that was given out.
const GIVEN: &str = "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM flow_places)";

/// Part of a writer's first statement. The bit keeps these locks apart from others; a transaction's end lets go.
pub(super) const CLAIM: &str = "pg_advisory_xact_lock_shared((1::bigint << 62) |
     (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM flow_places))";

const CLAIMED: &str = "SELECT min(((classid::bigint & ((1::bigint << 30) - 1)) << 32) | objid::bigint) FROM pg_locks
     WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 30 = 1
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The last place up to which everything is settled.
pub(super) fn settled(link: &Link) -> Result<i64, Trouble> {
    // In this order: whoever claims after the second question takes places behind the first one's answer.
    let given = link.query_one(&format!("SELECT {GIVEN}"), &[])?.try_get::<_, i64>(0)?;
    let claimed = link.query_one(CLAIMED, &[])?.try_get::<_, Option<i64>>(0)?;
    Ok(claimed.map_or(given, |claimed| claimed.min(given)))
}

/// The place of the last row up to there.
pub(super) fn last(link: &Link) -> Result<u64, Trouble> {
    let settled = settled(link)?;
    let sql = "SELECT coalesce(max(place), 0) FROM flow_events WHERE place <= $1";
    Ok(link.query_one(sql, &[&settled])?.try_get::<_, i64>(0)?.cast_unsigned())
}
