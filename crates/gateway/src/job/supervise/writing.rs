//! What the record and the files say of a job, and how it gets there.

use serde_json::{Value, json};

use super::super::driver::{ProcessMark, Usage};
use super::super::event::{JobEvent, JobEventType, presentable};
use super::super::keeping::{Filed, Hold, JobChange, JobSessionChange};
use super::super::lifecycle::{JobStep, SessionStep, recorded_as, session_recorded_as};
use super::super::metrics;
use super::super::session::JobSession;
use super::super::state::Job;
use super::following::Follower;
use super::{News, Supervisor};
use crate::approval::request::ApprovalChange;
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::payload::{Object, Payload};
use crate::audit::{Change, Pending, RecordError};
use crate::ids::NoteId;
use crate::limits;

/// The follower can go on no more: another process has the job, or nothing can be written.
#[derive(Debug)]
pub(super) enum Lost {
    /// Somebody else looks after it now.
    Moved,
    Unrecorded(RecordError),
}

/// One step of a job while it is put together.
pub(super) struct Writing {
    pub(super) job: Job,
    pub(super) session: Option<JobSession>,
    pub(super) drafts: Vec<Draft>,
    pub(super) events: Vec<JobEvent>,
    pub(super) approvals: Vec<ApprovalChange>,
    pub(super) usage: Option<Usage>,
    pub(super) process: Option<ProcessMark>,
    pub(super) delivered: Vec<NoteId>,
    pub(super) hold: Hold,
}

impl Writing {
    pub(super) fn of(job: Job) -> Self {
        Self {
            job,
            session: None,
            drafts: Vec::new(),
            events: Vec::new(),
            approvals: Vec::new(),
            usage: None,
            process: None,
            delivered: Vec::new(),
            hold: Hold::Keep,
        }
    }
}

impl Supervisor {
    /// Writes, trying again for a while when the record is in trouble.
    pub(super) async fn commit(&self, change: Change) -> Result<(), RecordError> {
        let deadline = tokio::time::Instant::now() + limits::RECORD_CLOSE_PATIENCE;
        loop {
            match self.parts.record.commit(change.clone()).await {
                Err(RecordError::Unavailable(_)) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Reads, trying again for as long.
    pub(super) async fn read<T>(
        &self,
        ask: impl Fn() -> Pending<Result<T, RecordError>> + Send,
    ) -> Result<T, RecordError> {
        let deadline = tokio::time::Instant::now() + limits::RECORD_CLOSE_PATIENCE;
        loop {
            match ask().await {
                Err(RecordError::Unavailable(_)) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// A row of the record about a job.
    pub(super) fn draft(&self, job: &Job, kind: EventType, payload: Payload) -> Draft {
        let (id, now) = (self.parts.ids.event(), self.parts.clock.now());
        Draft::new(
            id,
            now,
            job.correlation_id.clone(),
            Actor::system("jobs"),
            kind,
            payload,
        )
    }

    /// What the record says of a step.
    pub(super) fn step_draft(&self, job: &Job, step: JobStep) -> Draft {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut payload = told(job);
        if let Some(duration) = job.duration_ms() {
            payload = payload
                .whole("duration_ms", whole(duration))
                .whole("approval_count", whole(job.metrics.approval_count))
                .whole("approval_ms", whole(job.metrics.approval_ms));
        }
        if let Some(error) = &job.error {
            let message = self.parts.redactor.redact_text(&error.message).into_owned();
            payload = payload.text("error_code", &error.code).text("reason", &message);
        }
        self.draft(job, recorded_as(step), payload.finish())
    }

    pub(super) fn session_draft(&self, job: &Job, session: &JobSession, step: SessionStep) -> Draft {
        self.session_event(job, session, session_recorded_as(step), None)
    }

    pub(super) fn session_event(&self, job: &Job, session: &JobSession, kind: EventType, why: Option<&str>) -> Draft {
        let why = why.map(|why| self.parts.redactor.redact_text(why));
        let payload = told(job)
            .text("session_name", session.name.as_str())
            .optional_text("reason", why.as_deref());
        self.draft(job, kind, payload.finish())
    }

    pub(super) fn process_draft(
        &self,
        job: &Job,
        kind: EventType,
        mark: Option<&ProcessMark>,
        why: Option<&str>,
    ) -> Draft {
        let mut payload = told(job).optional_text("reason", why);
        if let Some(mark) = mark {
            payload = payload
                .whole("pid", i64::from(mark.pid))
                .whole("pid_started", i64::try_from(mark.started).unwrap_or(i64::MAX));
        }
        self.draft(job, kind, payload.finish())
    }

    /// The job's clock stands still until a limit is reset.
    pub(super) fn limit_reached(&self, job: &Job, why: &str) -> Draft {
        let why = self.parts.redactor.redact_text(why).into_owned();
        self.waiting(job, EventType::WaitPaused, Some(&why))
    }

    pub(super) fn limit_over(&self, job: &Job) -> Draft {
        self.waiting(job, EventType::WaitResumed, None)
    }

    fn waiting(&self, job: &Job, kind: EventType, why: Option<&str>) -> Draft {
        let until = job.not_before.map(|at| at.to_string());
        let payload = told(job)
            .text("wait_state", "limit")
            .whole(
                "remaining_ms",
                i64::try_from(job.clock.remaining_ms).unwrap_or(i64::MAX),
            )
            .optional_text("until", until.as_deref())
            .optional_text("reason", why);
        self.draft(job, kind, payload.finish())
    }

    /// A line of the session's file.
    pub(super) fn event(&self, job: &Job, session: &JobSession, kind: JobEventType, data: Value) -> JobEvent {
        JobEvent {
            event_id: self.parts.ids.event(),
            timestamp: self.parts.clock.now(),
            job_id: job.id.clone(),
            session_id: session.conversation_id.clone(),
            kind,
            data: presentable(&self.parts.redactor, data),
        }
    }

    /// The line of a step, with what S1's examples show in it.
    pub(super) fn step_event(&self, job: &Job, session: &JobSession, step: JobStep) -> JobEvent {
        let data = match step {
            JobStep::Start => json!({}),
            JobStep::Complete | JobStep::Cancel | JobStep::TimeOut | JobStep::Fail => {
                let mut data = json!({"duration": job.duration_ms()});
                if let Some(error) = &job.error {
                    data["error"] = error.to_json();
                }
                data
            }
        };
        self.event(job, session, JobEventType::of_step(step), data)
    }

    /// Brings a session's file to what is kept. What goes wrong is tried again with the next event, and at
    /// the next start: nothing is lost meanwhile.
    pub(super) async fn file_up(&self, session: &JobSession, look_again: bool) -> bool {
        match self.try_file_up(session, look_again).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, session = session.name.as_str(), "a session's file is behind");
                false
            }
        }
    }

    async fn try_file_up(&self, session: &JobSession, look_again: bool) -> Result<(), String> {
        let (files, jobs, folder) = (&self.parts.files, &self.parts.jobs, session.folder());
        let mut told = match files.append(&folder, Vec::new()).await {
            Ok(told) if !look_again => told,
            Ok(_) | Err(_) => {
                files
                    .begin(&folder, session.config.clone())
                    .await
                    .map_err(|error| error.to_string())?;
                let kept = jobs.event_ids(&session.id).await.map_err(|error| error.to_string())?;
                files.open(&folder, kept).await.map_err(|error| error.to_string())?
            }
        };
        loop {
            let events = jobs.events(&session.id, told, limits::JOB_EVENTS_AT_ONCE).await;
            let events = events.map_err(|error| error.to_string())?;
            if events.is_empty() {
                break;
            }
            told = files.append(&folder, events).await.map_err(|error| error.to_string())?;
        }
        if look_again {
            // Another process may have added the same at this moment; who looks last sees it.
            let kept = jobs.event_ids(&session.id).await.map_err(|error| error.to_string())?;
            told = files.open(&folder, kept).await.map_err(|error| error.to_string())?;
            self.file_metrics(session, &folder).await?;
            let filed = Filed {
                session: session.id.clone(),
                seq: told,
            };
            let change = Change {
                filed: vec![filed],
                ..Change::default()
            };
            self.commit(change).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl Supervisor {
    /// Brings `metrics.json` of every session that is at work here up to date.
    pub(super) async fn file_metrics_of_held(&self) {
        let held: Vec<_> = self.lock().held.values().map(|held| held.session.clone()).collect();
        for id in held {
            let filed = match self.parts.jobs.session(&id).await {
                Ok(Some(session)) => self.file_metrics(&session, &session.folder()).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = filed {
                tracing::warn!(
                    error,
                    "the numbers of a session could not be written, trying again in an hour"
                );
            }
        }
    }

    /// Replaces `metrics.json` by what the session's events come to.
    async fn file_metrics(&self, session: &JobSession, folder: &str) -> Result<(), String> {
        let (mut told, mut after) = (Vec::new(), 0);
        loop {
            let events = self
                .parts
                .jobs
                .events(&session.id, after, limits::JOB_EVENTS_AT_ONCE)
                .await;
            let mut events = events.map_err(|error| error.to_string())?;
            let Some(last) = events.last() else { break };
            after = last.seq;
            // What an agent says is no number.
            events.retain(|stored| stored.event.kind != JobEventType::CodexAgentMessage);
            told.append(&mut events);
        }
        let metrics = metrics::of_session(&told).to_json();
        let filed = self.parts.files.metrics(folder, metrics).await;
        filed.map_err(|error| error.to_string())
    }
}

impl Follower {
    /// Writes a step, and takes it as where the job stands now.
    pub(super) async fn write(&mut self, writing: Writing) -> Result<(), Lost> {
        let news: Vec<_> = writing
            .events
            .iter()
            .cloned()
            .map(|event| News::Event(event.into()))
            .collect();
        let mut change = JobChange::over(self.job.version, writing.job.clone());
        change.hold = writing.hold;
        change.events = writing.events;
        change.usage = writing.usage;
        change.process = writing.process;
        change.delivered = writing.delivered;
        change.session = writing.session.clone().map(|session| JobSessionChange {
            session,
            from: Some(self.session.version),
        });
        let change = Change {
            events: writing.drafts,
            approvals: writing.approvals,
            jobs: vec![change],
            ..Change::default()
        };
        match self.supervisor.commit(change).await {
            Ok(()) => {}
            Err(RecordError::JobMoved) => return Err(Lost::Moved),
            Err(error) => return Err(Lost::Unrecorded(error)),
        }
        self.job = writing.job;
        if let Some(session) = writing.session {
            self.session = session;
        }
        if !news.is_empty() {
            self.supervisor.file_up(&self.session, false).await;
        }
        for item in news {
            // Nobody may be watching.
            let _ = self.supervisor.news.send(item);
        }
        Ok(())
    }
}

/// What every row about a job says.
pub(crate) fn told(job: &Job) -> Object {
    Object::new()
        .text("job_id", job.id.as_str())
        .text("agent", &job.agent)
        .text("requested_by", &job.started_by.id)
        .text("status", job.status().as_str())
        .optional_text("conversation_id", job.conversation_id.as_ref().map(|id| id.as_str()))
        .optional_text("run_id", job.run_id.as_deref())
}
