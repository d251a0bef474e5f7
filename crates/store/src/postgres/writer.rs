//! The thread that writes. It takes whatever waits, writes it as one transaction and answers all, as on SQLite.
//!
//! A lost connection is answered, never fatal: what was under way is refused, and the next change tries a new one, not
//! more often than makes sense. When the connection goes while a transaction is being committed, nobody knows whether
//! it was; it is then looked up by its number, and never simply written again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use countersign_gateway::audit::act::ActChange;
use countersign_gateway::audit::{Change, Committed, RecordError};
use tokio::sync::oneshot;

use super::ledger::{self, Became, Ledger};
use super::link::{CommitTrouble, Link};
use super::node::SIGN_EVERY;
use super::site::Site;
use super::trouble::{self, Trouble};
use crate::checkpoint::{Checkpoint, Kind};
use crate::witness::Witness;

/// Changes in one transaction.
const BATCH_MAX: usize = 256;
/// Between two attempts to connect: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Between two looks at what became of a transaction.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) type Outcome = Result<Committed, RecordError>;

/// A change that waits to be written.
pub(super) struct Job {
    change: Change,
    // One per event, made by the caller: the writer is the narrow place.
    timestamps: Vec<String>,
    answer: oneshot::Sender<Outcome>,
}

impl Job {
    pub(super) fn new(change: Change) -> (Box<Self>, oneshot::Receiver<Outcome>) {
        let (answer, outcome) = oneshot::channel();
        let timestamps = change.events.iter().map(|draft| draft.timestamp.to_string()).collect();
        let job = Self {
            change,
            timestamps,
            answer,
        };
        (Box::new(job), outcome)
    }

    fn answer(self, outcome: Outcome) {
        // A caller that no longer waits is fine: the write went on without it.
        let _ = self.answer.send(outcome);
    }
}

/// Writes until nobody can send any more, then signs the chain's end.
pub(super) fn run(site: &Arc<Site>, first: Link, queue: &Receiver<Box<Job>>) {
    let mut writer = Writer {
        site,
        queue,
        witness: Witness::new(site.options.witness.clone()),
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
    witness: Witness,
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
        self.witness.tell(signed);
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
            Ok(signed) => self.witness.tell(signed),
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
    match ledger.commit() {
        Ok(()) => {}
        Err(CommitTrouble::Before(error)) => return Err(error),
        Err(CommitTrouble::Unknown(error)) => {
            tracing::warn!(%error, "the connection was lost during a commit; looking what became of it");
            resolve(site, &xid)?;
        }
    }
    site.grew();
    Ok(signed)
}

/// Looks, over a new connection, until it is known what became of a transaction or patience ends.
fn resolve(site: &Site, xid: &str) -> Result<(), Trouble> {
    let deadline = Instant::now() + site.options.busy_timeout;
    loop {
        match site.connect().and_then(|link| ledger::became(&link, xid)) {
            Ok(Became::Committed) => return Ok(()),
            Ok(Became::Undone) => return Err(Trouble::Undone),
            Ok(Became::UnderWay) => {}
            // A server that does not know the number is another one, which does not have the change.
            Err(error) if !error.is_lost() => return Err(Trouble::Undone),
            Err(error) => tracing::debug!(%error, "what became of a commit cannot be asked yet"),
        }
        if Instant::now() >= site.health.bounded(deadline) {
            return Err(Trouble::Unknown);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Writes one change, or nothing of it when it is refused.
fn apply(ledger: &mut Ledger<'_>, job: &Job) -> Result<Outcome, Trouble> {
    let change = &job.change;
    let is_plain = change.session.is_none() && change.approvals.is_empty() && change.runs.is_empty();
    let is_plain = is_plain && change.leases.is_empty() && change.deliveries.is_empty();
    let is_plain = is_plain && change.delegations.is_empty();
    if is_plain && change.jobs.is_empty() && change.notes.is_empty() && !is_of_a_tool(change) {
        return apply_rows(ledger, job);
    }
    // Rare beside commands, so only these pay for being able to take a part back.
    let mark = ledger.save()?;
    let mut is_void = false;
    let outcome = match moved(ledger, job)? {
        None if ends_nothing(ledger, job)? => {
            is_void = true;
            Ok(Committed {
                last_seq: ledger.head().seq,
                last_event: None,
            })
        }
        None => apply_with_runs(ledger, job)?,
        Some(moved) => match already_written(ledger.link, job)? {
            Some(committed) => Ok(committed),
            None => {
                refuse_repeated(ledger, job)?;
                Err(moved)
            }
        },
    };
    match &outcome {
        // Somebody else has closed the command or the act: then nothing of the change is written.
        Ok(receipt) if is_void || closes_nothing(job, receipt) => ledger.undo(&mark)?,
        Ok(_) => ledger.release()?,
        Err(_) => ledger.undo(&mark)?,
    }
    Ok(outcome)
}

/// Whether a change that should close something found it closed. One without events leaves none behind either way.
fn closes_nothing(job: &Job, receipt: &Committed) -> bool {
    job.change.only_if_open && receipt.last_event.is_none() && !job.change.events.is_empty()
}

/// Writes that an act went on or ended; whether it closes one that somebody else has closed.
fn ends_nothing(ledger: &Ledger<'_>, job: &Job) -> Result<bool, Trouble> {
    match &job.change.act {
        Some(act @ (ActChange::Told { .. } | ActChange::Close { .. })) => {
            Ok(!ledger.write_act(act)? && job.change.only_if_open)
        }
        Some(ActChange::Open(_)) | None => Ok(false),
    }
}

/// Whether it says what a tool that is no command does.
fn is_of_a_tool(change: &Change) -> bool {
    change.act.is_some() || !change.databases.is_empty() || !change.syncs.is_empty()
}

/// All the rest, and what follows from it for runs, told behind the change's own events.
fn apply_with_runs(ledger: &mut Ledger<'_>, job: &Job) -> Result<Outcome, Trouble> {
    let told = ledger.follow_runs(&job.change)?;
    let mut outcome = apply_rows(ledger, job)?;
    if let Ok(receipt) = &mut outcome
        && (receipt.last_event.is_some() || !job.change.only_if_open)
    {
        for draft in &told {
            ledger.append(draft, &draft.timestamp.to_string())?;
        }
        receipt.last_seq = ledger.head().seq;
    }
    Ok(outcome)
}

/// Writes sessions, approvals, jobs and runs, each only where it stands as the change expects; tells the first
/// that does not.
fn moved(ledger: &Ledger<'_>, job: &Job) -> Result<Option<RecordError>, Trouble> {
    let change = &job.change;
    if let Some(taken) = ledger.write_leases(&change.leases)? {
        return Ok(Some(taken));
    }
    if let Some(known) = ledger.write_deliveries(&change.deliveries)? {
        return Ok(Some(known));
    }
    if let Some(session) = &change.session
        && !ledger.write_session(session)?
    {
        return Ok(Some(RecordError::SessionMoved));
    }
    for approval in &change.approvals {
        if !ledger.write_approval(approval)? {
            return Ok(Some(RecordError::ApprovalMoved));
        }
    }
    for delegation in &change.delegations {
        if !ledger.write_delegation(delegation)? {
            return Ok(Some(RecordError::DelegationMoved));
        }
    }
    if let Some(ActChange::Open(act)) = &change.act
        && let Some(asked) = &act.asked
        && !ledger.enter_act(&act.id, asked, act.opened_at)?
    {
        return Ok(Some(RecordError::RequestIdTaken(asked.request_id.clone())));
    }
    if let Some(act @ ActChange::Open(_)) = &change.act
        && !ledger.write_act(act)?
    {
        return Ok(Some(RecordError::ApprovalMoved));
    }
    for job in &change.jobs {
        if let Some(refused) = ledger.write_job(job)? {
            return Ok(Some(refused));
        }
    }
    for run in &change.runs {
        if !ledger.write_run(run)? {
            return Ok(Some(RecordError::RunMoved));
        }
    }
    for database in &change.databases {
        if !ledger.write_database(database)? {
            return Ok(Some(RecordError::TargetMoved));
        }
    }
    for sync in &change.syncs {
        if !ledger.write_sync(sync)? {
            return Ok(Some(RecordError::TargetMoved));
        }
    }
    for note in &change.notes {
        if !ledger.add_note(note)? {
            return Ok(Some(RecordError::JobMoved));
        }
    }
    Ok(None)
}

/// All but sessions, approvals, jobs and runs. A change that came before is found by its first event: all of it was written
/// then. That is looked up only where something is in the way; else the events' own key refuses the second.
fn apply_rows(ledger: &mut Ledger<'_>, job: &Job) -> Result<Outcome, Trouble> {
    if let Some(open) = &job.change.open
        && !ledger.open_command(open)?
    {
        refuse_repeated(ledger, job)?;
        let taken = open.request_id.clone();
        return Ok(Err(RecordError::RequestIdTaken(taken)));
    }
    if let Some(close) = &job.change.close {
        let closed = ledger.close_command(close)?;
        if !closed {
            refuse_repeated(ledger, job)?;
        }
        if !closed && job.change.only_if_open {
            return Ok(Ok(Committed {
                last_seq: ledger.head().seq,
                last_event: None,
            }));
        }
    }
    if let Some((owner, request_id)) = &job.change.end_wanted {
        ledger.want_end(owner, request_id)?;
    }
    ledger.touch_sessions(&job.change.touched)?;
    ledger.write_beats(&job.change.beats)?;
    ledger.write_gone(&job.change.gone)?;
    ledger.write_filed(&job.change.filed)?;
    ledger.write_links(&job.change.links)?;
    ledger.write_reviews(&job.change.reviews)?;
    ledger.write_heads(&job.change.heads)?;
    ledger.write_messages(&job.change.messages)?;
    for (draft, timestamp) in job.change.events.iter().zip(&job.timestamps) {
        ledger.append(draft, timestamp)?;
    }
    Ok(Ok(receipt(ledger.head().seq, job)))
}

fn refuse_repeated(ledger: &Ledger<'_>, job: &Job) -> Result<(), Trouble> {
    match job.change.events.first() {
        Some(first) if ledger.is_written(first)? => Err(Trouble::WrittenBefore),
        Some(_) | None => Ok(()),
    }
}

/// A change may come twice, when its caller did not wait for the answer; its events then stand
/// in the record under the same ids.
fn already_written(link: &Link, job: &Job) -> Result<Option<Committed>, Trouble> {
    let mut last = None;
    for draft in &job.change.events {
        match ledger::find(link, draft)? {
            Some(seq) => last = Some(seq),
            None => return Ok(None),
        }
    }
    Ok(last.map(|seq| receipt(seq, job)))
}

fn receipt(last_seq: u64, job: &Job) -> Committed {
    Committed {
        last_seq,
        last_event: job.change.events.last().map(|draft| draft.event_id.clone()),
    }
}
