//! Events of the record: as they are written, and as they are read back.

use countersign_gateway::audit::chain::{Columns, Hash};
use countersign_gateway::audit::event::Draft;
use countersign_gateway::audit::row::Row;

use super::Cells;

/// What is written of an event, and hashed.
pub(crate) fn columns<'a>(draft: &'a Draft, chain: &'a str, timestamp: &'a str) -> Columns<'a> {
    Columns {
        chain,
        event_id: draft.event_id.as_str(),
        timestamp,
        correlation_id: draft.correlation_id.as_str(),
        actor_type: draft.actor.kind.as_str(),
        actor_id: &draft.actor.id,
        event_type: draft.event_type.as_str(),
        approval_state: draft.approval_state.map(|state| state.as_str()),
        payload: draft.payload(),
    }
}

/// A row of the record, whose place among all of them stands in this column.
pub(crate) fn event<R: Cells>(row: &R, place: usize) -> Result<Row, R::Error> {
    Ok(Row {
        place: row.count(place)?,
        chain: row.text(0)?,
        seq: row.count(1)?,
        event_id: row.text(2)?,
        timestamp: row.text(3)?,
        correlation_id: row.text(4)?,
        actor_type: row.text(5)?,
        actor_id: row.text(6)?,
        event_type: row.text(7)?,
        approval_state: row.any_text(8)?,
        payload: row.text(9)?,
        prev_hash: Hash::from_bytes(row.bytes(10)?),
        hash: Hash::from_bytes(row.bytes(11)?),
    })
}
