//! News of jobs for the clients that started them: S1's `codex-father/progress`.
//!
//! The store is the truth, so one loop of a process reads there what happened, also to jobs that another
//! process looks after, and tells whoever listens. What happens in this process wakes the loop at once; the
//! rest is noticed by the board's bell or the next look. Nothing is told twice, and nothing of the time
//! before anybody listened. Whoever misses some of it finds all of it in the job's log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use super::event::{JobEvent, JobEventType};
use super::keeping::{JobFilter, Jobs};
use super::lifecycle::JobStatus;
use super::state::Job;
use super::supervise::News;
use crate::approval::board::Board;
use crate::audit::RecordError;
use crate::clock::{Clock, Timestamp};
use crate::ids::{CredentialId, JobId, JobSessionId};
use crate::limits;

/// S1's name of the notification.
pub const PROGRESS: &str = "codex-father/progress";

/// Time between two looks while a job is open that another process may look after, and while none is.
const LOOK_EVERY: Duration = Duration::from_millis(1_000);
const LOOK_RARELY: Duration = Duration::from_secs(5);
/// What happens close together is read together.
const TOGETHER: Duration = Duration::from_millis(50);
/// Jobs that may begin and end between two looks and are told of all the same.
const LATEST: usize = 32;
/// News that a slow listener may lag behind before it misses some.
const KEPT: usize = 1_024;

/// Something that happened to a job, and whose job it is. Nobody else is told.
#[derive(Clone, PartialEq, Debug)]
pub struct JobTold {
    pub owner: CredentialId,
    pub event: JobEvent,
}

impl JobEvent {
    /// S1's MCPNotification: its parameters; none for what S1 does not map.
    pub fn progress(&self) -> Option<Value> {
        let kind = self.kind.progress_name()?;
        Some(json!({
            "jobId": self.job_id.as_str(),
            "eventType": kind,
            "eventData": self.data,
            "timestamp": self.timestamp.to_string(),
        }))
    }
}

pub struct JobNews {
    jobs: Arc<dyn Jobs>,
    board: Arc<Board>,
    clock: Clock,
    told: broadcast::Sender<Arc<JobTold>>,
    stirred: watch::Sender<u64>,
    restarts: AtomicU64,
}

/// One who hears what is told from now on.
pub struct JobListener(broadcast::Receiver<Arc<JobTold>>);

impl JobListener {
    /// The next piece of news; none once there can be no more.
    pub async fn next(&mut self) -> Option<Arc<JobTold>> {
        loop {
            match self.0.recv().await {
                Ok(told) => return Some(told),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "a listener was too slow for the news of jobs");
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

impl JobNews {
    pub fn new(jobs: Arc<dyn Jobs>, board: Arc<Board>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            jobs,
            board,
            clock,
            told: broadcast::Sender::new(KEPT),
            stirred: watch::Sender::new(0),
            restarts: AtomicU64::new(0),
        })
    }

    /// News of everybody's jobs; whoever passes them on looks whose they are.
    pub fn listen(&self) -> JobListener {
        let listener = JobListener(self.told.subscribe());
        self.stir();
        listener
    }

    /// Moves whenever something happened to a job that this process looks after.
    pub fn stirred(&self) -> watch::Receiver<u64> {
        self.stirred.subscribe()
    }

    /// Agents that this process started again.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Tells for as long as this process lives. `own` is what happens to the jobs that it looks after.
    pub async fn run(self: Arc<Self>, own: broadcast::Receiver<News>) {
        tokio::join!(self.hear(own), self.tell());
    }

    async fn hear(&self, mut own: broadcast::Receiver<News>) {
        loop {
            match own.recv().await {
                Ok(News::Event(event)) => {
                    if event.kind == JobEventType::ProcessRestarted {
                        self.restarts.fetch_add(1, Ordering::Relaxed);
                    }
                    self.stir();
                }
                Ok(News::Text { .. }) => self.stir(),
                Err(broadcast::error::RecvError::Lagged(_)) => self.stir(),
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    async fn tell(&self) {
        let (mut stirred, mut changes) = (self.stirred.subscribe(), self.board.changes());
        let mut round = Round::new(self.clock.now());
        loop {
            stirred.mark_unchanged();
            changes.mark_unchanged();
            if self.told.receiver_count() == 0 {
                round = Round::new(self.clock.now());
            } else if let Err(error) = self.look(&mut round).await {
                tracing::warn!(%error, "news of jobs cannot be read, trying again");
            }
            let pause = if round.is_busy() { LOOK_EVERY } else { LOOK_RARELY };
            tokio::select! {
                // Neither ends before this process does.
                _ = stirred.changed() => {}
                _ = changes.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Tells what happened since the last look.
    async fn look(&self, round: &mut Round) -> Result<(), RecordError> {
        let of = |statuses: &[JobStatus], limit| JobFilter {
            owner: None,
            statuses: statuses.to_vec(),
            limit,
        };
        let open = of(&[JobStatus::Pending, JobStatus::Running], limits::JOBS_AT_ONCE);
        // Read before the events are: those of a job that has ended are all there.
        let mut jobs = self.jobs.list(open).await?;
        jobs.extend(self.jobs.list(of(&[], LATEST)).await?);
        round.take(jobs);
        for (id, followed) in round.unread() {
            loop {
                let limit = limits::JOB_EVENTS_AT_ONCE;
                let events = self.jobs.events(&followed.session, followed.after, limit).await?;
                let Some(last) = events.last() else { break };
                followed.after = last.seq;
                let own = events.into_iter().map(|stored| stored.event);
                for event in own.filter(|event| event.job_id == *id && event.timestamp >= followed.since) {
                    if event.kind.progress_name().is_some() {
                        let owner = followed.owner.clone();
                        // Nobody may be listening any more.
                        let _ = self.told.send(Arc::new(JobTold { owner, event }));
                    }
                }
            }
            followed.is_told = followed.has_ended;
        }
        Ok(())
    }

    fn stir(&self) {
        self.stirred.send_modify(|count| *count += 1);
    }
}

/// What is being told, and how far.
struct Round {
    since: Timestamp,
    followed: BTreeMap<JobId, Followed>,
}

struct Followed {
    owner: CredentialId,
    session: JobSessionId,
    since: Timestamp,
    after: u64,
    has_ended: bool,
    /// To the end.
    is_told: bool,
}

impl Round {
    fn new(since: Timestamp) -> Self {
        Self {
            since,
            followed: BTreeMap::new(),
        }
    }

    /// Follows these from now on, and no others. What ended stays while it is listed: it is not told again.
    fn take(&mut self, jobs: Vec<Job>) {
        let mut before = std::mem::take(&mut self.followed);
        for job in jobs {
            let has_ended = job.has_ended();
            let is_old = has_ended && job.updated_at < self.since;
            let new = Followed {
                owner: job.owner,
                session: job.session_id,
                since: self.since,
                after: 0,
                has_ended,
                is_told: is_old,
            };
            let mut followed = before.remove(&job.id).unwrap_or(new);
            followed.has_ended |= has_ended;
            let kept = self.followed.entry(job.id).or_insert(followed);
            kept.has_ended |= has_ended;
        }
    }

    fn unread(&mut self) -> impl Iterator<Item = (&JobId, &mut Followed)> {
        self.followed.iter_mut().filter(|(_, followed)| !followed.is_told)
    }

    fn is_busy(&self) -> bool {
        self.followed.values().any(|followed| !followed.has_ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ConversationId, EventId};

    #[test]
    fn a_notification_has_the_fields_of_s1_and_only_what_s1_maps_is_one() {
        let event = |kind| JobEvent {
            event_id: EventId::trusted("e"),
            timestamp: Timestamp::from_millis(1_000),
            job_id: JobId::trusted("j"),
            session_id: Some(ConversationId::trusted("s")),
            kind,
            data: json!({"message": "hello"}),
        };
        let told = event(JobEventType::CodexAgentMessage).progress().unwrap();
        let expected = json!({"jobId": "j", "eventType": "agent-message", "eventData": {"message": "hello"},
            "timestamp": "1970-01-01T00:00:01.000Z"});
        assert_eq!(told, expected);
        assert_eq!(event(JobEventType::JobCompleted).progress(), None);
    }
}
