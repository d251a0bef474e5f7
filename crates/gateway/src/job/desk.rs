//! The desk: where callers bring work for agents, ask after it, add a word or call it back.
//!
//! Tools, REST, the console and the terminal all come here. Who started a job, and operators, may message and
//! interrupt it; people may read of it; to every other agent it does not exist.

mod looking;
mod waiting;
mod writing;

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::driver::Input;
use super::files::Files;
use super::input::JobInput;
use super::keeping::{Errand, Jobs};
use super::lifecycle::SessionStatus;
use super::session::{JobSession, SessionName};
use super::state::{Job, Order};
use crate::approval::board::Board;
use crate::audit::redact::Redactor;
use crate::audit::{Change, Record, RecordError};
use crate::clock::Clock;
use crate::error::{ErrorCode, Refusal, brief};
use crate::ids::{ConversationId, CorrelationId, CredentialId, IdSource, JobId};
use crate::limits;
use crate::session::Caller;
pub use looking::{ProcessSeen, ProcessStatus, WholeJob};
use looking::{may_act, may_read, not_found};

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

impl NotStarted {
    fn refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Record(error) => unrecorded(error),
        }
    }
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
        started.map_err(NotStarted::refusal)
    }

    /// Accepts a job together with what else begins with it: both, or neither.
    pub async fn start_with(
        &self,
        caller: &Caller,
        assignment: Assignment,
        also: impl Fn(&Job, &JobSession) -> Change,
    ) -> Result<Job, NotStarted> {
        let parts = &self.parts;
        self.find_room(&caller.credential).await?;
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

    /// One more job of a credential may wait.
    async fn find_room(&self, owner: &CredentialId) -> Result<(), NotStarted> {
        let open = self.parts.jobs.open_of(owner).await?;
        if open < limits::JOBS_OPEN_PER_CALLER_MAX {
            return Ok(());
        }
        let message = format!("{open} jobs of this caller wait or run; wait for one to end");
        Err(NotStarted::Refused(Refusal::new(ErrorCode::QueueFull, message)))
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
        // A run ends with its job, and whatever goes on for it afterwards is called back.
        if let Some(run) = &job.run_id {
            let message = format!(
                "the conversation `{}` was that of run `{run}`, which is over; set off another run",
                brief(conversation)
            );
            return Err(Refusal::new(ErrorCode::Conflict, message));
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
        self.find_room(&session.owner).await.map_err(NotStarted::refusal)?;
        let order = Order {
            request_id: request_id.to_owned(),
            correlation_id: self.parts.ids.correlation(),
            session_id: session.id.clone(),
            agent: session.agent.clone(),
            owner: session.owner.clone(),
            started_by: caller.actor.clone(),
            run_id: None,
            input: last.input.asking(message),
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
}

fn unrecorded(error: RecordError) -> Refusal {
    error.refusal("nothing was done, try again later")
}
