//! Events that are proved before anything is signed that follows from them: those of this node by its own key, those of another
//! node by the key under which it stands in the database, and behind its last checkpoint by their links alone.

use std::collections::{BTreeMap, BTreeSet};

use countersign_gateway::approval::proof::TELLING;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::event::EventType;
use tokio_postgres::Row;

use super::ledger::{hash, seal};
use super::link::Link;
use super::query::{COLUMNS, read_row};
use super::site::Site;
use super::snapshot::checkpoint;
use super::trouble::Trouble;
use crate::proved::{Anchor, Proved, Way, split};

const PLACES: &str = "SELECT chain, seq FROM flow_events
     WHERE correlation_id = $1 AND seq > 0 AND event_type = ANY($2)";
const PLACES_OF_QUESTION: &str = "SELECT chain, seq FROM flow_events
     WHERE correlation_id = $1 AND seq > 0 AND event_type = ANY($2) AND payload_text(payload, 'approval_id') = $3";
const CHECKPOINT: &str = "SELECT seq, chain, hash, timestamp, kind, public_key, signature, heads FROM checkpoints
     WHERE chain = $1 AND seq >= $2 ORDER BY seq, id LIMIT 1";
const HEAD: &str = "SELECT seq, hash, seal, public_key FROM chain_heads WHERE chain = $1";

/// The events of these calls that are of these types, and are what was written.
pub(super) fn events_of<'c>(
    link: &Link,
    site: &Site,
    calls: impl IntoIterator<Item = &'c str>,
    types: &[&str],
) -> Result<Vec<Proved>, Trouble> {
    let mut places = Vec::new();
    for call in calls {
        places.extend(link.all(PLACES, &[&call, &types], place)?);
    }
    prove_all(link, site, places)
}

/// The events of these types that name a question, and are what was written; to be read at one moment. Those that do not name
/// it are left out before they are proved: the call may be of a long story.
pub(super) fn events_of_question(link: &Link, site: &Site, question: &ApprovalRequest) -> Result<Vec<Proved>, Trouble> {
    let types = TELLING.map(EventType::as_str);
    let (call, id) = (question.correlation_id.as_str(), question.id.as_str());
    let places = link.all(PLACES_OF_QUESTION, &[&call, &types.as_slice(), &id], place)?;
    prove_all(link, site, places)
}

fn place(row: &Row) -> Result<(String, u64), Trouble> {
    Ok((row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?.cast_unsigned()))
}

fn prove_all(
    link: &Link,
    site: &Site,
    places: impl IntoIterator<Item = (String, u64)>,
) -> Result<Vec<Proved>, Trouble> {
    let mut wanted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for (chain, place) in places {
        wanted.entry(chain).or_default().insert(place);
    }
    let mut proved = Vec::new();
    for (chain, places) in wanted {
        proved.extend(prove(link, site, &chain, places)?);
    }
    Ok(proved)
}

fn prove(link: &Link, site: &Site, chain: &str, mut wanted: BTreeSet<u64>) -> Result<Vec<Proved>, Trouble> {
    let sql = format!("SELECT {COLUMNS} FROM flow_events WHERE chain = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq");
    let mut proved = Vec::new();
    while let Some(first) = wanted.first().copied() {
        let Some(anchor) = anchor(link, site, chain, first)? else {
            break;
        };
        let (here, behind) = split(wanted, anchor);
        let mut way = Way::new(first, &here);
        let places = [first.cast_signed(), anchor.seq.cast_signed()];
        let rows = link.all(&sql, &[&chain, &places[0], &places[1]], read_row)?;
        if rows.iter().try_for_each(|row| way.step(&row.as_link())).is_ok() {
            proved.extend(way.reached(anchor));
        }
        wanted = behind;
    }
    Ok(proved)
}

/// What the row at this place must lead to; none where somebody without the key made it.
pub(super) fn anchor(link: &Link, site: &Site, chain: &str, place: u64) -> Result<Option<Anchor>, Trouble> {
    let head = link.first(HEAD, &[&chain], |row| {
        let anchor = Anchor {
            seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
            hash: hash(row, 1)?,
        };
        Ok((anchor, seal(row, 2)?, row.try_get::<_, String>(3)?))
    })?;
    let Some((head, seal, others_key)) = head else {
        return Ok(None);
    };
    let is_own = chain == site.node.name();
    let key = if is_own { site.key.public() } else { &others_key };
    let signed = link.first(CHECKPOINT, &[&chain, &place.cast_signed()], checkpoint)?;
    if let Some(signed) = signed {
        return Ok(signed.filter(|it| it.is_signed_by(key)).map(|it| Anchor {
            seq: it.seq,
            hash: it.hash,
        }));
    }
    let is_sealed = || seal.is_some_and(|seal| site.sealer.is_sealed(chain, head.seq, &head.hash, &seal));
    Ok((head.seq >= place && (!is_own || is_sealed())).then_some(head))
}
