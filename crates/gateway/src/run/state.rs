//! S4's run as it is kept, and its clock.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lifecycle::{IllegalRunStep, RunStatus, RunStep, Runtime, TriggerKind, WaitState, transition};
use crate::clock::Timestamp;
use crate::github::vocabulary::DISCUSSION;
use crate::ids::{CorrelationId, JobId, RunId};
use crate::policy::actor::RunContext;

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    pub id: RunId,
    /// Counts its changes; a change is made over the version it was made from.
    pub version: u64,
    /// What ties together all that happens in it.
    pub correlation_id: CorrelationId,
    pub project: Option<String>,
    /// `owner/name`.
    pub repository: Option<String>,
    pub agent_key: String,
    pub trigger_kind: TriggerKind,
    /// The `run:*` label; a manual run may have none.
    pub trigger_label: Option<String>,
    pub runtime: Runtime,
    pub namespace: Option<String>,
    pub issue_number: Option<u64>,
    pub pull_request_number: Option<u64>,
    /// The other labels of its issue when it was set off.
    pub labels: BTreeSet<String>,
    /// What it is about, in a few words: its issue's title.
    pub title: Option<String>,
    /// What is asked for besides its label: its issue's text, a review's, a person's.
    pub instructions: Option<String>,
    /// What the record calls whoever set it off.
    pub requested_by: String,
    pub status: RunStatus,
    pub wait_state: Option<WaitState>,
    pub timer: Timer,
    /// What its agent last said of itself.
    pub reported_status: Option<String>,
    /// Why it ended as it did.
    pub reason: Option<String>,
    /// The job that does its work; none for a run whose agent comes from outside, with the run's token.
    pub job_id: Option<JobId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// What a run is to be: everything that is known when it is set off.
#[derive(Clone, PartialEq, Debug)]
pub struct RunOrder {
    pub project: Option<String>,
    pub repository: Option<String>,
    pub agent_key: String,
    pub trigger_kind: TriggerKind,
    pub trigger_label: Option<String>,
    pub runtime: Runtime,
    pub namespace: Option<String>,
    pub issue_number: Option<u64>,
    pub pull_request_number: Option<u64>,
    pub labels: BTreeSet<String>,
    pub title: Option<String>,
    pub instructions: Option<String>,
    pub requested_by: String,
    /// How long it may work.
    pub time: Duration,
}

impl Run {
    /// A run that waits for its turn.
    pub fn new(id: RunId, correlation_id: CorrelationId, order: RunOrder, now: Timestamp) -> Self {
        Self {
            id,
            version: 1,
            correlation_id,
            project: order.project,
            repository: order.repository,
            agent_key: order.agent_key,
            trigger_kind: order.trigger_kind,
            trigger_label: order.trigger_label,
            runtime: order.runtime,
            namespace: order.namespace,
            issue_number: order.issue_number,
            pull_request_number: order.pull_request_number,
            labels: order.labels,
            title: order.title,
            instructions: order.instructions,
            requested_by: order.requested_by,
            status: RunStatus::Pending,
            wait_state: None,
            timer: Timer::standing(order.time),
            reported_status: None,
            reason: None,
            job_id: None,
            created_at: now,
            updated_at: now,
            started_at: None,
            finished_at: None,
        }
    }

    pub fn has_ended(&self) -> bool {
        self.status.has_ended()
    }

    /// Whether it may only talk: its issue carries `mode:discussion`.
    pub fn is_talk(&self) -> bool {
        self.labels.iter().any(|label| label.eq_ignore_ascii_case(DISCUSSION))
    }

    /// The run after a change that is no step.
    #[must_use]
    pub fn changed(&self, now: Timestamp) -> Self {
        Self {
            version: self.version + 1,
            updated_at: now.max(self.created_at),
            ..self.clone()
        }
    }

    /// The run after a step.
    pub fn after(&self, step: RunStep, now: Timestamp) -> Result<Self, IllegalRunStep> {
        let status = transition(self.status, step)?;
        let mut next = self.changed(now);
        next.status = status;
        if step == RunStep::Start {
            next.started_at = Some(now);
            next.timer = self.timer.resumed(now);
        }
        if status.has_ended() {
            next.finished_at = Some(now);
            next.wait_state = None;
            next.timer = self.timer.paused(now);
        }
        Ok(next)
    }

    /// The run while it waits for somebody: its clock stands still. None where nothing changes.
    pub fn waiting(&self, state: WaitState, now: Timestamp) -> Option<Self> {
        if self.status != RunStatus::Running || self.wait_state.is_some() {
            return None;
        }
        let mut next = self.changed(now);
        next.wait_state = Some(state);
        next.timer = self.timer.paused(now);
        Some(next)
    }

    /// The run once it no longer waits for this: its clock goes on with what was left. None where nothing
    /// changes.
    pub fn going_on(&self, state: WaitState, now: Timestamp) -> Option<Self> {
        if self.status != RunStatus::Running || self.wait_state != Some(state) {
            return None;
        }
        let mut next = self.changed(now);
        next.wait_state = None;
        next.timer = self.timer.resumed(now);
        Some(next)
    }

    /// Whether its time is over.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.status == RunStatus::Running && self.timer.since.is_some() && self.timer.left(now).is_zero()
    }

    /// What policy sees of whoever comes with its token.
    pub fn context(&self) -> RunContext {
        RunContext {
            run_id: Some(self.id.clone()),
            is_run: true,
            correlation_id: Some(self.correlation_id.clone()),
            runtime: Some(self.runtime),
            issue_number: self.issue_number,
            pull_request_number: self.pull_request_number,
            agent_key: Some(self.agent_key.clone()),
            label: self.trigger_label.clone(),
            project: self.project.clone(),
            labels: self.labels.clone(),
            namespace: self.namespace.clone(),
            cluster: None,
            repository: self.repository.clone(),
        }
    }

    /// `owner/name#12`, where it is about an issue.
    pub fn issue(&self) -> Option<String> {
        numbered(self.repository.as_deref(), self.issue_number)
    }

    /// `owner/name#12`, where it has a pull request.
    pub fn pull_request(&self) -> Option<String> {
        numbered(self.repository.as_deref(), self.pull_request_number)
    }
}

fn numbered(repository: Option<&str>, number: Option<u64>) -> Option<String> {
    Some(format!("{}#{}", repository?, number?))
}

/// A clock that stands still while a person thinks. It keeps what is left, not when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timer {
    /// What was left when it last began or stopped to run.
    pub remaining: Duration,
    /// Since when it runs; none while it stands still.
    pub since: Option<Timestamp>,
}

impl Timer {
    pub fn standing(remaining: Duration) -> Self {
        Self { remaining, since: None }
    }

    pub fn left(&self, now: Timestamp) -> Duration {
        let run = self.since.map_or(Duration::ZERO, |since| now.since(since));
        self.remaining.saturating_sub(run)
    }

    /// When it runs out, if nothing stops it before.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.since.map(|since| since.after(self.remaining))
    }

    /// The same clock after the one that it goes by was set by this much.
    #[must_use]
    pub fn set_by(&self, step_ms: i64) -> Self {
        let moved = |since: Timestamp| Timestamp::from_millis(since.as_millis().saturating_add(step_ms));
        Self {
            since: self.since.map(moved),
            ..*self
        }
    }

    #[must_use]
    pub fn paused(&self, now: Timestamp) -> Self {
        Self::standing(self.left(now))
    }

    #[must_use]
    pub fn resumed(&self, now: Timestamp) -> Self {
        Self {
            remaining: self.left(now),
            since: Some(now),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    pub(crate) fn sample(name: &str) -> Run {
        let order = RunOrder {
            project: Some("shop".to_owned()),
            repository: Some("acme/shop".to_owned()),
            agent_key: "dev".to_owned(),
            trigger_kind: TriggerKind::Label,
            trigger_label: Some("run:dev".to_owned()),
            runtime: Runtime::CodeOnly,
            namespace: None,
            issue_number: Some(12),
            pull_request_number: None,
            labels: BTreeSet::new(),
            title: None,
            instructions: None,
            requested_by: "ana".to_owned(),
            time: Duration::from_secs(60),
        };
        Run::new(
            RunId::trusted(name),
            CorrelationId::trusted(format!("c-{name}")),
            order,
            at(0),
        )
    }

    #[test]
    fn a_run_that_waits_is_never_over_and_goes_on_with_what_was_left() {
        let running = sample("r").after(RunStep::Start, at(0)).unwrap();
        let waits = running.waiting(WaitState::Mcp, at(20_000)).unwrap();
        assert!(!waits.is_over(at(9_000_000)));
        assert_eq!(waits.waiting(WaitState::Mcp, at(21_000)), None, "it waits already");
        assert_eq!(waits.going_on(WaitState::Backpressure, at(21_000)), None);
        let on = waits.going_on(WaitState::Mcp, at(9_000_000)).unwrap();
        assert_eq!(on.timer.deadline(), Some(at(9_040_000)));
        assert!(!on.is_over(at(9_039_999)) && on.is_over(at(9_040_000)));
    }

    proptest! {
        /// However often it waits, a run works exactly as long as it was given.
        #[test]
        fn pauses_neither_give_nor_take_time(
            time_ms in 1_u64..1_000_000,
            turns in proptest::collection::vec((0_u64..100_000, 0_u64..1_000_000), 0..20),
        ) {
            let mut order = sample("r");
            order.timer = Timer::standing(Duration::from_millis(time_ms));
            let mut now = at(0);
            let mut run = order.after(RunStep::Start, now).unwrap();
            let mut worked = 0_u64;
            for (work, wait) in turns {
                now = now.after(Duration::from_millis(work));
                worked += work;
                if worked >= time_ms {
                    prop_assert!(run.is_over(now));
                    return Ok(());
                }
                prop_assert!(!run.is_over(now));
                run = run.waiting(WaitState::Mcp, now).unwrap();
                prop_assert_eq!(run.timer.left(now), Duration::from_millis(time_ms - worked));
                now = now.after(Duration::from_millis(wait));
                prop_assert_eq!(run.timer.left(now), Duration::from_millis(time_ms - worked));
                run = run.going_on(WaitState::Mcp, now).unwrap();
                prop_assert_eq!(run.timer.deadline(), Some(now.after(Duration::from_millis(time_ms - worked))));
            }
        }
    }
}
