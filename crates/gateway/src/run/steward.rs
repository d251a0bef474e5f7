//! Looks after runs: gives each its turn as a job of an agent, ends it with that job, and when its time is
//! over.
//!
//! A run and its job begin in one transaction, so a run has one job or none, whatever vanishes when. All other
//! steps can be taken again from what is kept: a run whose job has ended is ended, a job whose run has ended
//! is interrupted. So any number of processes may look after runs; of two that take the same step one is
//! first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Map;

use super::desk::{RunDesk, StepError, end};
use super::keeping::{Link, LinkEnd, LinkKind, LinkType, RunChange, RunFilter};
use super::lifecycle::{RunStatus, RunStep};
use super::state::Run;
use super::telling::{self, told};
use crate::audit::event::{Actor, EventType};
use crate::audit::{Change, RecordError};
use crate::clock::{Timestamp, Watch};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CredentialId, RunId};
use crate::job::desk::{Assignment, JobDesk, NotStarted};
use crate::job::keeping::Jobs;
use crate::job::lifecycle::{JobStatus, SessionStatus};
use crate::job::session::JobSession;
use crate::job::state::Job;
use crate::limits;
use crate::session::{Caller, Role, Transport};

/// How soon runs are looked at again when nobody says that something happened.
const LOOK_EVERY: Duration = Duration::from_millis(1_000);

/// What an agent is told that talked about an issue and is now to do it.
const TALKED: &str = "\
You have talked about this before, in this very conversation. The discussion is over: do now what was agreed.";

/// Port: what a run comes to on this installation.
pub trait Planner: Send + Sync + 'static {
    fn plan(&self, run: &Run) -> Result<Work, Refusal>;
}

/// Who does a run's work.
#[derive(Debug)]
pub enum Work {
    /// An agent of ours.
    Job(Box<Assignment>),
    /// One that somebody else starts, and that comes with the run's token.
    Outside,
}

pub struct Steward {
    parts: StewardParts,
    seen: Mutex<Seen>,
}

/// What was seen when runs were looked at last.
#[derive(Clone)]
struct Seen {
    clock: Watch,
    /// Since when their clocks ran.
    since: BTreeMap<RunId, Timestamp>,
}

pub struct StewardParts {
    pub desk: Arc<RunDesk>,
    pub jobs: Arc<dyn Jobs>,
    pub job_desk: Arc<JobDesk>,
    pub planner: Arc<dyn Planner>,
}

impl Steward {
    pub fn new(parts: StewardParts) -> Arc<Self> {
        let seen = Mutex::new(Seen {
            clock: Watch::on(&parts.desk.parts().clock),
            since: BTreeMap::new(),
        });
        Arc::new(Self { parts, seen })
    }

    /// Looks after runs for as long as this process lives.
    pub async fn run(self: Arc<Self>) {
        let mut changes = self.parts.desk.parts().board.changes();
        loop {
            changes.mark_unchanged();
            if let Err(refusal) = self.round().await {
                tracing::warn!(
                    reason = refusal.message,
                    "runs cannot be looked after now, trying again"
                );
            }
            let _ = tokio::time::timeout(LOOK_EVERY, changes.changed()).await;
        }
    }

    /// Everything that there is to do now, once.
    pub async fn round(&self) -> Result<(), Refusal> {
        self.end_what_is_over().await?;
        self.stop_what_is_left().await?;
        self.give_turns().await
    }

    /// Runs whose job has ended, and runs whose time is over.
    async fn end_what_is_over(&self) -> Result<(), Refusal> {
        let desk = &self.parts.desk;
        for run in self.follow_the_clock(self.at_work().await?).await? {
            let job = match &run.job_id {
                Some(id) => {
                    let job = self.parts.jobs.find(id).await;
                    job.map_err(|error| super::desk::unrecorded(&error))?
                }
                None => None,
            };
            let ended = match (&job, run.is_over(desk.parts().clock.now())) {
                (Some(job), _) if job.has_ended() => ending(job),
                (_, true) => (RunStep::Fail, "timeout: its time is over".to_owned()),
                (_, false) => continue,
            };
            let (step, reason) = ended;
            self.settled(desk.step(&itself(), &run, step, &reason).await)?;
        }
        Ok(())
    }

    /// A clock that was set neither ends a run nor gives it time. Several may look after runs and all notice it: the first
    /// sets a run's clock along, and the others find that it runs since another moment.
    async fn follow_the_clock(&self, mut runs: Vec<Run>) -> Result<Vec<Run>, Refusal> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(step_ms) = seen.clock.step_ms(&self.parts.desk.parts().clock) {
            for run in &mut runs {
                if let Some(since) = seen.since.get(&run.id) {
                    *run = self.parts.desk.set_along(run, *since, step_ms).await?;
                }
            }
        }
        let running = |run: &Run| Some((run.id.clone(), run.timer.since?));
        seen.since = runs.iter().filter_map(running).collect();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        Ok(runs)
    }

    /// All that work now: those that others do may be many, and stay for long.
    async fn at_work(&self) -> Result<Vec<Run>, Refusal> {
        let mut found: Vec<Run> = Vec::new();
        loop {
            let filter = RunFilter {
                statuses: vec![RunStatus::Running],
                offset: found.len(),
                limit: limits::RUNS_AT_ONCE,
                ..RunFilter::default()
            };
            let page = self.parts.desk.list(filter).await?;
            let is_last = page.len() < limits::RUNS_AT_ONCE;
            found.extend(page);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Jobs that go on though their run has ended.
    async fn stop_what_is_left(&self) -> Result<(), Refusal> {
        let parts = self.parts.desk.parts();
        let left = parts.runs.jobs_left(limits::RUNS_AT_ONCE).await;
        for (job, run) in left.map_err(|error| super::desk::unrecorded(&error))? {
            let notes = self.parts.jobs.notes(&job).await.unwrap_or_default();
            // Once is enough: whoever looks after it has been told.
            if notes
                .iter()
                .any(|note| note.errand == crate::job::keeping::Errand::Interrupt)
            {
                continue;
            }
            if let Err(refusal) = self.parts.job_desk.interrupt(&operator(), &job).await {
                tracing::debug!(%run, reason = refusal.message, "the job of a run that ended was not interrupted");
            }
        }
        Ok(())
    }

    async fn give_turns(&self) -> Result<(), Refusal> {
        let runs = &self.parts.desk.parts().runs;
        let due = runs.runs_due(limits::RUNS_AT_ONCE).await;
        for run in due.map_err(|error| super::desk::unrecorded(&error))? {
            self.start(&run).await?;
        }
        Ok(())
    }

    /// Begins a run with its job, both or neither. One that cannot begin here ends with the reason.
    pub async fn start(&self, run: &Run) -> Result<(), Refusal> {
        let work = match self.parts.planner.plan(run) {
            Ok(work) => work,
            Err(refusal) => return self.fail(run, &refusal.message).await,
        };
        let begun = match work {
            Work::Outside => {
                let change = self.starting(run, None);
                let committed = self.parts.desk.parts().record.commit(change).await;
                committed.map(drop).map_err(NotStarted::Record)
            }
            Work::Job(mut assignment) => {
                let also = |job: &Job, session: &JobSession| self.starting(run, Some((job, session)));
                let desk = &self.parts.job_desk;
                let started = match self.talked_in(run, &assignment.agent).await? {
                    None => desk.start_with(&worker(run), *assignment, also).await,
                    Some(session) => {
                        if !run.is_talk() {
                            let prompt = &mut assignment.input.prompt;
                            *prompt = format!("{prompt}\n\n{TALKED}");
                        }
                        desk.go_on_with(&worker(run), &session, *assignment, also).await
                    }
                };
                started.map(drop)
            }
        };
        match begun {
            Ok(()) => {
                self.parts.desk.parts().board.announce();
                Ok(())
            }
            // Somebody else was first, or another run of its issue.
            Err(NotStarted::Record(RecordError::RunMoved | RecordError::JobMoved)) => Ok(()),
            Err(NotStarted::Record(error)) => Err(super::desk::unrecorded(&error)),
            Err(NotStarted::Refused(refusal)) if refusal.code == ErrorCode::QueueFull => Ok(()),
            Err(NotStarted::Refused(refusal)) => self.fail(run, &refusal.message).await,
        }
    }

    /// The conversation in which the issue was talked about last, where that was the last thing done about it, by the
    /// same agent, who can go on with it.
    async fn talked_in(&self, run: &Run, agent: &str) -> Result<Option<JobSession>, Refusal> {
        if run.issue_number.is_none() {
            return Ok(None);
        }
        let filter = RunFilter {
            repository: run.repository.clone(),
            issue_number: run.issue_number,
            limit: limits::RUNS_AT_ONCE,
            ..RunFilter::default()
        };
        let runs = self.parts.desk.list(filter).await?;
        let last = runs.iter().find(|it| it.id != run.id && it.started_at.is_some());
        let Some(job) = last.filter(|last| last.is_talk()).and_then(|last| last.job_id.as_ref()) else {
            return Ok(None);
        };
        let unread = |error: RecordError| super::desk::unrecorded(&error);
        let Some(job) = self.parts.jobs.find(job).await.map_err(unread)? else {
            return Ok(None);
        };
        let session = self.parts.jobs.session(&job.session_id).await.map_err(unread)?;
        let rests = |session: &JobSession| {
            session.agent == agent
                && session.job_id == job.id
                && session.status() == SessionStatus::Idle
                && session.conversation_id.is_some()
        };
        Ok(session.filter(rests))
    }

    async fn fail(&self, run: &Run, reason: &str) -> Result<(), Refusal> {
        self.settled(self.parts.desk.step(&itself(), run, RunStep::Fail, reason).await)
    }

    /// What begins with a run.
    fn starting(&self, run: &Run, job: Option<(&Job, &JobSession)>) -> Change {
        let parts = self.parts.desk.parts();
        let now = parts.clock.now();
        let Ok(mut next) = run.after(RunStep::Start, now) else {
            // It was read as one that waits; a store that knows better refuses the change.
            return Change::default();
        };
        next.job_id = job.map(|(job, _)| job.id.clone());
        let agent = job.map(|(job, _)| job.agent.as_str());
        let deadline = next.timer.deadline().map(|at| at.to_string());
        let payload = told(&next)
            .optional_text("agent", agent)
            .optional_text("deadline", deadline.as_deref())
            .finish();
        let event = telling::draft(&next, parts.ids.event(), now, itself(), EventType::RunStarted, payload);
        let link = job.map(|(_, session)| Link {
            source: end(run),
            target: LinkEnd {
                kind: LinkKind::Session,
                id: session.id.as_str().to_owned(),
            },
            link_type: LinkType::References,
            metadata: Map::new(),
            created_at: now,
        });
        Change {
            events: vec![event],
            runs: vec![RunChange::over(run.version, next)],
            links: link.into_iter().collect(),
            ..Change::default()
        }
    }

    /// A step that somebody else took first is no trouble.
    fn settled(&self, outcome: Result<Run, StepError>) -> Result<(), Refusal> {
        match outcome {
            Ok(_) | Err(StepError::Moved) => Ok(()),
            Err(StepError::Refused(refusal)) if refusal.code == ErrorCode::Conflict => Ok(()),
            Err(StepError::Refused(refusal)) => Err(refusal),
        }
    }
}

/// How a run ends whose job has ended.
fn ending(job: &Job) -> (RunStep, String) {
    let why = job.error.as_ref().map_or("no reason was given", |error| &error.message);
    match job.status() {
        JobStatus::Completed => (RunStep::Succeed, "its job is done".to_owned()),
        JobStatus::Cancelled => (RunStep::Cancel, format!("its job was called back: {why}")),
        JobStatus::Timeout => (RunStep::Fail, format!("timeout: {why}")),
        JobStatus::Failed | JobStatus::Pending | JobStatus::Running => {
            (RunStep::Fail, format!("its job failed: {why}"))
        }
    }
}

fn itself() -> Actor {
    Actor::system("runs")
}

/// Who starts a run's job: the run itself, so that no other caller owns it.
fn worker(run: &Run) -> Caller {
    Caller {
        credential: CredentialId::trusted(format!("run:{}", run.id)),
        role: Role::Agent,
        run: Some(Arc::new(run.context())),
        ..operator()
    }
}

/// The steward, who may call back any job.
fn operator() -> Caller {
    Caller {
        credential: CredentialId::trusted("system:runs"),
        role: Role::Operator,
        actor: itself(),
        ..Caller::anonymous_agent(Transport::Rest)
    }
}
