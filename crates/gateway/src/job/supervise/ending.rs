//! How a job ends or rests, and how its agent is let go of.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::super::event::{JobEvent, JobEventType};
use super::super::keeping::{GoneProcess, Hold, Place, unsent, waiting_messages};
use super::super::lifecycle::{JobStep, SessionStep, SubState, session_step_at_the_end};
use super::super::state::Job;
use super::Supervisor;
use super::course::{Ending, Next};
use super::following::{Follower, Starting, Turn};
use super::recovery::ending_of;
use super::writing::{Lost, Writing};
use crate::audit::event::{Draft, EventType};
use crate::audit::{Change, RecordError};
use crate::clock::Timestamp;
use crate::limits;

impl Follower {
    /// Writes how a turn ended in one with what follows from it.
    pub(super) async fn conclude(&mut self, next: Next, mut writing: Writing) -> Result<Option<Next>, Lost> {
        match &next {
            Next::End(ending) if ending.step == JobStep::Complete => {
                let works_on = self.works_on().await?;
                // Something may have been written meanwhile.
                writing.job = self.job.changed(self.supervisor.parts.clock.now());
                if works_on {
                    self.write(writing).await?;
                    self.turn = Turn::Runs;
                    return Ok(None);
                }
                let ended = self.ended(ending, &writing).await;
                match self.write(ended).await {
                    Ok(()) => Ok(Some(next)),
                    // A message waits: it is the next turn, unless there shall be none.
                    Err(Lost::Moved) if self.messages_waiting().await? > 0 => match self.interrupted_at {
                        None => {
                            self.write(writing).await?;
                            self.turn = Turn::Over;
                            self.look_for_notes = true;
                            Ok(None)
                        }
                        Some(_) => {
                            let ending = Ending::cancelled();
                            let ended = self.ended(&ending, &writing).await;
                            self.write(ended).await?;
                            Ok(Some(Next::End(ending)))
                        }
                    },
                    Err(lost) => Err(lost),
                }
            }
            Next::End(ending) => {
                let ended = self.ended(ending, &writing).await;
                self.write(ended).await?;
                Ok(Some(next))
            }
            Next::TryAgain { .. } | Next::HandOn { .. } | Next::PauseUntil { .. } => {
                self.write(writing).await?;
                Ok(Some(next))
            }
        }
    }

    /// How many messages wait for a job that stands as we know it.
    async fn messages_waiting(&self) -> Result<usize, Lost> {
        let jobs = &self.supervisor.parts.jobs;
        let kept = jobs.find(&self.job.id).await.map_err(Lost::Unrecorded)?;
        if kept.is_none_or(|kept| kept.version != self.job.version) {
            return Ok(0);
        }
        let notes = jobs.notes(&self.job.id).await.map_err(Lost::Unrecorded)?;
        Ok(waiting_messages(&notes))
    }

    /// Says of messages that a job which ends otherwise than well never came to.
    async fn unsent(&self, step: JobStep) -> Option<JobEvent> {
        if step == JobStep::Complete {
            return None;
        }
        let message = unsent(self.messages_waiting().await.unwrap_or(0))?;
        Some(self.event(JobEventType::AgentWarning, json!({"message": message})))
    }

    /// The job's end behind what is written with it, with the session at rest, or ended where nobody can come
    /// back to it.
    async fn ended(&self, ending: &Ending, before: &Writing) -> Writing {
        let supervisor = &self.supervisor;
        let now = supervisor.parts.clock.now();
        let mut job = self
            .job
            .step(ending.step, now)
            .unwrap_or_else(|_| self.job.changed(now));
        job.result = ending.result.as_ref().map(|text| {
            let clean = supervisor.parts.redactor.redact_text(text);
            cut(&clean, limits::JOB_RESULT_BYTES_MAX).to_owned()
        });
        job.error.clone_from(&ending.error);
        let mut writing = Writing::of(job.clone());
        writing.events.clone_from(&before.events);
        writing.events.extend(self.unsent(ending.step).await);
        writing.drafts.clone_from(&before.drafts);
        writing.hold = Hold::Release;
        let step = session_step_at_the_end(self.session.status());
        let stepped = step.and_then(|step| Some((step, self.session.step(step).ok()?)));
        let mut session = stepped
            .as_ref()
            .map_or_else(|| self.session.changed(), |(_, session)| session.clone());
        session.process = None;
        if let Some(branch) = self.branch().await {
            session.config["branch"] = json!(branch);
        }
        writing.drafts.push(supervisor.step_draft(&job, ending.step));
        writing.events.push(supervisor.step_event(&job, &session, ending.step));
        if let Some((step, _)) = stepped {
            writing.drafts.push(supervisor.session_draft(&job, &session, step));
            let kind = JobEventType::of_session_step(step);
            writing.events.push(supervisor.event(&job, &session, kind, json!({})));
        }
        writing.session = Some(session);
        writing
    }

    /// The branch that a run's agent works on.
    pub(super) async fn branch(&self) -> Option<String> {
        self.job.run_id.as_ref()?;
        let directory = self.session.config["cwd"].as_str()?;
        self.supervisor.parts.agents.branch(Path::new(directory)).await
    }

    /// Carries out what follows; what is written already is not written again.
    pub(super) async fn settle(&mut self, next: Next) -> Result<(), Lost> {
        if self.job.has_ended() {
            return Ok(());
        }
        match next {
            Next::End(ending) => {
                let ended = self.ended(&ending, &Writing::of(self.job.clone())).await;
                self.write(ended).await
            }
            Next::TryAgain { pause, why } => {
                let mut job = self.resting(pause_until(&self.supervisor, pause));
                job.retries += 1;
                job.sub_state = Some(SubState::Recovering);
                self.rest(job, Vec::new(), &why).await
            }
            Next::HandOn { why } => {
                let mut job = self.resting(self.supervisor.parts.clock.now());
                job.sub_state = Some(SubState::Recovering);
                self.stop_agent(None).await;
                self.rest(job, Vec::new(), &why).await
            }
            Next::PauseUntil { until, why } => {
                let mut job = self.resting(until);
                job.sub_state = Some(SubState::PausedLimit);
                let paused = self.supervisor.limit_reached(&job, &why);
                self.rest(job, vec![paused], &why).await
            }
        }
    }

    fn resting(&self, until: Timestamp) -> Job {
        let now = self.supervisor.parts.clock.now();
        let mut job = self.job.changed(now);
        job.clock = job.clock.paused(now);
        job.not_before = Some(until);
        job
    }

    /// Back into the queue, to be taken up when its time comes.
    async fn rest(&mut self, job: Job, drafts: Vec<Draft>, why: &str) -> Result<(), Lost> {
        let mut writing = Writing::of(job);
        writing.hold = Hold::Release;
        writing.drafts = drafts;
        if let Ok(session) = self.session.step(SessionStep::Recover) {
            let recovering = EventType::JobSessionRecovering;
            let draft = self
                .supervisor
                .session_event(&writing.job, &session, recovering, Some(why));
            writing.drafts.push(draft);
            writing
                .events
                .push(self.event(JobEventType::SessionRecovering, json!({"reason": why})));
            writing.session = Some(session);
        }
        self.write(writing).await
    }

    /// Lets go of the agent: its process ends, its questions are taken back, its file is whole.
    pub(super) async fn leave(&mut self, starting: Option<Starting>) {
        self.withdraw_all("the job no longer waits for this").await;
        self.forget_unfinished().await;
        self.stop_agent(starting).await;
        // Not before the agent is gone: it would take the closed door for a failure.
        self.supervisor.parts.endpoints.close(&self.job.id).await;
        if self.job.has_ended() {
            self.supervisor.file_up(&self.session, true).await;
        }
    }

    /// Somebody else has the job. Where that is on this node, its agent is theirs as well; where it is not, nobody here
    /// needs the agent, and nothing it does is written down.
    pub(super) async fn give_up(&mut self, starting: Option<Starting>) {
        let place = self.supervisor.parts.jobs.place(&self.job.id).await;
        match place {
            Ok(Place::ThisNode) => {}
            Ok(Place::Here | Place::OtherNode | Place::Nowhere) | Err(_) => self.stop_agent(starting).await,
        }
        self.supervisor.parts.endpoints.close(&self.job.id).await;
    }

    async fn stop_agent(&mut self, starting: Option<Starting>) {
        let conversation = match (self.conversation.take(), starting) {
            // It was over before it was taken up. Its driver holds a process for us by now, and only a
            // conversation can let go of that.
            (None, Some(starting)) => {
                let begun = tokio::time::timeout(limits::INTERRUPT_PATIENCE, starting).await;
                begun.ok().and_then(Result::ok)
            }
            (conversation, _) => conversation,
        };
        match conversation {
            Some(conversation) => conversation.stop().await,
            None => {
                let (job, process) = (self.supervisor.parts.jobs.mark(&self.job.id), self.process.clone());
                self.agent.driver.reap(job, process).await;
            }
        }
        let gone = self.processes_gone().await;
        if let Err(error) = gone {
            tracing::warn!(%error, "that an agent's process is gone could not be recorded; it is looked for again");
        }
    }

    /// Back into the queue after the record was away: nobody looks after the job, though this process lives.
    pub(super) async fn put_back(&mut self, error: &RecordError) {
        let deadline = tokio::time::Instant::now() + limits::JOB_BEAT_MISSED;
        while !self.job.has_ended() && tokio::time::Instant::now() < deadline {
            let written = match ending_of(&self.job) {
                // It was being ended, and nobody wants it to go on.
                Some(ending) => self.settle(Next::End(ending)).await,
                None => {
                    let mut job = self.resting(self.supervisor.parts.clock.now());
                    job.sub_state = Some(SubState::Recovering);
                    self.rest(job, Vec::new(), &error.to_string()).await
                }
            };
            match written {
                Ok(()) | Err(Lost::Moved) => return,
                Err(Lost::Unrecorded(_)) => {}
            }
        }
    }

    async fn processes_gone(&self) -> Result<(), RecordError> {
        let parts = &self.supervisor.parts;
        let ours = parts.jobs.processes().await?.into_iter();
        let gone = ours
            .filter(|process| process.session_id == self.session.id)
            .map(|process| GoneProcess {
                mark: process.mark,
                session: process.session_id,
            });
        let gone: Vec<_> = gone.collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.supervisor
            .commit(Change {
                gone,
                ..Change::default()
            })
            .await
    }
}

fn pause_until(supervisor: &Supervisor, pause: Duration) -> Timestamp {
    supervisor.parts.clock.now().after(pause)
}

/// As much of a text as is kept.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
