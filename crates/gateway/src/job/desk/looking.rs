//! What people see of jobs: one with its session and what it used, the processes that agents run in, how
//! many there are. Who may see one, and who may act on it.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{JobDesk, unrecorded};
use crate::error::{ErrorCode, Refusal, brief};
use crate::ids::JobId;
use crate::job::driver::Usage;
use crate::job::event::StoredEvent;
use crate::job::keeping::{AgentProcess, JobFilter};
use crate::job::lifecycle::{JobStatus, SubState, words};
use crate::job::session::JobSession;
use crate::job::state::{Job, without_nulls};
use crate::limits;
use crate::session::{Caller, Role};

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
    pub async fn find(&self, caller: &Caller, id: &JobId) -> Result<Job, Refusal> {
        let job = self.parts.jobs.find(id).await.map_err(unrecorded)?;
        job.filter(|job| may_read(caller, job))
            .ok_or_else(|| not_found("job", id.as_str()))
    }

    /// The latest jobs that the caller may see; the newest last.
    pub async fn list(&self, caller: &Caller, mut filter: JobFilter) -> Result<Vec<Job>, Refusal> {
        if caller.role == Role::Agent {
            filter.owner = Some(caller.credential.clone());
        }
        self.parts.jobs.list(filter).await.map_err(unrecorded)
    }

    pub async fn session(&self, caller: &Caller, id: &JobId) -> Result<JobSession, Refusal> {
        let job = self.find(caller, id).await?;
        let session = self.parts.jobs.session(&job.session_id).await.map_err(unrecorded)?;
        session.ok_or_else(|| not_found("session of job", id.as_str()))
    }

    /// Where a session's files are.
    pub fn directory(&self, session: &JobSession) -> PathBuf {
        self.parts.files.directory(&session.folder())
    }

    /// A job's events behind a place of its session, oldest first, and the place to go on from.
    pub async fn logs(
        &self,
        caller: &Caller,
        id: &JobId,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<StoredEvent>, u64), Refusal> {
        let job = self.find(caller, id).await?;
        let limit = limit.min(limits::JOB_EVENTS_AT_ONCE);
        let events = self.parts.jobs.events(&job.session_id, after, limit).await;
        let mut events = events.map_err(unrecorded)?;
        let next = events.last().map_or(after, |stored| stored.seq);
        events.retain(|stored| stored.event.job_id == job.id);
        Ok((events, next))
    }

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

pub(super) fn not_found(what: &str, id: &str) -> Refusal {
    Refusal::new(ErrorCode::NotFound, format!("there is no {what} `{}`", brief(id)))
}
