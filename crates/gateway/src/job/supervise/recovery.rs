//! What a process that vanished left: its jobs, its agents' processes, files that lack the end.

use std::sync::PoisonError;

use super::super::event::JobEventType;
use super::super::keeping::{
    AbandonedJob, Beat, GoneProcess, Hold, JobChange, JobSessionChange, Place, unsent, waiting_messages,
};
use super::super::lifecycle::{SessionStep, SubState, session_step_at_the_end};
use super::super::state::Job;
use super::Supervisor;
use super::course::Ending;
use crate::approval::ApprovalFilter;
use crate::audit::event::{Actor, EventType};
use crate::audit::{Change, RecordError};
use crate::clock::{Steady, Timestamp};
use crate::ids::JobId;
use crate::limits;

const WHY: &str = "the process that looked after the job is gone";

impl Supervisor {
    /// Tells other processes that we live.
    pub(super) async fn beat(&self) -> Result<(), RecordError> {
        let at = self.parts.clock.now();
        let beats: Vec<Beat> = self
            .lock()
            .held
            .keys()
            .map(|job| Beat { job: job.clone(), at })
            .collect();
        if beats.is_empty() {
            return Ok(());
        }
        self.commit(Change {
            beats,
            ..Change::default()
        })
        .await
    }

    /// Puts jobs whose holder is gone back into the queue, to be taken up where they stand; one that was
    /// being ended is ended. Several processes may try: one is first.
    pub(super) async fn free_abandoned(&self) -> Result<(), RecordError> {
        let silent_since = self.silent_since();
        for abandoned in self.parts.jobs.abandoned(silent_since).await? {
            if self.holds(&abandoned.job.id) || self.parts.agents.known(&abandoned.job.agent).is_none() {
                continue;
            }
            let hold = Hold::Free { silent_since };
            match self.free(abandoned, hold).await {
                Ok(()) | Err(RecordError::JobMoved) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whoever gave no sign of life since then hangs. Signs from before the clock was set look older than they are: until
    /// everybody had time for others nobody hangs, and only the jobs of processes that are gone are free.
    fn silent_since(&self) -> Timestamp {
        let clock = &self.parts.clock;
        let (now, steady) = (clock.now(), clock.steady());
        let mut evenness = self.evenness.lock().unwrap_or_else(PoisonError::into_inner);
        if evenness.watch.step_ms(clock).is_some() {
            evenness.set_at = Some(steady);
        }
        let is_even = |set_at: Steady| steady.since(set_at) >= limits::JOB_BEAT_MISSED;
        if !evenness.set_at.is_none_or(is_even) {
            return Timestamp::from_millis(i64::MIN);
        }
        let missed = i64::try_from(limits::JOB_BEAT_MISSED.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(now.as_millis().saturating_sub(missed))
    }

    async fn free(&self, abandoned: AbandonedJob, hold: Hold) -> Result<(), RecordError> {
        let AbandonedJob { job, seen_at } = abandoned;
        let now = self.parts.clock.now();
        let Some(session) = self.parts.jobs.session(&job.session_id).await? else {
            return Err(RecordError::Unavailable(format!(
                "the session of job `{}` is missing",
                job.id
            )));
        };
        // Nobody knows what happened since the last sign of life, so that time is not counted.
        let mut free = job.clone();
        free.clock = free.clock.paused(seen_at.max(free.clock.since.unwrap_or(seen_at)));
        if let Some(ending) = ending_of(&free) {
            self.stop_agent(&job).await;
            let mut ended = free
                .step(ending.step, now)
                .map_err(|error| RecordError::Unavailable(error.to_string()))?;
            ended.error = ending.error;
            let mut change = JobChange::over(job.version, ended.clone());
            change.hold = hold;
            let notes = self.parts.jobs.notes(&job.id).await?;
            change.events.extend(unsent(waiting_messages(&notes)).map(|message| {
                let data = serde_json::json!({"message": message});
                self.event(&ended, &session, JobEventType::AgentWarning, data)
            }));
            change.events.push(self.step_event(&ended, &session, ending.step));
            let mut events = vec![self.step_draft(&ended, ending.step)];
            let step = session_step_at_the_end(session.status());
            if let Some((step, next)) = step.and_then(|step| Some((step, session.step(step).ok()?))) {
                events.push(self.session_draft(&ended, &next, step));
                change.events.push(self.event(
                    &ended,
                    &next,
                    JobEventType::of_session_step(step),
                    serde_json::json!({}),
                ));
                change.session = Some(JobSessionChange {
                    session: next,
                    from: Some(session.version),
                });
            }
            self.commit(Change {
                events,
                jobs: vec![change],
                ..Change::default()
            })
            .await?;
            self.file_up(&session, true).await;
            return Ok(());
        }
        // Whoever died may have started a process and not come to say so.
        if session.process.is_none() {
            self.stop_agent(&job).await;
        }
        let mut next = free.changed(now);
        next.sub_state = Some(SubState::Recovering);
        let mut change = JobChange::over(job.version, next.clone());
        change.hold = hold;
        let mut events = Vec::new();
        if let Ok(recovering) = session.step(SessionStep::Recover) {
            events.push(self.session_event(&next, &recovering, EventType::JobSessionRecovering, Some(WHY)));
            let data = serde_json::json!({"reason": WHY});
            change
                .events
                .push(self.event(&next, &recovering, JobEventType::SessionRecovering, data));
            change.session = Some(JobSessionChange {
                session: recovering,
                from: Some(session.version),
            });
        }
        self.commit(Change {
            events,
            jobs: vec![change],
            ..Change::default()
        })
        .await
    }

    /// Ends processes that serve a job which has ended, or goes on at another node. What serves a job that goes on here
    /// is left to it.
    pub(super) async fn reap(&self) -> Result<(), RecordError> {
        for process in self.parts.jobs.processes().await? {
            let job = self.parts.jobs.find(&process.job_id).await?;
            if self.holds(&process.job_id) {
                continue;
            }
            let goes_on = job.as_ref().is_some_and(|job| !job.has_ended());
            if goes_on && self.parts.jobs.place(&process.job_id).await? != Place::OtherNode {
                continue;
            }
            let Some(agent) = self.parts.agents.known(&process.agent) else {
                continue;
            };
            agent
                .driver
                .reap(self.parts.jobs.mark(&process.job_id), Some(process.mark.clone()))
                .await;
            let gone = GoneProcess {
                mark: process.mark,
                session: process.session_id,
            };
            self.commit(Change {
                gone: vec![gone],
                ..Change::default()
            })
            .await?;
        }
        Ok(())
    }

    /// Takes back what agents asked whose job has ended meanwhile: by somebody who could not come to take it back, or while
    /// nobody looked after it.
    pub(super) async fn withdraw_the_rest(&self) -> Result<(), RecordError> {
        for question in self.parts.board.list(ApprovalFilter::open()).await? {
            let Some(id) = question.job_id.as_deref().map(JobId::trusted) else {
                continue;
            };
            let job = self.parts.jobs.find(&id).await?;
            // What an agent asks by calls of its own is the business of whoever takes those calls.
            let is_left = job.is_some_and(|job| job.has_ended() && job.owner == question.owner);
            if is_left && !self.holds(&id) {
                let why = "the job no longer waits for this";
                self.parts
                    .board
                    .withdraw(&question.id, &Actor::system("jobs"), why)
                    .await?;
            }
        }
        Ok(())
    }

    async fn stop_agent(&self, job: &Job) {
        let Ok(processes) = self.parts.jobs.processes().await else {
            return;
        };
        let process = processes.into_iter().find(|process| process.job_id == job.id);
        if let Some(agent) = self.parts.agents.known(&job.agent) {
            let mark = process.map(|process| process.mark);
            agent.driver.reap(self.parts.jobs.mark(&job.id), mark).await;
        }
    }

    /// Brings the files of sessions at rest to what is kept.
    pub(super) async fn file_the_rest(&self) -> Result<(), RecordError> {
        for session in self.parts.jobs.unfiled(limits::JOBS_AT_ONCE).await? {
            let job = self.parts.jobs.find(&session.job_id).await?;
            if job.is_some_and(|job| job.has_ended()) && !self.holds(&session.job_id) {
                self.file_up(&session, true).await;
            }
        }
        Ok(())
    }
}

/// How a job ends that was being ended when its supervisor, or the record, vanished.
pub(super) fn ending_of(job: &Job) -> Option<Ending> {
    if job.clock.remaining_ms == 0 {
        return Some(Ending::timed_out());
    }
    (job.sub_state == Some(SubState::Interrupting)).then(Ending::cancelled)
}
