//! The desk: where callers bring work for agents, ask after it, add a word or call it back.
//!
//! Tools, REST, the console and the terminal all come here. Who started a job, and operators, may message and
//! interrupt it; people may read of it; to every other agent it does not exist.

mod looking;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::driver::Input;
use super::event::{JobEvent, JobEventType, StoredEvent, presentable};
use super::files::Files;
use super::input::JobInput;
use super::keeping::{Errand, Hold, JobChange, JobFilter, JobSessionChange, Jobs, Note, parts_json};
use super::lifecycle::{JobStatus, JobStep, SessionStatus, SessionStep};
use super::session::{JobSession, SessionName};
use super::state::{Job, Order};
use super::supervise::course::Ending;
use super::supervise::told;
use crate::approval::board::Board;
use crate::audit::event::{Draft, EventType};
use crate::audit::redact::Redactor;
use crate::audit::{Change, Record, RecordError};
use crate::clock::Clock;
use crate::error::{ErrorCode, Refusal, brief};
use crate::ids::{ConversationId, CorrelationId, IdSource, JobId};
use crate::limits;
use crate::session::{Caller, Role};
pub use looking::{ProcessSeen, ProcessStatus, WholeJob};
use looking::{may_act, may_read};

/// Time between two looks at a job that is waited for: not every change of it rings the bell.
const JOB_POLL: Duration = Duration::from_millis(100);
/// How long a job may take from the queue to its place when there is one.
const QUEUE_PATIENCE: Duration = Duration::from_millis(250);

pub struct JobDesk {
    parts: DeskParts,
    /// This process is about to stop.
    stopping: watch::Sender<bool>,
}

pub struct DeskParts {
    pub jobs: Arc<dyn Jobs>,
    pub record: Arc<dyn Record>,
    pub files: Arc<dyn Files>,
    pub board: Arc<Board>,
    pub redactor: Redactor,
    pub clock: Clock,
    pub ids: IdSource,
}

/// Work for an agent, as it came to be: where, under which policy.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The client's id of the request that it came in.
    pub request_id: String,
    pub correlation_id: CorrelationId,
    pub agent: String,
    pub input: JobInput,
    pub name: Option<SessionName>,
    /// S1's Session.config.
    pub config: Value,
    pub run_id: Option<String>,
}

/// Why a job was not accepted.
#[derive(Debug)]
pub enum NotStarted {
    Refused(Refusal),
    Record(RecordError),
}

impl From<RecordError> for NotStarted {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl JobDesk {
    pub fn new(parts: DeskParts) -> Arc<Self> {
        Arc::new(Self {
            parts,
            stopping: watch::Sender::new(false),
        })
    }

    /// This process is about to stop: whoever waits for a job hears at once how it stands.
    pub fn stop_waiting(&self) {
        self.stopping.send_replace(true);
    }

    /// Accepts a job. It is durable, and in the queue, when this returns.
    pub async fn start(&self, caller: &Caller, assignment: Assignment) -> Result<Job, Refusal> {
        let started = self.start_with(caller, assignment, |_, _| Change::default()).await;
        started.map_err(|error| match error {
            NotStarted::Refused(refusal) => refusal,
            NotStarted::Record(error) => unrecorded(error),
        })
    }

    /// Accepts a job together with what else begins with it: both, or neither.
    pub async fn start_with(
        &self,
        caller: &Caller,
        assignment: Assignment,
        also: impl Fn(&Job, &JobSession) -> Change,
    ) -> Result<Job, NotStarted> {
        let parts = &self.parts;
        let open = parts.jobs.open_of(&caller.credential).await?;
        if open >= limits::JOBS_OPEN_PER_CALLER_MAX {
            let message = format!("{open} jobs of this caller wait or run; wait for one to end");
            return Err(NotStarted::Refused(Refusal::new(ErrorCode::QueueFull, message)));
        }
        let wanted = assignment
            .name
            .clone()
            .unwrap_or_else(|| SessionName::from_prompt(&assignment.input.prompt));
        let now = parts.clock.now();
        let order = Order {
            request_id: assignment.request_id,
            correlation_id: assignment.correlation_id,
            session_id: parts.ids.job_session(),
            agent: assignment.agent,
            owner: caller.credential.clone(),
            started_by: caller.actor.clone(),
            run_id: assignment.run_id,
            input: assignment.input,
        };
        let job = Job::new(parts.ids.job(), order, now);
        for count in 1..=limits::SESSIONS_OF_A_NAME_MAX {
            let mut session = JobSession::new(
                job.session_id.clone(),
                wanted.again(count),
                job.id.clone(),
                job.agent.clone(),
                job.owner.clone(),
                now,
            );
            session.config = assignment.config.clone();
            let also = also(&job, &session);
            match self.open(&job, session, None, also).await {
                Ok(()) => return Ok(job),
                Err(RecordError::SessionNameTaken) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let message = format!(
            "too many sessions are called `{}` today; choose another `sessionName`",
            wanted.as_str()
        );
        Err(NotStarted::Refused(Refusal::new(ErrorCode::LimitExceeded, message)))
    }

    /// Accepts a job that goes on with a conversation which rests, under terms of its own.
    pub async fn go_on_with(
        &self,
        caller: &Caller,
        session: &JobSession,
        assignment: Assignment,
        also: impl Fn(&Job, &JobSession) -> Change,
    ) -> Result<Job, NotStarted> {
        let order = Order {
            request_id: assignment.request_id,
            correlation_id: assignment.correlation_id,
            session_id: session.id.clone(),
            agent: assignment.agent,
            owner: caller.credential.clone(),
            started_by: caller.actor.clone(),
            run_id: assignment.run_id,
            input: assignment.input,
        };
        let mut job = Job::new(self.parts.ids.job(), order, self.parts.clock.now());
        job.conversation_id.clone_from(&session.conversation_id);
        let mut next = session.changed();
        next.job_id = job.id.clone();
        next.config = assignment.config;
        let also = also(&job, &next);
        self.open(&job, next, Some(session.version), also).await?;
        Ok(job)
    }

    /// Says something in a conversation: to the job that is under way, or as the next one.
    pub async fn message(
        &self,
        caller: &Caller,
        conversation: &str,
        message: Vec<Input>,
        request_id: &str,
    ) -> Result<Job, Refusal> {
        let parts = &self.parts;
        let missing = || not_found("conversation", conversation);
        let id = ConversationId::trusted(conversation);
        let session = parts
            .jobs
            .session_of(&id)
            .await
            .map_err(unrecorded)?
            .ok_or_else(missing)?;
        let job = parts
            .jobs
            .find(&session.job_id)
            .await
            .map_err(unrecorded)?
            .ok_or_else(missing)?;
        if !may_read(caller, &job) {
            return Err(missing());
        }
        may_act(caller, &job)?;
        if !job.has_ended() {
            match self.leave(caller, &job, Errand::Message, message.clone()).await {
                Ok(()) => return Ok(job),
                // It ended at this moment: then this is the next one.
                Err(RecordError::JobMoved) => {
                    return Box::pin(self.message(caller, conversation, message, request_id)).await;
                }
                Err(error) => return Err(unrecorded(error)),
            }
        }
        if session.status() == SessionStatus::Terminated {
            let message = format!(
                "the conversation `{}` has ended for good; start a new task",
                brief(conversation)
            );
            return Err(Refusal::new(ErrorCode::Conflict, message));
        }
        self.next_job(caller, session, &job, &message, request_id).await
    }

    /// A further job with the same conversation, under the same terms.
    async fn next_job(
        &self,
        caller: &Caller,
        session: JobSession,
        last: &Job,
        message: &[Input],
        request_id: &str,
    ) -> Result<Job, Refusal> {
        let texts = message.iter().map(|part| match part {
            Input::Text(text) => text.as_str(),
            Input::Image { url } => url.as_str(),
        });
        let order = Order {
            request_id: request_id.to_owned(),
            correlation_id: self.parts.ids.correlation(),
            session_id: session.id.clone(),
            agent: session.agent.clone(),
            owner: session.owner.clone(),
            started_by: caller.actor.clone(),
            run_id: last.run_id.clone(),
            input: JobInput {
                prompt: texts.collect::<Vec<_>>().join("\n"),
                ..last.input.clone()
            },
        };
        let mut job = Job::new(self.parts.ids.job(), order, self.parts.clock.now());
        job.conversation_id.clone_from(&session.conversation_id);
        let mut next = session.changed();
        next.job_id = job.id.clone();
        match self.open(&job, next, Some(session.version), Change::default()).await {
            Ok(()) => Ok(job),
            Err(RecordError::JobMoved | RecordError::SessionNameTaken) => Err(Refusal::new(
                ErrorCode::Conflict,
                "somebody else said something in this conversation at this moment; try again",
            )),
            Err(error) => Err(unrecorded(error)),
        }
    }

    /// Calls a job back: one that waits ends here, one that runs is interrupted by whoever looks after it.
    pub async fn interrupt(&self, caller: &Caller, id: &JobId) -> Result<Job, Refusal> {
        for _ in 0..limits::DECISION_TRIES_MAX {
            let job = self.find(caller, id).await?;
            may_act(caller, &job)?;
            if job.has_ended() {
                let message = format!("the job has ended already: it is {}", job.status().as_str());
                return Err(Refusal::new(ErrorCode::Conflict, message));
            }
            let outcome = match self.cancel_waiting(caller, &job).await {
                Ok(cancelled) => return Ok(cancelled),
                // Somebody looks after it.
                Err(RecordError::JobMoved) => self.leave(caller, &job, Errand::Interrupt, Vec::new()).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => return Ok(job),
                Err(RecordError::JobMoved) => {}
                Err(error) => return Err(unrecorded(error)),
            }
        }
        Err(Refusal::new(
            ErrorCode::AuditUnavailable,
            "too many change this job at once; try again",
        ))
    }

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
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            changes.mark_unchanged();
            let job = self.find(caller, id).await?;
            let now = tokio::time::Instant::now();
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

    /// Writes a job that begins, with its session and what else begins with it.
    async fn open(&self, job: &Job, session: JobSession, from: Option<u64>, also: Change) -> Result<(), RecordError> {
        let parts = &self.parts;
        let input = presentable(&parts.redactor, json!({"input": job.input.to_json()}));
        let payload = told(job)
            .text("session_name", session.name.as_str())
            .part("input", &(&input["input"]).into())
            .part("config", &(&parts.redactor.redact_json(&session.config)).into())
            .finish();
        let event = self.draft(job, EventType::JobCreated, job.started_by.clone(), payload);
        let mut change = JobChange::new(job.clone());
        change.events.push(JobEvent {
            event_id: parts.ids.event(),
            timestamp: parts.clock.now(),
            job_id: job.id.clone(),
            session_id: session.conversation_id.clone(),
            kind: JobEventType::JobCreated,
            data: input,
        });
        change.session = Some(JobSessionChange { session, from });
        let mut both = also;
        both.events.insert(0, event);
        both.jobs.push(change);
        parts.record.commit(both).await?;
        parts.board.announce();
        Ok(())
    }

    /// Ends a job that nobody looks after.
    async fn cancel_waiting(&self, caller: &Caller, job: &Job) -> Result<Job, RecordError> {
        let parts = &self.parts;
        let now = parts.clock.now();
        let ending = Ending::cancelled();
        let mut ended = job.step(ending.step, now).map_err(|_| RecordError::JobMoved)?;
        ended.error = ending.error;
        let duration = i64::try_from(ended.duration_ms().unwrap_or(0)).unwrap_or(i64::MAX);
        let payload = told(&ended)
            .whole("duration_ms", duration)
            .text("error_code", ErrorCode::Cancelled.name())
            .text("by", &caller.actor.id)
            .finish();
        let mut events = vec![self.draft(&ended, EventType::JobCancelled, caller.actor.clone(), payload)];
        let mut change = JobChange::over(job.version, ended.clone());
        change.hold = Hold::Nobody;
        let line = |kind, data| JobEvent {
            event_id: parts.ids.event(),
            timestamp: now,
            job_id: ended.id.clone(),
            session_id: ended.conversation_id.clone(),
            kind,
            data,
        };
        let data = json!({"duration": ended.duration_ms(), "error": ended.error.as_ref().map(|error| error.to_json())});
        change.events.push(line(JobEventType::of_step(JobStep::Cancel), data));
        // A session that never had a conversation has nobody to come back to.
        let session = parts.jobs.session(&job.session_id).await?;
        if let Some(session) = session.filter(|session| session.conversation_id.is_none())
            && let Ok(next) = session.step(SessionStep::Terminate)
        {
            let payload = told(&ended).text("session_name", next.name.as_str()).finish();
            events.push(self.draft(&ended, EventType::JobSessionTerminated, caller.actor.clone(), payload));
            change.events.push(line(JobEventType::SessionTerminated, json!({})));
            change.session = Some(JobSessionChange {
                from: Some(session.version),
                session: next,
            });
        }
        parts
            .record
            .commit(Change {
                events,
                jobs: vec![change],
                ..Change::default()
            })
            .await?;
        parts.board.announce();
        Ok(ended)
    }

    /// Leaves word for whoever looks after a job.
    async fn leave(&self, caller: &Caller, job: &Job, errand: Errand, message: Vec<Input>) -> Result<(), RecordError> {
        let parts = &self.parts;
        let note = Note {
            id: parts.ids.note(),
            job_id: job.id.clone(),
            errand,
            message,
            by: caller.actor.id.clone(),
            at: parts.clock.now(),
            delivered: false,
        };
        let kind = match errand {
            Errand::Message => EventType::JobMessage,
            Errand::Interrupt => EventType::JobInterrupt,
        };
        let said = presentable(&parts.redactor, json!({"items": parts_json(&note.message)}));
        let payload = told(job)
            .text("by", &note.by)
            .part("items", &(&said["items"]).into())
            .finish();
        let change = Change {
            events: vec![self.draft(job, kind, caller.actor.clone(), payload)],
            notes: vec![note],
            ..Change::default()
        };
        parts.record.commit(change).await?;
        parts.board.announce();
        Ok(())
    }

    fn draft(
        &self,
        job: &Job,
        kind: EventType,
        by: crate::audit::event::Actor,
        payload: crate::audit::payload::Payload,
    ) -> Draft {
        let (id, now) = (self.parts.ids.event(), self.parts.clock.now());
        Draft::new(id, now, job.correlation_id.clone(), by, kind, payload)
    }
}

fn not_found(what: &str, id: &str) -> Refusal {
    Refusal::new(ErrorCode::NotFound, format!("there is no {what} `{}`", brief(id)))
}

fn unrecorded(error: RecordError) -> Refusal {
    Refusal::new(
        ErrorCode::AuditUnavailable,
        format!("{error}; nothing was done, try again later"),
    )
}
