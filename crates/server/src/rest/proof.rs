//! One walk along the chain for all who ask for it.
//!
//! Walking takes as long as the record is large, so a walk that is under way answers everybody who comes
//! meanwhile, and what it found answers whoever comes soon after, while the record has not grown. Not for
//! long: a row that somebody changes does not move the head.

use std::sync::{Arc, Mutex, PoisonError};

use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::reading::{Proved, Records};
use countersign_gateway::clock::{Clock, Timestamp};
use tokio::sync::watch;

use crate::limits::PROOF_KEPT;

/// What a walk found, and when it began.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) proved: Proved,
    pub(super) at: Timestamp,
    /// How far the record went then.
    head: u64,
}

type Outcome = Result<Found, RecordError>;

#[derive(Default)]
pub(super) struct Proofs(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// A walk that is under way; its end is told once.
    walk: Option<watch::Receiver<Option<Outcome>>>,
    last: Option<Found>,
}

impl Proofs {
    pub(super) async fn find(&self, records: &Arc<dyn Records>, clock: &Clock) -> Outcome {
        let head = records.head().await?;
        let mut walk = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let now = clock.now();
            if let Some(last) = kept.last.as_ref().filter(|last| last.is_good(head, now)) {
                return Ok(last.clone());
            }
            let under_way = kept
                .walk
                .clone()
                .filter(|walk| walk.borrow().is_none() && walk.has_changed().is_ok());
            under_way.unwrap_or_else(|| {
                let walk = begin(Arc::clone(records), head, now);
                kept.walk = Some(walk.clone());
                walk
            })
        };
        let gone = || RecordError::Unavailable("the walk along the record was stopped".to_owned());
        let outcome = walk.wait_for(Option::is_some).await.map_err(|_| gone())?.clone();
        let found = outcome.ok_or_else(gone)??;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last = Some(found.clone());
        Ok(found)
    }
}

impl Found {
    fn is_good(&self, head: u64, now: Timestamp) -> bool {
        self.head == head && now.since(self.at) < PROOF_KEPT && now >= self.at
    }
}

/// Goes on when nobody waits any more: somebody will ask again.
fn begin(records: Arc<dyn Records>, head: u64, at: Timestamp) -> watch::Receiver<Option<Outcome>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let proved = records.prove().await;
        sender.send_replace(Some(proved.map(|proved| Found { proved, at, head })));
    });
    receiver
}
