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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use countersign_gateway::audit::Pending;
    use countersign_gateway::audit::reading::{Entity, Filter, Placed};
    use countersign_gateway::audit::row::Row;
    use countersign_gateway::audit::summary::{MetricsSummary, Period};
    use countersign_gateway::session::credential::Credential;
    use countersign_gateway::session::lifetime::{Session, SessionState};
    use tokio::sync::Semaphore;

    use super::*;

    /// A record that grows as told, and whose walks end when they are let.
    struct Walked {
        head: AtomicU64,
        walks: AtomicU64,
        ends: Arc<Semaphore>,
    }

    fn never<T: Send + 'static>() -> Pending<Result<T, RecordError>> {
        Box::pin(std::future::pending())
    }

    impl Records for Walked {
        fn events(&self, _: Filter) -> Pending<Result<Vec<Row>, RecordError>> {
            never()
        }
        fn entities(&self, _: Entity, _: Filter) -> Pending<Result<Vec<Placed>, RecordError>> {
            never()
        }
        fn summary(&self, _: Period) -> Pending<Result<MetricsSummary, RecordError>> {
            never()
        }
        fn known_sessions(&self, _: Option<SessionState>, _: usize) -> Pending<Result<Vec<Session>, RecordError>> {
            never()
        }
        fn known_tokens(&self) -> Pending<Result<Vec<Credential>, RecordError>> {
            never()
        }
        fn head(&self) -> Pending<Result<u64, RecordError>> {
            Box::pin(std::future::ready(Ok(self.head.load(Ordering::Relaxed))))
        }
        fn grown(&self) -> watch::Receiver<u64> {
            watch::channel(0).1
        }
        fn prove(&self) -> Pending<Result<Proved, RecordError>> {
            let seq = Some(self.walks.fetch_add(1, Ordering::Relaxed) + 1);
            let ends = Arc::clone(&self.ends);
            Box::pin(async move {
                ends.acquire().await.unwrap().forget();
                let fault = "changed".to_owned();
                Ok(Proved::Flawed { seq, fault })
            })
        }
        fn export(&self, _: Box<dyn Write + Send>) -> Pending<Result<(), RecordError>> {
            never()
        }
    }

    #[tokio::test]
    async fn one_walk_answers_all_who_ask_meanwhile_and_soon_after() {
        let walked = Arc::new(Walked {
            head: AtomicU64::new(1),
            walks: AtomicU64::new(0),
            ends: Arc::new(Semaphore::new(0)),
        });
        let records: Arc<dyn Records> = walked.clone();
        let (proofs, clock) = (Arc::new(Proofs::default()), Clock::fixed(Timestamp::from_millis(0)));
        let asking: Vec<_> = (0..20)
            .map(|_| {
                let (proofs, records, clock) = (proofs.clone(), records.clone(), clock.clone());
                tokio::spawn(async move { proofs.find(&records, &clock).await })
            })
            .collect();
        tokio::task::yield_now().await;
        walked.ends.add_permits(1);
        for asked in asking {
            assert!(asked.await.unwrap().is_ok());
        }
        let walks = || walked.walks.load(Ordering::Relaxed);
        assert_eq!(walks(), 1);
        walked.ends.add_permits(10);
        proofs.find(&records, &clock).await.unwrap();
        assert_eq!(walks(), 1);
        walked.head.store(2, Ordering::Relaxed);
        proofs.find(&records, &clock).await.unwrap();
        assert_eq!(walks(), 2);
        // A row that was changed does not move the head, so no answer is good for long.
        clock.advance(PROOF_KEPT + Duration::from_millis(1));
        proofs.find(&records, &clock).await.unwrap();
        assert_eq!(walks(), 3);
    }
}
