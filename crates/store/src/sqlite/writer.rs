//! The thread that writes. It takes whatever waits, writes it as one transaction and answers all
//! (group commit without a timer): one caller pays one flush, many callers share it.
//!
//! Trouble is answered, never fatal: a connection that failed is dropped and the next change tries
//! a new one, so the record comes back by itself.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use countersign_gateway::audit::RecordError;
use rusqlite::Connection;

use super::applying::{already_written, apply};
use super::ledger::{Head, Ledger, Turn};
use super::log::{Log, Queue};
use super::site::Site;
use super::trouble;
use crate::checkpoint::Kind;
use crate::waiting::{BATCH_MAX, Job, Outcome};

/// What is said from then on.
const LOST_LOG: &str = "the log beside the database file was moved, deleted or cut while in use; end every server that uses it and start them anew";

/// What the writer is told.
pub(super) enum Message {
    Write(Box<Job>),
    /// The log may want looking after: somebody else wrote to it.
    LookAfterLog,
}

/// Writes until nobody can send any more, then signs the chain's end.
pub(super) fn run(site: &Arc<Site>, first: Connection, queue: &Receiver<Message>) {
    let mut writer = Writer {
        site,
        queue,
        batch: Vec::new(),
    };
    let mut connection = Some(first);
    let mut waiting = None;
    loop {
        let Some(open) = connection.take() else {
            let job = match queue.recv() {
                Ok(Message::Write(job)) => job,
                Ok(Message::LookAfterLog) => continue,
                Err(_) => return,
            };
            if site.identity().is_ok_and(|file| site.has_lost_log(file)) {
                writer.batch.push(job);
                writer.refuse_all(&RecordError::Unavailable(LOST_LOG.to_owned()));
                continue;
            }
            match site.connect_writer(site.options.busy_timeout) {
                Ok(open) => connection = Some(open),
                Err(error) => {
                    writer.batch.push(job);
                    writer.refuse_all(&trouble::unavailable(&error));
                    continue;
                }
            }
            waiting = Some(job);
            continue;
        };
        match writer.serve(&open, waiting.take()) {
            After::Stopped => return,
            After::Reconnect => {}
        }
    }
}

enum After {
    Stopped,
    Reconnect,
}

struct Writer<'a> {
    site: &'a Site,
    queue: &'a Receiver<Message>,
    /// Jobs of the transaction under way.
    #[expect(clippy::vec_box, reason = "they come boxed, which keeps the queue small")]
    batch: Vec<Box<Job>>,
}

impl Writer<'_> {
    fn serve(&mut self, connection: &Connection, mut waiting: Option<Box<Job>>) -> After {
        let identity = self.site.identity().ok();
        let mut log = Log::new(self.site);
        let mut ledger = Ledger::over(connection, self.site);
        loop {
            let job = match waiting.take() {
                Some(job) => job,
                None => match self.next(connection, &mut log) {
                    Some(job) => job,
                    None => {
                        if self.site.identity().is_ok_and(|file| self.site.has_lost_log(file)) {
                            self.rescue(connection);
                            return After::Stopped;
                        }
                        self.stop(&mut ledger);
                        let patience = self.site.health.patience(self.site.options.busy_timeout);
                        if let Err(error) = connection.busy_timeout(patience) {
                            tracing::debug!(%error, "the last look after the log may take long");
                        }
                        log.empty(connection);
                        return After::Stopped;
                    }
                },
            };
            // A file moved away would take rows that nobody finds again.
            if self.site.identity().ok() != identity || identity.is_none() {
                self.batch.push(job);
                let sentence = "the database file was moved or deleted while in use";
                self.refuse_all(&RecordError::Unavailable(sentence.to_owned()));
                return After::Reconnect;
            }
            if identity.is_some_and(|file| self.site.has_lost_log(file)) {
                self.batch.push(job);
                self.rescue(connection);
                self.refuse_all(&RecordError::Unavailable(LOST_LOG.to_owned()));
                return After::Reconnect;
            }
            self.batch.push(job);
            let written = self.write(&mut ledger);
            if let Err(error) = written {
                ledger.roll_back();
                tracing::warn!(%error, "the record was not written");
                self.refuse_all(&trouble::unavailable(&error));
                if !trouble::is_passing(&error) {
                    return After::Reconnect;
                }
            }
        }
    }

    /// Rows of a log that was taken away are still in reach of whoever has it open: they go into the database,
    /// unless another process has begun a log of its own.
    fn rescue(&self, connection: &Connection) {
        if self.site.has_cut_log() {
            tracing::error!("the log of the record was cut; its last rows are lost, start the server anew");
            return;
        }
        if !self.site.has_no_other_log() {
            tracing::error!("the log of the record was replaced; its last rows may be lost");
            return;
        }
        match connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            Ok(()) => {
                tracing::error!("the log of the record was taken away; its rows were saved, start the server anew")
            }
            Err(error) => tracing::error!(%error, "the log of the record was taken away, and its rows with it"),
        }
    }

    /// The next job; upkeep of the log is done where it keeps nobody waiting.
    fn next(&self, connection: &Connection, log: &mut Log) -> Option<Box<Job>> {
        loop {
            let message = match self.queue.try_recv() {
                Ok(message) => {
                    log.upkeep(connection, Queue::Waiting);
                    message
                }
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {
                    log.upkeep(connection, Queue::Empty);
                    self.queue.recv().ok()?
                }
            };
            match message {
                Message::Write(job) => return Some(job),
                Message::LookAfterLog => {}
            }
        }
    }

    /// Writes the jobs at hand and those that come in meanwhile.
    fn write(&mut self, ledger: &mut Ledger<'_>) -> rusqlite::Result<()> {
        let mut head = ledger.begin(Turn::Wait)?;
        let mut outcomes = Vec::with_capacity(8);
        loop {
            let job = &self.batch[outcomes.len()];
            match apply(ledger, &mut head, job) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) if trouble::is_refusal(&error) => {
                    ledger.roll_back();
                    return self.write_singly(ledger);
                }
                Err(error) => return Err(error),
            }
            if outcomes.len() < self.batch.len() {
                continue;
            }
            match (self.batch.len() < BATCH_MAX).then(|| self.queue.try_recv()) {
                Some(Ok(Message::Write(job))) => self.batch.push(job),
                Some(Ok(Message::LookAfterLog) | Err(_)) | None => return self.finish(ledger, &head, outcomes),
            }
        }
    }

    /// After a job that the database refuses: the others must not suffer for it.
    fn write_singly(&mut self, ledger: &mut Ledger<'_>) -> rusqlite::Result<()> {
        let mut jobs = std::mem::take(&mut self.batch).into_iter();
        while let Some(job) = jobs.next() {
            self.batch.push(job);
            let tried = ledger
                .begin(Turn::Wait)
                .and_then(|mut head| Ok((apply(ledger, &mut head, &self.batch[0])?, head)));
            match tried {
                Ok((outcome, head)) => {
                    if let Err(error) = self.finish(ledger, &head, vec![outcome]) {
                        self.batch.extend(jobs);
                        return Err(error);
                    }
                }
                Err(error) if trouble::is_refusal(&error) => {
                    let written = already_written(ledger, &self.batch[0]);
                    ledger.roll_back();
                    let outcome = match written {
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

    fn finish(&mut self, ledger: &mut Ledger<'_>, head: &Head, outcomes: Vec<Outcome>) -> rusqlite::Result<()> {
        let signed = ledger.commit(head)?;
        self.site.health.wrote();
        for (job, outcome) in self.batch.drain(..).zip(outcomes) {
            job.answer(outcome);
        }
        self.site.witness.tell(signed);
        Ok(())
    }

    fn stop(&mut self, ledger: &mut Ledger<'_>) {
        let signed = ledger.begin(Turn::Wait).and_then(|mut head| {
            if head.seq > head.checkpointed {
                ledger.checkpoint(&mut head, Kind::Stop)?;
            }
            ledger.commit(&head)
        });
        match signed {
            Ok(signed) => self.site.witness.tell(signed),
            Err(error) => {
                ledger.roll_back();
                tracing::warn!(%error, "the last checkpoint was not signed");
            }
        }
    }

    /// Also refuses what waits: each would wait for the same trouble again, one after the other.
    fn refuse_all(&mut self, error: &RecordError) {
        self.site.health.failed(error);
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Write(job) => self.batch.push(job),
                Message::LookAfterLog => {}
            }
        }
        for job in self.batch.drain(..) {
            job.answer(Err(error.clone()));
        }
    }
}
