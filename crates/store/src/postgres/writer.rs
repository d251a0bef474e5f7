//! The thread that writes. It takes whatever waits, writes it as one transaction and answers all, as on SQLite.
//!
//! A lost connection is answered, never fatal: what was under way is refused, and the next change tries a new one, not
//! more often than makes sense. When the connection goes while a transaction is being committed, nobody knows whether
//! it was; it is then looked up by its number, and never simply written again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use countersign_gateway::audit::RecordError;

use super::applying::{already_written, apply};
use super::ledger::{self, Became, Ledger};
use super::link::{CommitTrouble, Link};
use super::node::SIGN_EVERY;
use super::site::Site;
use super::trouble::{self, Trouble};
use crate::checkpoint::{Checkpoint, Kind};
use crate::waiting::{BATCH_MAX, Job, Outcome};

/// Between two attempts to connect: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Between two looks at what became of a transaction.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Writes until nobody can send any more, then signs the chain's end.
pub(super) fn run(site: &Arc<Site>, first: Link, queue: &Receiver<Box<Job>>) {
    let mut writer = Writer {
        site,
        queue,
        batch: Vec::new(),
        link: Some(first),
        signed_at: Instant::now(),
        pause: PAUSE_MIN,
        not_before: None,
    };
    loop {
        let left = SIGN_EVERY.saturating_sub(writer.signed_at.elapsed());
        match queue.recv_timeout(left) {
            Ok(job) => {
                writer.batch.push(job);
                writer.serve();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return writer.stop(),
        }
        if writer.signed_at.elapsed() >= SIGN_EVERY {
            writer.sign();
        }
    }
}

struct Writer<'a> {
    site: &'a Site,
    queue: &'a Receiver<Box<Job>>,
    /// Jobs of the transaction under way.
    #[expect(clippy::vec_box, reason = "they come boxed, which keeps the queue small")]
    batch: Vec<Box<Job>>,
    link: Option<Link>,
    /// When this process last said that it lives.
    signed_at: Instant,
    pause: Duration,
    /// No new connection is tried earlier, and why.
    not_before: Option<(Instant, RecordError)>,
}

impl Writer<'_> {
    /// Writes what is at hand, or refuses it.
    fn serve(&mut self) {
        let link = match self.connected() {
            Ok(link) => link,
            Err(error) => return self.refuse_all(&error),
        };
        match self.write(&link) {
            Ok(()) => self.link = Some(link),
            Err(error) => {
                tracing::warn!(%error, "the record was not written");
                self.refuse_all(&trouble::unavailable(&error));
                if !error.is_lost() && link.batch("ROLLBACK").is_ok() {
                    self.link = Some(link);
                }
            }
        }
    }

    /// The connection at hand, or a new one; not tried again and again while the database is away.
    fn connected(&mut self) -> Result<Link, RecordError> {
        if let Some(link) = self.link.take().filter(|link| !link.is_closed()) {
            return Ok(link);
        }
        if let Some((not_before, error)) = &self.not_before
            && Instant::now() < *not_before
        {
            return Err(error.clone());
        }
        match self.site.connect() {
            Ok(link) => {
                self.pause = PAUSE_MIN;
                self.not_before = None;
                Ok(link)
            }
            Err(error) => {
                let error = trouble::unavailable(&error);
                self.not_before = Some((Instant::now() + self.pause, error.clone()));
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                Err(error)
            }
        }
    }

    fn sign(&mut self) {
        self.signed_at = Instant::now();
        let Ok(link) = self.connected() else { return };
        match self.site.node.sign(&link) {
            Ok(()) => self.link = Some(link),
            Err(error) => tracing::debug!(%error, "the sign of life was not left"),
        }
    }

    /// Writes the jobs at hand and those that come in meanwhile.
    fn write(&mut self, link: &Link) -> Result<(), Trouble> {
        let mut ledger = Ledger::begin(link, self.site)?;
        let mut outcomes = Vec::with_capacity(8);
        loop {
            let job = &self.batch[outcomes.len()];
            match apply(&mut ledger, job) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) if error.is_refusal() => {
                    ledger.roll_back();
                    return self.write_singly(link);
                }
                Err(error) => return Err(error),
            }
            if outcomes.len() < self.batch.len() {
                continue;
            }
            match (self.batch.len() < BATCH_MAX).then(|| self.queue.try_recv()) {
                Some(Ok(job)) => self.batch.push(job),
                Some(Err(_)) | None => break,
            }
        }
        match self.finish(ledger, outcomes) {
            Err(error) if error.is_refusal() => self.write_singly(link),
            other => other,
        }
    }

    /// After a job that the database refuses: the others must not suffer for it.
    fn write_singly(&mut self, link: &Link) -> Result<(), Trouble> {
        let mut jobs = std::mem::take(&mut self.batch).into_iter();
        while let Some(job) = jobs.next() {
            self.batch.push(job);
            let written = self.write_first(link);
            match written {
                Ok(()) => {}
                Err(error) if error.is_refusal() => {
                    let outcome = match already_written(link, &self.batch[0]) {
                        Ok(Some(committed)) => Ok(committed),
                        Ok(None) | Err(_) => Err(trouble::unavailable(&error)),
                    };
                    self.batch.drain(..).for_each(|job| job.answer(outcome.clone()));
                }
                Err(error) => {
                    self.batch.extend(jobs);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn write_first(&mut self, link: &Link) -> Result<(), Trouble> {
        let mut ledger = Ledger::begin(link, self.site)?;
        match apply(&mut ledger, &self.batch[0]) {
            Ok(outcome) => self.finish(ledger, vec![outcome]),
            Err(error) => {
                ledger.roll_back();
                Err(error)
            }
        }
    }

    fn finish(&mut self, ledger: Ledger<'_>, outcomes: Vec<Outcome>) -> Result<(), Trouble> {
        let signed = commit(ledger)?;
        self.site.health.wrote();
        for (job, outcome) in self.batch.drain(..).zip(outcomes) {
            job.answer(outcome);
        }
        self.site.witness.tell(signed);
        Ok(())
    }

    fn stop(&mut self) {
        let Ok(link) = self.connected() else { return };
        let signed = Ledger::begin(&link, self.site).and_then(|mut ledger| {
            let head = ledger.head();
            if head.seq > head.checkpointed {
                ledger.checkpoint(Kind::Stop)?;
            }
            commit(ledger)
        });
        match signed {
            Ok(signed) => self.site.witness.tell(signed),
            Err(error) => tracing::warn!(%error, "the last checkpoint was not signed"),
        }
        if let Err(error) = self.site.node.sign_off(&link) {
            tracing::debug!(%error, "the process did not sign off");
        }
    }

    /// Also refuses what waits: each would wait for the same trouble again, one after the other.
    fn refuse_all(&mut self, error: &RecordError) {
        self.site.health.failed(error);
        self.batch.extend(self.queue.try_iter());
        for job in self.batch.drain(..) {
            job.answer(Err(error.clone()));
        }
    }
}

/// Commits a transaction, and finds out what became of it when the connection goes meanwhile.
pub(super) fn commit(ledger: Ledger<'_>) -> Result<Vec<Checkpoint>, Trouble> {
    let (site, xid, signed) = (ledger.site, ledger.xid(), ledger.signed());
    let reached = ledger.head();
    match ledger.commit() {
        Ok(()) => {}
        Err(CommitTrouble::Before(error)) => return Err(error),
        Err(CommitTrouble::Unknown(error)) => {
            tracing::warn!(%error, "the connection was lost during a commit; looking what became of it");
            resolve(site, &xid)?;
        }
    }
    site.grew(reached.seq, reached.hash);
    Ok(signed)
}

/// Looks, over a new connection, until it is known what became of a transaction or patience ends.
fn resolve(site: &Site, xid: &str) -> Result<(), Trouble> {
    let deadline = Instant::now() + site.options.busy_timeout;
    loop {
        match site.connect().map(|link| ledger::became(&link, xid)) {
            Ok(Ok(Became::Committed)) => return Ok(()),
            Ok(Ok(Became::Undone)) => return Err(Trouble::Undone),
            Ok(Ok(Became::UnderWay)) => {}
            // A server that does not know the number is another one, which does not have the change.
            Ok(Err(error)) if !error.is_lost() => return Err(Trouble::Undone),
            // One that has no room for us yet has not said anything.
            Ok(Err(error)) | Err(error) => tracing::debug!(%error, "what became of a commit cannot be asked yet"),
        }
        if Instant::now() >= site.health.bounded(deadline) {
            return Err(Trouble::Unknown);
        }
        thread::sleep(LOOK_EVERY);
    }
}
