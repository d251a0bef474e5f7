//! Looks after jobs: gives each its turn, follows its agent, and leaves none behind.
//!
//! Decisions are pure ([`queue`]: whose turn it is, [`course`]: what follows from what happened); this loop
//! and its followers ([`following`], from [`opening`] through [`hearing`] and [`asking`] to [`ending`]) only
//! carry them out, over ports. Whatever must survive is written before
//! the next thing is done, over the version that it was made from. So at any moment this process may vanish:
//! another, or the next, finds the job as it stands and goes on ([`recovery`]).

mod asking;
pub mod course;
mod ending;
mod following;
mod hearing;
mod opening;
pub mod queue;
mod recovery;
mod unfinished;
mod writing;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;

use super::driver::{AgentDriver, AgentQuestion, Endpoint};
use super::event::JobEvent;
use super::files::Files;
use super::keeping::{Hold, JobChange, Jobs};
use super::lifecycle::SubState;
use super::session::JobSession;
use super::state::Job;
use crate::approval::board::Board;
use crate::audit::keyed::DigestKey;
use crate::audit::redact::Redactor;
use crate::audit::{Change, Pending, Record, RecordError};
use crate::clock::{Clock, Steady, Watch};
use crate::ids::{CredentialId, IdSource, JobId, JobSessionId};
use crate::limits;
use crate::policy::agents::Judged;
pub(crate) use asking::shown;
use following::Follower;
pub(crate) use writing::told;

/// How soon a job is looked at again when nobody says that something happened.
const LOOK_EVERY: Duration = Duration::from_millis(1_000);
/// Time between two looks at agents that are let go of while the server ends.
const LET_GO_POLL: Duration = Duration::from_millis(10);
/// News that a slow listener may lag behind before it misses some.
const NEWS_KEPT: usize = 1_024;

/// Port: the agents of this installation.
pub trait Agents: Send + Sync + 'static {
    /// For a job that begins or is taken up.
    fn find(&self, name: &str) -> Option<Agent>;

    /// For what a job left, also of an agent that is offered no more.
    fn known(&self, name: &str) -> Option<Agent> {
        self.find(name)
    }

    /// Variables that a job's agent is given besides its own, by the run that it works in.
    fn grants(&self, job: &Job) -> Pending<BTreeMap<String, String>>;

    /// The branch that is checked out in a directory, where there is one.
    fn branch(&self, _directory: &Path) -> Pending<Option<String>> {
        Box::pin(async { None })
    }
}

/// Port: the way back to us that a job's agent is given for its own tool calls.
pub trait Endpoints: Send + Sync + 'static {
    /// One for this life of a job, where there is a server to come back to. What an earlier life of the job
    /// was given is good for nothing from now on.
    fn open(&self, job: &Job) -> Pending<Option<Endpoint>>;

    /// What an earlier life of the job was given stays good: its agent outlived whoever looked after it, and
    /// knows no other. False where there is nothing to keep.
    fn keep(&self, job: &Job) -> Pending<bool>;

    /// This process looks after the job no more: what its agent was given here ends, with all that was
    /// begun through it.
    fn close(&self, job: &JobId) -> Pending<()>;

    /// Closes what was given to jobs that nobody looks after, unless an agent of theirs outlived that.
    fn sweep(&self) -> Pending<()>;
}

/// For a process that no agent can come back to.
pub struct NoWayBack;

impl Endpoints for NoWayBack {
    fn open(&self, _job: &Job) -> Pending<Option<Endpoint>> {
        Box::pin(async { None })
    }

    fn keep(&self, _job: &Job) -> Pending<bool> {
        Box::pin(async { false })
    }

    fn close(&self, _job: &JobId) -> Pending<()> {
        Box::pin(async {})
    }

    fn sweep(&self) -> Pending<()> {
        Box::pin(async {})
    }
}

/// One agent of the configuration.
#[derive(Clone)]
pub struct Agent {
    pub driver: Arc<dyn AgentDriver>,
    pub environment: BTreeMap<String, String>,
}

/// Port: what policy says of an agent's question.
pub trait Judge: Send + Sync + 'static {
    /// `has_failed`: the same command failed before in this job.
    fn judge(&self, job: &Job, session: &JobSession, question: &AgentQuestion, has_failed: bool) -> Judged;
}

pub struct SupervisorParts {
    pub jobs: Arc<dyn Jobs>,
    pub record: Arc<dyn Record>,
    pub files: Arc<dyn Files>,
    pub board: Arc<Board>,
    pub agents: Arc<dyn Agents>,
    pub endpoints: Arc<dyn Endpoints>,
    pub judge: Arc<dyn Judge>,
    pub redactor: Redactor,
    /// Makes what questions of agents are known again by.
    pub digests: DigestKey,
    pub clock: Clock,
    pub ids: IdSource,
    pub settings: SupervisorSettings,
}

#[derive(Clone, Copy, Debug)]
pub struct SupervisorSettings {
    /// Jobs that run at once (`jobs.maxProcesses`), whichever process looks after them.
    pub processes_max: usize,
    /// How long an agent may say nothing.
    pub idle_max: Duration,
}

/// Something that happened to a job, for whoever watches.
#[derive(Clone, Debug)]
pub enum News {
    Event(Arc<JobEvent>),
    /// A message that is still being written, as far as it is; it is kept nowhere.
    Text {
        job_id: JobId,
        text: Arc<str>,
    },
}

pub struct Supervisor {
    parts: SupervisorParts,
    news: broadcast::Sender<News>,
    state: Mutex<Places>,
    evenness: Mutex<Evenness>,
}

/// How evenly the clock ran that signs of life are held against.
struct Evenness {
    watch: Watch,
    /// When it was last seen to have been set.
    set_at: Option<Steady>,
}

/// The jobs that run here.
#[derive(Default)]
struct Places {
    held: HashMap<JobId, Held>,
    served_last: Option<CredentialId>,
    is_closing: bool,
    /// Those that run here are to be left to other nodes.
    hands_on: bool,
}

struct Held {
    owner: CredentialId,
    session: JobSessionId,
}

/// A follower's place. It is free again however the follower ends: one that broke down gives no more signs of life, so that
/// its job is found by whoever looks for such.
struct Seat {
    supervisor: Arc<Supervisor>,
    job: JobId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.supervisor.lock().held.remove(&self.job);
        self.supervisor.parts.board.announce();
    }
}

impl Supervisor {
    pub fn new(parts: SupervisorParts) -> Arc<Self> {
        let evenness = Mutex::new(Evenness {
            watch: Watch::on(&parts.clock),
            set_at: None,
        });
        Arc::new(Self {
            parts,
            news: broadcast::Sender::new(NEWS_KEPT),
            state: Mutex::default(),
            evenness,
        })
    }

    /// What happens from now on to the jobs that run in this process.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    /// Gives jobs their turns for as long as this process lives.
    pub async fn run(self: Arc<Self>) {
        let mut changes = self.parts.board.changes();
        // By a clock that nobody sets: one that was set back would leave us without a sign of life until it is where it was.
        let clock = &self.parts.clock;
        let (mut last_round, mut last_metrics) = (None, clock.steady());
        loop {
            changes.mark_unchanged();
            if self.lock().is_closing {
                return;
            }
            let now = clock.steady();
            if last_round.is_none_or(|last| now.since(last) >= limits::JOB_BEAT_EVERY) {
                last_round = Some(now);
                if let Err(error) = self.round().await {
                    tracing::warn!(%error, "jobs that nobody looks after cannot be looked for, trying again");
                }
            }
            if now.since(last_metrics) >= limits::METRICS_EVERY {
                last_metrics = now;
                self.file_metrics_of_held().await;
            }
            if let Err(error) = self.dispatch().await {
                tracing::warn!(%error, "jobs cannot be given their turns, trying again");
            }
            let nap = self.nap().await;
            let _ = tokio::time::timeout(nap, changes.changed()).await;
        }
    }

    /// How long there is nothing to look at: until a job that rests is due, and never long.
    async fn nap(&self) -> Duration {
        let now = self.parts.clock.now();
        match self.parts.jobs.next_wake(now).await {
            Ok(Some(due)) => {
                let left = due.as_millis().saturating_sub(now.as_millis());
                Duration::from_millis(u64::try_from(left).unwrap_or(0)).min(LOOK_EVERY)
            }
            Ok(None) | Err(_) => LOOK_EVERY,
        }
    }

    /// Takes no more jobs. Those that run are left as they are, for the next process to go on with.
    pub fn close(&self) {
        self.lock().is_closing = true;
    }

    /// Takes no more jobs, and leaves those that run to other nodes: each agent is ended, then its job is free. What the
    /// next process of this node could go on with, another node would begin a second time.
    pub fn hand_on(&self) {
        {
            let mut state = self.lock();
            state.is_closing = true;
            state.hands_on = true;
        }
        self.parts.board.announce();
    }

    fn hands_on(&self) -> bool {
        self.lock().hands_on
    }

    /// The jobs that are followed here.
    pub fn held(&self) -> Vec<JobId> {
        self.lock().held.keys().cloned().collect()
    }

    /// Waits until the agents of jobs that have ended, or rest, are let go of: what the record says is over leaves
    /// no process behind.
    pub async fn settled(&self) {
        while self.is_letting_go().await {
            tokio::time::sleep(LET_GO_POLL).await;
        }
    }

    async fn is_letting_go(&self) -> bool {
        for id in self.held() {
            let found = self.parts.jobs.find(&id).await;
            if let Ok(Some(job)) = found
                && (job.has_ended() || job.not_before.is_some())
            {
                return true;
            }
        }
        false
    }

    /// Shows that we live, and frees what the dead left.
    async fn round(self: &Arc<Self>) -> Result<(), RecordError> {
        self.beat().await?;
        self.free_abandoned().await?;
        self.withdraw_the_rest().await?;
        self.parts.endpoints.sweep().await;
        self.reap().await?;
        self.file_the_rest().await
    }

    /// Gives turns while there are places.
    async fn dispatch(self: &Arc<Self>) -> Result<(), RecordError> {
        while self.lock().held.len() < self.parts.settings.processes_max {
            let now = self.parts.clock.now();
            let mut waiting = self.parts.jobs.waiting(now, limits::JOBS_AT_ONCE).await?;
            // Another process may know the agents that this one does not.
            waiting.retain(|job| self.parts.agents.find(&job.agent).is_some() && !self.serves(&job.session_id));
            let Some(job) = self.whose_turn(waiting) else {
                return Ok(());
            };
            match self.take(&job).await {
                Ok(taken) => self.follow(taken).await?,
                Err(RecordError::JobMoved) => {}
                // Other processes have them all; one that ends says so.
                Err(RecordError::NoPlace) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn whose_turn(&self, mut waiting: Vec<Job>) -> Option<Job> {
        let owners: Vec<CredentialId> = waiting.iter().map(|job| job.owner.clone()).collect();
        let mut state = self.lock();
        let mut running = BTreeMap::new();
        for held in state.held.values() {
            *running.entry(held.owner.clone()).or_insert(0) += 1;
        }
        let place = queue::next(&owners, &running, state.served_last.as_ref())?;
        state.served_last = Some(owners[place].clone());
        Some(waiting.swap_remove(place))
    }

    /// From now on this process looks after the job, and its clock runs.
    async fn take(&self, job: &Job) -> Result<Job, RecordError> {
        let now = self.parts.clock.now();
        let mut next = job.changed(now);
        let was_paused = next.sub_state == Some(SubState::PausedLimit);
        next.not_before = None;
        next.clock = next.clock.running(now);
        if was_paused {
            next.sub_state = Some(SubState::Recovering);
        }
        let mut change = JobChange::over(job.version, next.clone());
        change.hold = Hold::Take {
            places: self.parts.settings.processes_max,
        };
        let events = if was_paused {
            vec![self.limit_over(&next)]
        } else {
            Vec::new()
        };
        self.commit(Change {
            events,
            jobs: vec![change],
            ..Change::default()
        })
        .await?;
        Ok(next)
    }

    async fn follow(self: &Arc<Self>, job: Job) -> Result<(), RecordError> {
        let Some(session) = self.parts.jobs.session(&job.session_id).await? else {
            return Err(RecordError::Unavailable(format!(
                "the session of job `{}` is missing",
                job.id
            )));
        };
        let Some(agent) = self.parts.agents.find(&job.agent) else {
            return Ok(());
        };
        let held = Held {
            owner: job.owner.clone(),
            session: job.session_id.clone(),
        };
        self.lock().held.insert(job.id.clone(), held);
        let seat = Seat {
            supervisor: self.clone(),
            job: job.id.clone(),
        };
        tokio::spawn(async move {
            Follower::new(seat.supervisor.clone(), agent, job, session)
                .conduct()
                .await;
            drop(seat);
        });
        Ok(())
    }

    /// Whether a follower of this process has the conversation, if only to let go of it.
    fn serves(&self, session: &JobSessionId) -> bool {
        self.lock().held.values().any(|held| held.session == *session)
    }

    fn holds(&self, job: &JobId) -> bool {
        self.lock().held.contains_key(job)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Places> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
