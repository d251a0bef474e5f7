//! A client that comes back with the id of the last event it read.
//!
//! Where the session's log is, the stream goes on in it. Other processes of the same store have the session
//! without its log, and so has this one after a restart: there the id still says which request it belongs to, and
//! the answer is read from the record. What may be lost without a word (progress) is; nothing is kept for this.

use std::sync::Arc;

use countersign_gateway::error::{ErrorCode, Refusal};

use super::exchange::Exchange;
use super::live::Live;
use super::replay::{ENDED, Foreign, Place, STANDALONE, Ticket};
use crate::mcp::subject::Subject;

/// The place from which a client reads on.
pub(super) async fn take_up(live: &Arc<Live>, event_id: &str) -> Result<(Place, Ticket), Refusal> {
    if let Some(resumed) = here(live, event_id) {
        return Ok(resumed);
    }
    let foreign = Foreign::read(event_id).ok_or_else(unknown)?;
    if foreign.is_standalone {
        return beside_all(live, foreign.subject).ok_or_else(unknown);
    }
    let request = live
        .connection
        .asked_before(foreign.subject)
        .await?
        .ok_or_else(unknown)?;
    let mut log = live.log().ok_or_else(unknown)?;
    let (stream, is_new) = if foreign.is_answered {
        // It has read all there is.
        (ENDED, false)
    } else {
        log.take_up(foreign.subject)
    };
    let ticket = log.attach(stream);
    drop(log);
    if is_new {
        let exchange = Exchange::new();
        exchange.hand_on(live, stream);
        live.connection.tell_end_of(&request, &exchange.outlet(true));
    }
    Ok((Place { stream, seen: 0 }, ticket))
}

/// The stream in this session's log.
fn here(live: &Live, event_id: &str) -> Option<(Place, Ticket)> {
    let mut log = live.log()?;
    let place = log.locate(event_id)?;
    Some((place, log.attach(place.stream)))
}

/// The stream that belongs to no request carries only what may be lost, so it goes on from now.
fn beside_all(live: &Live, subject: Subject) -> Option<(Place, Ticket)> {
    let mut log = live.log().filter(|_| subject == Subject::session(&live.id))?;
    let stream = log.standalone();
    let seen = log.end_of(STANDALONE);
    Some((Place { stream, seen }, log.attach(stream)))
}

fn unknown() -> Refusal {
    let message = "this session has no such event any more; what it led to is in the results of its calls";
    Refusal::new(ErrorCode::InvalidRequest, message)
}
