//! Works off what GitHub delivered, and keeps what GitHub shows of runs up to date.
//!
//! Everything can be taken up again from what is kept: a delivery is done in the transaction that sets off its
//! run, labels that are there already stay as they are, a comment is found by its mark. So whatever vanishes
//! when, there is one run, and the end is the same. Two processes do not work on the same thing at once.

mod labelled;
mod mode;
mod pulled;
mod reviewed;
mod reviewing;
mod telling;
mod withdrawn;

use std::sync::Arc;
use std::time::Duration;

use super::delivery::{Deliveries, Delivery, DeliveryChange, DeliveryState};
use super::labels::{Errand, LabelDesk};
use super::message::Messages;
use super::reception::Reception;
use super::task::Task;
use super::vocabulary::NEED_REVIEWER;
use super::{GitHub, GitHubError, IssueRef, Permission, Repository, Trouble};
use crate::approval::board::Board;
use crate::audit::event::{Actor, ActorType, Draft, EventType};
use crate::audit::payload::Object;
use crate::audit::reading::Records;
use crate::audit::{Change, Record, RecordError};
use crate::clock::{Clock, Timestamp};
use crate::error::{ErrorCode, Refusal};
use crate::ids::{CorrelationId, IdSource};
use crate::lease::LeaseChange;
use crate::run::desk::RunDesk;
use crate::run::keeping::{RunFilter, Runs};
use crate::run::manual::Profiles;
use crate::run::profile::Asked;
use crate::run::state::Run;

/// How soon it looks again when nobody says that something happened.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// What is taken up at once.
const AT_ONCE: usize = 32;
/// For how long a thing is kept from other processes. Where working on it takes longer, both may do it, and
/// the one that still has it writes it down.
const LEASE_TIME: Duration = Duration::from_secs(20);
/// Time before the second try; it doubles up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(300);
/// Tries after which passing trouble has not passed, and trouble that does not pass is believed.
const TRIES_MAX: u32 = 20;
const TRIES_REFUSED_MAX: u32 = 3;

/// Port: what policy says of runs that GitHub asks for.
pub trait Policies: Profiles {
    /// Whether runs of this repository are done here.
    fn serves(&self, repository: &str) -> bool;

    /// Whether policy names this label, besides the stages that are known anyway.
    fn names_label(&self, label: &str) -> bool;
}

pub struct Clerk {
    parts: ClerkParts,
    /// What leases know it by. Random: a process id may be another's on another node.
    holder: String,
}

pub struct ClerkParts {
    pub github: Arc<dyn GitHub>,
    pub labels: Arc<LabelDesk>,
    pub reception: Arc<Reception>,
    pub deliveries: Arc<dyn Deliveries>,
    pub messages: Arc<dyn Messages>,
    pub runs: Arc<dyn Runs>,
    pub records: Arc<dyn Records>,
    pub record: Arc<dyn Record>,
    pub desk: Arc<RunDesk>,
    pub board: Arc<Board>,
    pub policies: Arc<dyn Policies>,
    /// How long a run may work.
    pub run_time: Duration,
    pub clock: Clock,
    pub ids: IdSource,
}

/// Why something was not done.
#[derive(Debug)]
enum Undone {
    GitHub(GitHubError),
    Refused(Refusal),
    Record(RecordError),
}

impl From<GitHubError> for Undone {
    fn from(error: GitHubError) -> Self {
        Self::GitHub(error)
    }
}

impl From<Refusal> for Undone {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<RecordError> for Undone {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl Undone {
    fn reason(&self) -> String {
        match self {
            Self::GitHub(error) => error.message.clone(),
            Self::Refused(refusal) => refusal.message.clone(),
            Self::Record(error) => error.to_string(),
        }
    }

    /// How often it is worth trying.
    fn tries_max(&self) -> u32 {
        let passes = match self {
            Self::GitHub(error) => error.kind.passes() || error.kind == Trouble::Refused,
            Self::Refused(refusal) => refusal.retryable(),
            // What cannot be written now waits until it can.
            Self::Record(_) => return u32::MAX,
        };
        if passes { TRIES_MAX } else { TRIES_REFUSED_MAX }
    }
}

/// What came of a delivery's task.
enum Outcome {
    /// All is written, with the delivery.
    Written,
    /// Nothing is to be done, which is still to be written.
    Nothing(String),
    /// It waits for an answer.
    Waits,
}

impl Clerk {
    pub fn new(parts: ClerkParts) -> Arc<Self> {
        let holder = format!("clerk:{}", parts.ids.event());
        Arc::new(Self { parts, holder })
    }

    /// Works for as long as the process lives.
    pub async fn run(self: Arc<Self>) {
        let mut changes = self.parts.board.changes();
        loop {
            self.work_off().await;
            self.tell_all().await;
            tokio::select! {
                () = self.parts.reception.arrived() => {}
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn work_off(&self) {
        let due = self.due().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "deliveries cannot be looked at, trying again");
            Vec::new()
        });
        for delivery in due {
            let name = format!("delivery:{}", delivery.id);
            if !self.take_lease(&name).await {
                continue;
            }
            let outcome = match &delivery.task.as_ref().map(|task| self.as_policy_spells(task)) {
                Some(Task::Label(task)) => self.labelled(&delivery, task).await,
                Some(Task::Withdrawal(task)) => self.withdrawn(&delivery, task).await,
                Some(Task::PullRequest(task)) => self.pulled(&delivery, task).await,
                Some(Task::Review(task)) => self.reviewed(&delivery, task).await,
                Some(Task::Approval(task)) => self.approved(&delivery, task).await,
                Some(Task::Mode(task)) => self.mode_changed(&delivery, task).await,
                None => Ok(Outcome::Nothing("its task could not be read".to_owned())),
            };
            let written = match outcome {
                Ok(Outcome::Written | Outcome::Waits) => Ok(()),
                Ok(Outcome::Nothing(reason)) => self.ignore(&delivery, &reason).await,
                Err(undone) => self.postpone(&delivery, &undone).await,
            };
            if let Err(error) = written {
                tracing::warn!(%error, delivery = delivery.id, "a delivery could not be put away, trying again");
            }
            self.return_lease(&name).await;
        }
    }

    /// The first deliveries whose work can be done now. A question may be open for days: looking at it writes nothing, and
    /// however many are, they stand in nobody's way.
    async fn due(&self) -> Result<Vec<Delivery>, RecordError> {
        let mut limit = AT_ONCE;
        loop {
            let found = self.parts.deliveries.pending_deliveries(self.now(), limit).await?;
            let is_all = found.len() < limit;
            let mut due = Vec::new();
            for delivery in found {
                if due.len() < AT_ONCE && !self.waits(&delivery).await {
                    due.push(delivery);
                }
            }
            if is_all || due.len() == AT_ONCE {
                return Ok(due);
            }
            limit *= 2;
        }
    }

    /// A task with its repository as policy spells it, which is how runs that people set off know it: to GitHub large and
    /// small letters are the same.
    fn as_policy_spells(&self, task: &Task) -> Task {
        let mut task = task.clone();
        let repository = &mut task.about_mut().repository;
        let profile = self.parts.policies.profile(&Asked {
            repository: Some(repository.as_str()),
            ..Asked::default()
        });
        if let Some(spelled) = profile.repository.as_deref().and_then(Repository::parse) {
            *repository = spelled;
        }
        task
    }

    /// Why somebody is not listened to; none where they are. Work is for those to ask for who could do it
    /// themselves: GitHub also lets people label and review who may not write.
    async fn unheard(&self, repository: &Repository, sender: &str) -> Result<Option<String>, Undone> {
        let own = self.parts.github.login().await?;
        if own.is_some_and(|own| own.eq_ignore_ascii_case(sender)) {
            return Ok(Some("this server's own account did it".to_owned()));
        }
        let may = self.parts.github.permission(repository, sender).await?;
        Ok((may < Permission::Write).then(|| format!("`{sender}` may not write to `{}`", repository.as_str())))
    }

    /// Whether its question is still open.
    async fn waits(&self, delivery: &Delivery) -> bool {
        let question = match &delivery.task {
            Some(Task::Review(task)) => task.question.as_ref(),
            Some(Task::Label(_) | Task::Withdrawal(_) | Task::PullRequest(_) | Task::Approval(_) | Task::Mode(_))
            | None => None,
        };
        let Some(question) = question else { return false };
        let found = self.parts.board.find(question).await;
        matches!(found, Ok(Some(question)) if question.is_pending())
    }

    /// A delivery from which nothing follows after all.
    async fn ignore(&self, delivery: &Delivery, reason: &str) -> Result<(), RecordError> {
        let payload = Object::new()
            .text("delivery_id", &delivery.id)
            .text("event", &delivery.event)
            .text("reason", reason);
        let event = self.event(&delivery.correlation_id, EventType::WebhookIgnored, payload);
        let change = Change {
            events: vec![event],
            deliveries: vec![ended(delivery, DeliveryState::Ignored)],
            ..Change::default()
        };
        self.parts.record.commit(change).await.map(drop)
    }

    /// Tries again later, unless that was done often enough.
    async fn postpone(&self, delivery: &Delivery, undone: &Undone) -> Result<(), RecordError> {
        let reason = undone.reason();
        if delivery.tries + 1 >= undone.tries_max() {
            tracing::warn!(delivery = delivery.id, reason, "a delivery is given up");
            return self.ignore(delivery, &format!("given up: {reason}")).await;
        }
        tracing::warn!(delivery = delivery.id, reason, "a delivery is tried again later");
        let mut next = delivery.clone();
        next.version += 1;
        next.tries += 1;
        next.not_before = self.now().after(pause(next.tries));
        let change = Change {
            deliveries: vec![DeliveryChange {
                delivery: next,
                from: Some(delivery.version),
            }],
            ..Change::default()
        };
        self.parts.record.commit(change).await.map(drop)
    }

    /// Whether this process may work on a thing now.
    async fn take_lease(&self, name: &str) -> bool {
        let change = Change {
            leases: vec![LeaseChange::Take {
                name: name.to_owned(),
                holder: self.holder.clone(),
                now: self.now(),
                time: LEASE_TIME,
            }],
            ..Change::default()
        };
        self.parts.record.commit(change).await.is_ok()
    }

    async fn return_lease(&self, name: &str) {
        let change = Change {
            leases: vec![LeaseChange::Return {
                name: name.to_owned(),
                holder: self.holder.clone(),
            }],
            ..Change::default()
        };
        if let Err(error) = self.parts.record.commit(change).await {
            tracing::debug!(%error, name, "a lease was not given back; it ends by itself");
        }
    }

    /// Labels of the pull request that belongs to an issue, where it is not that one itself.
    async fn labels_beside(&self, issue: &IssueRef, pull_request: Option<u64>) -> Result<Vec<String>, GitHubError> {
        match pull_request {
            Some(number) if number != issue.number => {
                let of = IssueRef {
                    number,
                    ..issue.clone()
                };
                self.parts.github.labels(&of).await
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// The runs of an issue or a pull request, the newest first.
    async fn runs_of(
        &self,
        repository: &str,
        issue: Option<u64>,
        pull_request: Option<u64>,
    ) -> Result<Vec<Run>, RecordError> {
        let filter = RunFilter {
            repository: Some(repository.to_owned()),
            issue_number: issue,
            pull_request_number: pull_request,
            limit: AT_ONCE,
            ..RunFilter::default()
        };
        self.parts.runs.list_runs(filter).await
    }

    fn errand(&self, correlation_id: &CorrelationId, run: Option<&Run>, cause: &str) -> Errand {
        Errand {
            by: itself(),
            correlation_id: correlation_id.clone(),
            run_id: run.map(|run| run.id.to_string()),
            cause: cause.to_owned(),
        }
    }

    fn event(&self, correlation_id: &CorrelationId, kind: EventType, payload: Object) -> Draft {
        let id = self.parts.ids.event();
        Draft::new(id, self.now(), correlation_id.clone(), itself(), kind, payload.finish())
    }

    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }
}

/// The delivery as it is put away: what was to be done is not kept any longer.
fn ended(delivery: &Delivery, state: DeliveryState) -> DeliveryChange {
    DeliveryChange {
        delivery: Delivery {
            version: delivery.version + 1,
            state,
            task: None,
            ..delivery.clone()
        },
        from: Some(delivery.version),
    }
}

/// The run of a pull request, of its runs from the newest on: the last one, but for those that only looked at it.
fn maker(runs: Vec<Run>) -> Option<Run> {
    let only_looks = |run: &Run| run.trigger_label.as_deref() == Some(NEED_REVIEWER);
    let place = runs.iter().position(|run| !only_looks(run)).unwrap_or(0);
    runs.into_iter().nth(place)
}

/// To GitHub large and small letters are the same, and it keeps to the repository's spelling.
fn labels_have(labels: &[String], label: &str) -> bool {
    labels.iter().any(|it| it.eq_ignore_ascii_case(label))
}

fn itself() -> Actor {
    Actor::system("github")
}

/// Somebody whom GitHub calls by this name.
fn person(login: &str) -> Actor {
    Actor {
        kind: ActorType::Human,
        id: format!("github:{login}"),
    }
}

fn pause(tries: u32) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(1 << tries.min(16).saturating_sub(1));
    doubled.min(RETRY_LONGEST)
}

/// Policy cannot be met by whoever put the label on; it can only be said.
fn unserved(repository: &str) -> String {
    format!("no project names the repository `{repository}`; see `policies.projects`")
}

fn conflict(message: &str) -> Refusal {
    Refusal::new(ErrorCode::Conflict, message)
}
