//! What people see of jobs: one with its session and what it used, the processes that agents run in, how
//! many there are. And what a caller hears who waits for one.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{JobDesk, unrecorded};
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal};
use crate::ids::JobId;
use crate::job::driver::Usage;
use crate::job::event::JobEvent;
use crate::job::keeping::AgentProcess;
use crate::job::lifecycle::{JobStatus, SubState, words};
use crate::job::session::JobSession;
use crate::job::state::{Job, without_nulls};
use crate::limits;
use crate::service::Progress;
use crate::session::{Caller, Role};

/// How soon a caller who waits hears what happened.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// A job with all that belongs to it.
#[derive(Clone, Debug)]
pub struct WholeJob {
    pub job: Job,
    pub session: JobSession,
    /// Where its session's files are.
    pub directory: PathBuf,
    /// What its conversation used so far.
    pub usage: Usage,
}

impl WholeJob {
    pub fn to_json(&self) -> Value {
        let mut shown = self.job.to_json();
        shown["session"] = self.session.to_json(&self.directory);
        shown["usage"] = self.usage.to_json();
        shown
    }
}

impl Usage {
    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "model": self.model,
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "totalTokens": self.total_tokens,
            "costUsd": self.cost_usd,
        });
        without_nulls(&mut shown);
        shown
    }
}

words! {
    /// S1's states of a process in the pool.
    ProcessStatus {
        Idle "idle",
        Busy "busy",
        Crashed "crashed",
    }
}

/// A process of an agent and what it does now.
#[derive(Clone, Debug)]
pub struct ProcessSeen {
    pub process: AgentProcess,
    pub status: ProcessStatus,
    /// The agent's own id of the conversation, or ours before it has one.
    pub session_id: String,
}

impl ProcessSeen {
    fn of(process: AgentProcess, job: Option<&Job>) -> Self {
        let status = match job {
            Some(job) if job.has_ended() => ProcessStatus::Idle,
            Some(job) if job.sub_state == Some(SubState::Recovering) => ProcessStatus::Crashed,
            Some(_) => ProcessStatus::Busy,
            None => ProcessStatus::Idle,
        };
        let conversation = job.and_then(|job| job.conversation_id.as_ref());
        Self {
            session_id: conversation
                .map_or(process.session_id.as_str(), |id| id.as_str())
                .to_owned(),
            process,
            status,
        }
    }

    /// S1's CodexExecProcess, as far as it can be told.
    pub fn to_json(&self) -> Value {
        let job = match self.status {
            ProcessStatus::Busy | ProcessStatus::Crashed => Some(self.process.job_id.as_str()),
            ProcessStatus::Idle => None,
        };
        let mut shown = json!({
            "pid": self.process.mark.pid,
            "status": self.status.as_str(),
            "currentJobId": job,
            "sessionId": self.session_id,
            "createdAt": self.process.created_at.to_string(),
            "agent": self.process.agent,
        });
        without_nulls(&mut shown);
        shown
    }
}

impl JobDesk {
    /// A job with its session and what it used.
    pub async fn whole(&self, caller: &Caller, id: &JobId) -> Result<WholeJob, Refusal> {
        let job = self.find(caller, id).await?;
        let session = self.session(caller, id).await?;
        let usage = self.parts.jobs.usage(&job.session_id).await.map_err(unrecorded)?;
        Ok(WholeJob {
            directory: self.directory(&session),
            job,
            session,
            usage,
        })
    }

    /// The message that a session's agent is at; none where it writes none.
    pub async fn unfinished(&self, session: &JobSession) -> Option<String> {
        self.parts.files.unfinished(&session.folder()).await
    }

    /// What the conversations of these jobs used so far, in their order.
    pub async fn usages(&self, jobs: &[Job]) -> Result<Vec<Usage>, Refusal> {
        let mut usages = Vec::with_capacity(jobs.len());
        for job in jobs {
            usages.push(self.parts.jobs.usage(&job.session_id).await.map_err(unrecorded)?);
        }
        Ok(usages)
    }

    /// The processes that agents run in.
    pub async fn processes(&self) -> Result<Vec<ProcessSeen>, Refusal> {
        let jobs = &self.parts.jobs;
        let mut seen = Vec::new();
        for process in jobs.processes().await.map_err(unrecorded)? {
            let job = jobs.find(&process.job_id).await.map_err(unrecorded)?;
            seen.push(ProcessSeen::of(process, job.as_ref()));
        }
        Ok(seen)
    }

    /// How many jobs there are in each state.
    pub async fn counts(&self) -> Result<Vec<(JobStatus, usize)>, Refusal> {
        self.parts.jobs.count().await.map_err(unrecorded)
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

/// Whoever reads the record reads of jobs too: people, and whoever started one.
pub(super) fn may_read(caller: &Caller, job: &Job) -> bool {
    match caller.role {
        Role::Operator | Role::Approver | Role::Viewer => true,
        Role::Agent => caller.credential == job.owner,
    }
}

/// Only whoever started a job, and operators, have a say in it.
pub(super) fn may_act(caller: &Caller, job: &Job) -> Result<(), Refusal> {
    if caller.credential == job.owner || caller.role == Role::Operator {
        return Ok(());
    }
    let message = "only whoever started a job, and operators, may speak to its agent or call it back";
    Err(Refusal::new(ErrorCode::Forbidden, message))
}
