//! Events that are proved before anything is signed that follows from them.

use std::collections::BTreeSet;

use countersign_gateway::approval::proof::TELLING;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::chain::Hash;
use countersign_gateway::audit::event::EventType;
use rusqlite::{Connection, OptionalExtension as _};

use super::CHAIN;
use super::site::Site;
use super::snapshot::checkpoint;
use super::verify::step_rows;
use crate::proved::{Anchor, Proved, Way, split};
use crate::seal::Seal;

const PLACES: &str = "SELECT seq FROM flow_events
     WHERE correlation_id = ?1 AND seq > 0 AND event_type IN (SELECT value FROM json_each(?2))";
const PLACES_OF_QUESTION: &str = "SELECT seq FROM flow_events
     WHERE correlation_id = ?1 AND seq > 0 AND event_type IN (SELECT value FROM json_each(?2))
         AND payload ->> '$.approval_id' = ?3";
const CHECKPOINT: &str = "SELECT seq, chain, hash, timestamp, kind, public_key, signature FROM checkpoints
     WHERE seq >= ?1 ORDER BY seq, id LIMIT 1";
const HEAD: &str = "SELECT seq, hash, seal FROM chain_heads WHERE chain = ?1";

/// The events of these calls that are of these types, and are what was written.
pub(super) fn events_of<'c>(
    connection: &Connection,
    site: &Site,
    calls: impl IntoIterator<Item = &'c str>,
    types: &[&str],
) -> rusqlite::Result<Vec<Proved>> {
    let types = serde_json::Value::from(types).to_string();
    let mut wanted = BTreeSet::new();
    for call in calls {
        let mut places = connection.prepare_cached(PLACES)?;
        let places = places.query_map((call, &types), |row| row.get::<_, i64>(0))?;
        for place in places {
            wanted.insert(place?.cast_unsigned());
        }
    }
    prove(connection, site, wanted)
}

fn prove(connection: &Connection, site: &Site, mut wanted: BTreeSet<u64>) -> rusqlite::Result<Vec<Proved>> {
    let mut proved = Vec::new();
    while let Some(first) = wanted.first().copied() {
        let Some(anchor) = anchor(connection, site, first)? else {
            break;
        };
        let (here, behind) = split(wanted, anchor);
        let mut way = Way::new(first, &here);
        let places = [first.cast_signed(), anchor.seq.cast_signed()];
        let walked = step_rows(connection, "seq BETWEEN ?1 AND ?2 ORDER BY seq", places, |link| {
            way.step(link)
        })?;
        if walked.is_ok() {
            proved.extend(way.reached(anchor));
        }
        wanted = behind;
    }
    Ok(proved)
}

/// The events of these types that name a question, and are what was written. Those that do not name it are left out before
/// they are proved: the call may be of a long story.
pub(super) fn events_of_question(
    connection: &Connection,
    site: &Site,
    question: &ApprovalRequest,
) -> rusqlite::Result<Vec<Proved>> {
    // All of one moment.
    let moment = connection.unchecked_transaction()?;
    let types = serde_json::Value::from(TELLING.map(EventType::as_str).as_slice()).to_string();
    let mut places = moment.prepare_cached(PLACES_OF_QUESTION)?;
    let values = (question.correlation_id.as_str(), &types, question.id.as_str());
    let places = places.query_map(values, |row| Ok(row.get::<_, i64>(0)?.cast_unsigned()))?;
    let wanted = places.collect::<rusqlite::Result<BTreeSet<_>>>()?;
    prove(&moment, site, wanted)
}

/// What the row at this place must lead to; none where somebody without the key made it.
pub(super) fn anchor(connection: &Connection, site: &Site, place: u64) -> rusqlite::Result<Option<Anchor>> {
    let signed = connection
        .prepare_cached(CHECKPOINT)?
        .query_row([place.cast_signed()], checkpoint)
        .optional()?;
    if let Some(signed) = signed {
        let is_ours = |it: &crate::checkpoint::Checkpoint| it.chain == CHAIN && it.is_signed_by(site.key.public());
        return Ok(signed.filter(is_ours).map(|it| Anchor {
            seq: it.seq,
            hash: it.hash,
        }));
    }
    let head = connection.prepare_cached(HEAD)?.query_row([CHAIN], |row| {
        let anchor = Anchor {
            seq: row.get::<_, i64>(0)?.cast_unsigned(),
            hash: Hash::from_bytes(row.get(1)?),
        };
        Ok((anchor, row.get::<_, Option<Seal>>(2)?))
    });
    let head = head.optional()?.filter(|(anchor, seal)| {
        let is_ours = |seal: &Seal| site.sealer.is_sealed(CHAIN, anchor.seq, &anchor.hash, seal);
        anchor.seq >= place && seal.as_ref().is_some_and(is_ours)
    });
    Ok(head.map(|(anchor, _)| anchor))
}
