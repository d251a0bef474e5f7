//! Waiting for a job, and what a caller hears meanwhile.

use std::time::Duration;

use tokio::time::Instant;

use super::JobDesk;
use crate::clock::Timestamp;
use crate::error::Refusal;
use crate::ids::JobId;
use crate::job::event::JobEvent;
use crate::job::lifecycle::JobStatus;
use crate::job::state::Job;
use crate::limits;
use crate::service::Progress;
use crate::session::Caller;

/// Time between two looks at a job that is waited for: not every change of it rings the bell.
const JOB_POLL: Duration = Duration::from_millis(100);
/// How long a job may take from the queue to its place when there is one.
const QUEUE_PATIENCE: Duration = Duration::from_millis(250);
/// How soon a caller who waits hears what happened.
const TELL_EVERY: Duration = Duration::from_millis(500);

impl JobDesk {
    /// The job, once it has ended, or as it stands when the time is over.
    pub async fn wait(&self, caller: &Caller, id: &JobId, patience: Duration) -> Result<Job, Refusal> {
        self.watch(caller, id, patience, Job::has_ended).await
    }

    async fn watch(
        &self,
        caller: &Caller,
        id: &JobId,
        patience: Duration,
        enough: impl Fn(&Job) -> bool,
    ) -> Result<Job, Refusal> {
        let (mut changes, mut stopping) = (self.parts.board.changes(), self.stopping.subscribe());
        let deadline = Instant::now() + patience;
        loop {
            changes.mark_unchanged();
            let job = self.find(caller, id).await?;
            let now = Instant::now();
            if enough(&job) || now >= deadline || *stopping.borrow() {
                return Ok(job);
            }
            let nap = (deadline - now).min(JOB_POLL);
            let _ = tokio::time::timeout(nap, async {
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = stopping.changed() => {}
                }
            })
            .await;
        }
    }

    /// The job, once its conversation has an id or it has ended, or as it stands when the time is over. One that
    /// waits for its turn is not waited for: that may take hours.
    pub async fn begun(&self, caller: &Caller, id: &JobId, patience: Duration) -> Result<Job, Refusal> {
        let job = self
            .watch(caller, id, QUEUE_PATIENCE, |job| job.status() != JobStatus::Pending)
            .await?;
        if job.status() == JobStatus::Pending {
            return Ok(job);
        }
        self.watch(caller, id, patience, |job| {
            job.conversation_id.is_some() || job.has_ended()
        })
        .await
    }

    /// Waits for a job's end and tells on the way what happens to it, with a sign of life where nothing does.
    pub async fn accompany(
        &self,
        caller: &Caller,
        id: &JobId,
        patience: Duration,
        progress: Option<&dyn Progress>,
    ) -> Result<Job, Refusal> {
        let Some(progress) = progress else {
            return self.wait(caller, id, patience).await;
        };
        let session = self.session(caller, id).await?;
        let mut telling = Telling {
            progress,
            since: self.parts.clock.now(),
            after: 0,
            quiet_since: Instant::now(),
            unfinished: None,
        };
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Looked at before its events are read: those of a job that has ended are all there.
            let job = self.wait(caller, id, left.min(TELL_EVERY)).await?;
            self.tell(caller, &job, &mut telling).await?;
            telling.writes(self.unfinished(&session).await);
            if job.has_ended() || Instant::now() >= deadline || *self.stopping.borrow() {
                return Ok(job);
            }
        }
    }

    async fn tell(&self, caller: &Caller, job: &Job, telling: &mut Telling<'_>) -> Result<(), Refusal> {
        loop {
            let (events, next) = self
                .logs(caller, &job.id, telling.after, limits::JOB_EVENTS_AT_ONCE)
                .await?;
            let is_whole = next == telling.after;
            telling.after = next;
            for stored in events {
                telling.say(&stored.event);
            }
            if is_whole {
                break;
            }
        }
        if telling.quiet_since.elapsed() >= limits::PROGRESS_EVERY {
            telling.report(job.standing());
        }
        Ok(())
    }
}

/// What a caller who waits has heard.
struct Telling<'a> {
    progress: &'a dyn Progress,
    since: Timestamp,
    after: u64,
    quiet_since: Instant,
    unfinished: Option<String>,
}

impl Telling<'_> {
    fn say(&mut self, event: &JobEvent) {
        if event.timestamp < self.since {
            return;
        }
        self.progress.job(event);
        let words = event.words();
        if !words.is_empty() {
            self.report(&words);
        }
    }

    /// The end of the message that the agent is at.
    fn writes(&mut self, message: Option<String>) {
        if let Some(text) = message.as_deref().filter(|_| message != self.unfinished) {
            let skipped = text.chars().count().saturating_sub(limits::UNFINISHED_CHARS_TOLD);
            let end: String = text.chars().skip(skipped).collect();
            if !end.trim().is_empty() {
                self.report(&format!("writing: {}", end.trim()));
            }
        }
        self.unfinished = message;
    }

    fn report(&mut self, message: &str) {
        self.progress.report(message);
        self.quiet_since = Instant::now();
    }
}
