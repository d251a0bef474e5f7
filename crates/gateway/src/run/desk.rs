//! The desk: where runs are set off, called back, finished and reported on.
//!
//! Webhooks, people and tools all come here. A run that is set off waits for its turn; the
//! [steward](super::steward) gives it one. Every change is written over the version that it was made from,
//! with its event.

use std::sync::Arc;

use super::keeping::{Link, LinkEnd, LinkKind, LinkType, RunChange, RunFilter, Runs};
use super::lifecycle::{RunStep, recorded_as};
use super::profile::Profile;
use super::state::{Run, RunOrder};
use super::telling::{self, told};
use crate::approval::board::Board;
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::redact::Redactor;
use crate::audit::{Change, Record, RecordError};
use crate::clock::{Clock, Timestamp};
use crate::error::{ErrorCode, Refusal, brief};
use crate::ids::{IdSource, RunId};
use crate::limits;

pub struct RunDesk {
    parts: RunDeskParts,
}

pub struct RunDeskParts {
    pub runs: Arc<dyn Runs>,
    pub record: Arc<dyn Record>,
    pub board: Arc<Board>,
    pub redactor: Redactor,
    pub clock: Clock,
    pub ids: IdSource,
}

/// What came of setting off a run.
#[derive(Clone, PartialEq, Debug)]
pub enum Enqueued {
    New(Run),
    /// One with the same label waits for the same issue already.
    Waiting(Run),
}

impl Enqueued {
    pub fn run(&self) -> &Run {
        match self {
            Self::New(run) | Self::Waiting(run) => run,
        }
    }
}

impl RunDesk {
    pub fn new(parts: RunDeskParts) -> Arc<Self> {
        Arc::new(Self { parts })
    }

    /// Sets a run off. It is durable, and waits for its turn, when this returns.
    pub async fn enqueue(&self, by: &Actor, order: RunOrder, profile: Option<&Profile>) -> Result<Enqueued, Refusal> {
        for _ in 0..limits::DECISION_TRIES_MAX {
            let (run, mut change) = self.enqueuing(by, order.clone())?;
            if let Some(profile) = profile {
                change.events.push(self.profile_event(&run, profile));
            }
            match self.parts.record.commit(change).await {
                Ok(_) => {
                    self.parts.board.announce();
                    return Ok(Enqueued::New(run));
                }
                // The one that waited may have had its turn since; then there is room for this one.
                Err(RecordError::RunMoved) => {
                    if let Some(waiting) = self.waiting_like(&run).await? {
                        return Ok(Enqueued::Waiting(waiting));
                    }
                }
                Err(error) => return Err(unrecorded(&error)),
            }
        }
        Err(crowded())
    }

    /// A new run with what opens it, to be committed together with what set it off. Refused by the store with
    /// [`RecordError::RunMoved`] where one with the same label waits for the same issue already.
    pub fn enqueuing(&self, by: &Actor, order: RunOrder) -> Result<(Run, Change), Refusal> {
        let order = self.presentable(order)?;
        let (ids, now) = (&self.parts.ids, self.parts.clock.now());
        let run = Run::new(ids.run(), ids.correlation(), order, now);
        let payload = told(&run).text("requested_by", &run.requested_by).finish();
        let event = telling::draft(&run, ids.event(), now, by.clone(), EventType::RunEnqueued, payload);
        let links = links(&run);
        let change = Change {
            events: vec![event],
            runs: vec![RunChange::new(run.clone())],
            links,
            ..Change::default()
        };
        Ok((run, change))
    }

    /// What the record says of how a run came to its agent and its surroundings.
    pub fn profile_event(&self, run: &Run, profile: &Profile) -> Draft {
        let payload = told(run)
            .optional_text("agent", profile.agent.as_deref())
            .optional_text("namespace", profile.namespace.as_deref())
            .part("sources", &(&profile.sources()).into())
            .finish();
        let (id, now) = (self.parts.ids.event(), self.parts.clock.now());
        let by = Actor::system("runs");
        telling::draft(run, id, now, by, EventType::RunProfileResolved, payload)
    }

    pub async fn find(&self, id: &RunId) -> Result<Run, Refusal> {
        let found = self.parts.runs.find_run(id).await.map_err(|error| unrecorded(&error))?;
        found.ok_or_else(|| {
            let message = format!("there is no run `{}`", brief(id.as_str()));
            Refusal::new(ErrorCode::NotFound, message)
        })
    }

    pub async fn list(&self, filter: RunFilter) -> Result<Vec<Run>, Refusal> {
        self.parts
            .runs
            .list_runs(filter)
            .await
            .map_err(|error| unrecorded(&error))
    }

    /// Calls a run back. Whoever looks after its job is told by the steward.
    pub async fn cancel(&self, by: &Actor, id: &RunId, reason: &str) -> Result<Run, Refusal> {
        self.end(by, id, RunStep::Cancel, reason).await
    }

    /// Calls back a run that was read while it waited; false where it has moved on since.
    pub async fn call_back_waiting(&self, by: &Actor, run: &Run, reason: &str) -> Result<bool, Refusal> {
        match self.step(by, run, RunStep::Cancel, reason).await {
            Ok(_) => Ok(true),
            Err(StepError::Moved) => Ok(false),
            Err(StepError::Refused(refusal)) => Err(refusal),
        }
    }

    /// Ends a run, well or not.
    pub async fn end(&self, by: &Actor, id: &RunId, step: RunStep, reason: &str) -> Result<Run, Refusal> {
        for _ in 0..limits::DECISION_TRIES_MAX {
            let run = self.find(id).await?;
            match self.step(by, &run, step, reason).await {
                Ok(next) => return Ok(next),
                Err(StepError::Moved) => {}
                Err(StepError::Refused(refusal)) => return Err(refusal),
            }
        }
        Err(crowded())
    }

    /// Calls back a run as it was read, to be committed together with what comes in its place. Refused by the store with
    /// [`RecordError::RunMoved`] where it has moved on since.
    pub fn calling_back(&self, by: &Actor, run: &Run, reason: &str) -> Result<Change, Refusal> {
        let (next, event) = self.ending(by, run, RunStep::Cancel, reason)?;
        Ok(Change {
            events: vec![event],
            runs: vec![RunChange::over(run.version, next)],
            ..Change::default()
        })
    }

    /// Ends a run as it was read; refused where it has moved on since.
    pub(super) async fn step(&self, by: &Actor, run: &Run, step: RunStep, reason: &str) -> Result<Run, StepError> {
        let (next, event) = self.ending(by, run, step, reason).map_err(StepError::Refused)?;
        self.write(run, next, vec![event]).await
    }

    fn ending(&self, by: &Actor, run: &Run, step: RunStep, reason: &str) -> Result<(Run, Draft), Refusal> {
        let now = self.parts.clock.now();
        let mut next = run.after(step, now).map_err(|illegal| {
            let message = format!("{illegal}; it is over");
            Refusal::new(ErrorCode::Conflict, message)
        })?;
        next.reason = Some(self.clean(reason, limits::REASON_CHARS_MAX));
        let worked = next.started_at.map_or(0, |at| now.since(at).as_millis());
        let payload = told(&next)
            .optional_text("reason", next.reason.as_deref())
            .whole("duration_ms", i64::try_from(worked).unwrap_or(i64::MAX))
            .finish();
        let id = self.parts.ids.event();
        let event = telling::draft(&next, id, now, by.clone(), recorded_as(step), payload);
        Ok((next, event))
    }

    /// What a run's agent says of itself.
    pub async fn report(&self, by: &Actor, id: &RunId, status: &str) -> Result<Run, Refusal> {
        let status = self.parts.redactor.redact_text(status).into_owned();
        for _ in 0..limits::DECISION_TRIES_MAX {
            let run = self.find(id).await?;
            if run.has_ended() {
                let message = format!("the run has ended already: it is {}", run.status.as_str());
                return Err(Refusal::new(ErrorCode::Conflict, message));
            }
            let now = self.parts.clock.now();
            let mut next = run.changed(now);
            next.reported_status = Some(status.clone());
            let payload = told(&next).text("reported_status", &status).finish();
            let kind = EventType::RunStatusReported;
            let event = telling::draft(&next, self.parts.ids.event(), now, by.clone(), kind, payload);
            match self.write(&run, next, vec![event]).await {
                Ok(next) => return Ok(next),
                Err(StepError::Moved) => {}
                Err(StepError::Refused(refusal)) => return Err(refusal),
            }
        }
        Err(crowded())
    }

    /// Sets a run's clock along with the one that it goes by, where it still runs since this moment: somebody else may have
    /// done so.
    pub(super) async fn set_along(&self, run: &Run, since: Timestamp, step_ms: i64) -> Result<Run, Refusal> {
        let mut run = run.clone();
        for _ in 0..limits::DECISION_TRIES_MAX {
            if run.timer.since != Some(since) {
                return Ok(run);
            }
            let mut next = run.changed(self.parts.clock.now());
            next.timer = run.timer.set_by(step_ms);
            match self.write(&run, next, Vec::new()).await {
                Ok(next) => return Ok(next),
                Err(StepError::Moved) => run = self.find(&run.id).await?,
                Err(StepError::Refused(refusal)) => return Err(refusal),
            }
        }
        Err(crowded())
    }

    pub fn parts(&self) -> &RunDeskParts {
        &self.parts
    }

    async fn write(&self, run: &Run, next: Run, events: Vec<Draft>) -> Result<Run, StepError> {
        let change = Change {
            events,
            runs: vec![RunChange::over(run.version, next.clone())],
            ..Change::default()
        };
        match self.parts.record.commit(change).await {
            Ok(_) => {
                self.parts.board.announce();
                Ok(next)
            }
            Err(RecordError::RunMoved) => Err(StepError::Moved),
            Err(error) => Err(StepError::Refused(unrecorded(&error))),
        }
    }

    /// The run that waits in the place of this one.
    async fn waiting_like(&self, run: &Run) -> Result<Option<Run>, Refusal> {
        let filter = RunFilter {
            repository: run.repository.clone(),
            issue_number: run.issue_number,
            statuses: vec![super::lifecycle::RunStatus::Pending],
            limit: limits::RUNS_AT_ONCE,
            ..RunFilter::default()
        };
        let waiting = self.list(filter).await?;
        Ok(waiting.into_iter().find(|it| it.trigger_label == run.trigger_label))
    }

    /// What may be kept of an order: without secrets, and no longer than anybody reads.
    fn presentable(&self, order: RunOrder) -> Result<RunOrder, Refusal> {
        let bad = |message: &str| Err(Refusal::new(ErrorCode::InvalidArguments, message));
        if order.issue_number.or(order.pull_request_number).is_some() && order.repository.is_none() {
            return bad("a run for an issue or a pull request names its repository, as `owner/name`");
        }
        let numbers = [order.issue_number, order.pull_request_number];
        if numbers
            .into_iter()
            .flatten()
            .any(|number| number == 0 || i64::try_from(number).is_err())
        {
            return bad("issues and pull requests are numbered from 1, and not without end");
        }
        if order.repository.as_deref().is_some_and(|name| !is_repository(name)) {
            return bad("a repository is named `owner/name`");
        }
        if order.agent_key.is_empty() {
            return bad("a run names the key of its agent");
        }
        Ok(RunOrder {
            title: order.title.map(|title| self.clean(&title, limits::RUN_TITLE_CHARS_MAX)),
            instructions: order
                .instructions
                .map(|text| self.clean(&text, limits::RUN_INSTRUCTIONS_CHARS_MAX)),
            ..order
        })
    }

    /// A NUL is no part of what an agent could be told, and not every database keeps one.
    fn clean(&self, text: &str, max: usize) -> String {
        let clean = self.parts.redactor.redact_text(text);
        clean.chars().filter(|it| *it != '\0').take(max).collect()
    }
}

/// Why a run did not take a step.
#[derive(Debug)]
pub(super) enum StepError {
    /// Somebody else changed it first.
    Moved,
    Refused(Refusal),
}

/// A run belongs to its issue and its pull request.
fn links(run: &Run) -> Vec<Link> {
    let of = |kind, id: Option<String>, link_type| {
        Some(Link {
            source: end(run),
            target: LinkEnd { kind, id: id? },
            link_type,
            metadata: serde_json::Map::new(),
            created_at: run.created_at,
        })
    };
    [
        of(LinkKind::Issue, run.issue(), LinkType::Implements),
        of(LinkKind::PullRequest, run.pull_request(), LinkType::References),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A run as one end of a link.
pub fn end(run: &Run) -> LinkEnd {
    LinkEnd {
        kind: LinkKind::Run,
        id: run.id.as_str().to_owned(),
    }
}

fn is_repository(name: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    name.len() <= limits::REPOSITORY_BYTES_MAX
        && name
            .split_once('/')
            .is_some_and(|(owner, name)| is_plain(owner) && is_plain(name))
}

fn crowded() -> Refusal {
    Refusal::new(
        ErrorCode::AuditUnavailable,
        "too many change this run at once; try again",
    )
}

pub(super) fn unrecorded(error: &RecordError) -> Refusal {
    error.refusal("nothing was done, try again later")
}
