//! Events of the record.

use countersign_gateway::audit::chain::Hash;
use countersign_gateway::audit::row::Row;

use super::Cells;

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
