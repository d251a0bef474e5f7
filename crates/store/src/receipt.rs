//! What a change that was applied leaves to be told, in either kind of database.

use countersign_gateway::audit::{Change, Committed};

/// That all of it stands in the record, up to this place.
pub(crate) fn of(change: &Change, last_seq: u64) -> Committed {
    Committed {
        last_seq,
        last_event: change.events.last().map(|draft| draft.event_id.clone()),
    }
}

/// Whether a change that should close something found it closed. One without events leaves none behind either way.
pub(crate) fn closes_nothing(change: &Change, receipt: &Committed) -> bool {
    change.only_if_open && receipt.last_event.is_none() && !change.events.is_empty()
}
