//! S1's Job: one piece of work for an agent, and what became of it.
//!
//! The value is whole: a step makes the next value, and a store keeps it only over the version that it was
//! made from.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::input::JobInput;
use super::lifecycle::{self, IllegalJobStep, JobStatus, JobStep, SubState};
use crate::audit::event::Actor;
use crate::clock::Timestamp;
use crate::error::{ErrorCode, Refusal};
use crate::ids::{ConversationId, CorrelationId, CredentialId, JobId, JobSessionId};

#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub id: JobId,
    /// Counts its changes. A change is written only over the version it was made from.
    pub version: u64,
    // INVARIANT: changed by `step` only, along the arrows of `lifecycle`.
    status: JobStatus,
    pub sub_state: Option<SubState>,
    /// The client's id of the request that it came in.
    pub request_id: String,
    pub correlation_id: CorrelationId,
    pub session_id: JobSessionId,
    pub conversation_id: Option<ConversationId>,
    /// The agent by its name in the configuration.
    pub agent: String,
    /// The credential that started it. It and operators may read, message and interrupt the job.
    pub owner: CredentialId,
    /// What the record calls whoever started it.
    pub started_by: Actor,
    pub run_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub input: JobInput,
    pub result: Option<String>,
    pub error: Option<ErrorDetails>,
    pub metrics: JobMetrics,
    pub clock: JobClock,
    /// Times that it was tried again.
    pub retries: u32,
    /// Not to be taken up before then.
    pub not_before: Option<Timestamp>,
}

/// S1's JobMetrics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JobMetrics {
    pub start_time: Option<Timestamp>,
    pub end_time: Option<Timestamp>,
    pub approval_count: u64,
    pub approval_ms: u64,
}

/// What of a job's time is left. It stands still while a person thinks or a limit holds, and before the
/// job's turn comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobClock {
    pub remaining_ms: u64,
    /// Since when it runs; none stands still.
    pub since: Option<Timestamp>,
}

impl JobClock {
    pub fn with(time: Duration) -> Self {
        Self {
            remaining_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            since: None,
        }
    }

    #[must_use]
    pub fn running(self, now: Timestamp) -> Self {
        let left = self.left(now);
        Self {
            since: Some(now),
            ..Self::with(left)
        }
    }

    #[must_use]
    pub fn paused(self, now: Timestamp) -> Self {
        Self::with(self.left(now))
    }

    pub fn left(self, now: Timestamp) -> Duration {
        let used = self.since.map_or(Duration::ZERO, |since| now.since(since));
        Duration::from_millis(self.remaining_ms).saturating_sub(used)
    }

    /// The same time left on a clock that was set by so much.
    #[must_use]
    pub fn set_by(self, step_ms: i64) -> Self {
        let moved = |since: Timestamp| Timestamp::from_millis(since.as_millis().saturating_add(step_ms));
        Self {
            since: self.since.map(moved),
            ..self
        }
    }

    /// When it is over if nothing pauses it.
    pub fn ends_at(self) -> Option<Timestamp> {
        self.since
            .map(|since| since.after(Duration::from_millis(self.remaining_ms)))
    }

    pub fn is_over(self, now: Timestamp) -> bool {
        self.left(now).is_zero()
    }
}

/// S1's ErrorDetails.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorDetails {
    pub code: String,
    pub message: String,
    pub details: Map<String, Value>,
    pub retryable: bool,
}

impl ErrorDetails {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.name().to_owned(),
            message: message.into(),
            details: Map::new(),
            retryable: code.retryable(),
        }
    }

    pub fn of(refusal: &Refusal) -> Self {
        Self {
            details: refusal.details.clone(),
            retryable: refusal.retryable(),
            ..Self::new(refusal.code, refusal.message.clone())
        }
    }

    pub fn to_json(&self) -> Value {
        let mut shown = json!({"code": self.code, "message": self.message, "retryable": self.retryable});
        if !self.details.is_empty() {
            shown["details"] = Value::Object(self.details.clone());
        }
        shown
    }

    pub fn from_json(kept: &Value) -> Option<Self> {
        Some(Self {
            code: kept["code"].as_str()?.to_owned(),
            message: kept["message"].as_str()?.to_owned(),
            details: kept["details"].as_object().cloned().unwrap_or_default(),
            retryable: kept["retryable"].as_bool()?,
        })
    }
}

/// Who starts a job, with what.
#[derive(Clone, Debug)]
pub struct Order {
    pub request_id: String,
    pub correlation_id: CorrelationId,
    pub session_id: JobSessionId,
    pub agent: String,
    pub owner: CredentialId,
    pub started_by: Actor,
    pub run_id: Option<String>,
    pub input: JobInput,
}

impl Job {
    pub fn new(id: JobId, order: Order, now: Timestamp) -> Self {
        Self {
            id,
            version: 1,
            status: JobStatus::Pending,
            sub_state: None,
            request_id: order.request_id,
            correlation_id: order.correlation_id,
            session_id: order.session_id,
            conversation_id: None,
            agent: order.agent,
            owner: order.owner,
            started_by: order.started_by,
            run_id: order.run_id,
            created_at: now,
            updated_at: now,
            clock: JobClock::with(order.input.timeout()),
            input: order.input,
            result: None,
            error: None,
            metrics: JobMetrics::default(),
            retries: 0,
            not_before: None,
        }
    }

    /// A job as a store kept it.
    pub fn restored(status: JobStatus, job: Self) -> Self {
        Self { status, ..job }
    }

    pub fn status(&self) -> JobStatus {
        self.status
    }

    pub fn has_ended(&self) -> bool {
        self.status.has_ended()
    }

    /// The job after a change that is no step.
    #[must_use]
    pub fn changed(&self, now: Timestamp) -> Self {
        Self {
            version: self.version + 1,
            updated_at: now.max(self.created_at),
            ..self.clone()
        }
    }

    /// The job after a step.
    pub fn step(&self, step: JobStep, now: Timestamp) -> Result<Self, IllegalJobStep> {
        let mut next = self.changed(now);
        next.status = lifecycle::transition(self.status, step)?;
        match step {
            JobStep::Start => next.metrics.start_time = Some(now),
            JobStep::Complete | JobStep::Fail | JobStep::Cancel | JobStep::TimeOut => {
                next.metrics.end_time = Some(now);
                next.sub_state = None;
                next.not_before = None;
                next.clock = next.clock.paused(now);
            }
        }
        Ok(next)
    }

    /// Its status, or what is more exact.
    pub fn standing(&self) -> &'static str {
        self.sub_state.map_or(self.status.as_str(), SubState::as_str)
    }

    /// How long it worked: from its start, or for one that never started from its creation, to its end.
    pub fn duration_ms(&self) -> Option<u64> {
        let end = self.metrics.end_time?;
        let from = self.metrics.start_time.unwrap_or(self.created_at);
        u64::try_from(end.since(from).as_millis()).ok()
    }

    /// S1's fields under S1's names, with ours beside them.
    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "jobId": self.id.as_str(),
            "requestId": self.request_id,
            "conversationId": self.conversation_id.as_ref().map(ConversationId::as_str),
            "status": self.status.as_str(),
            "subState": self.sub_state.map(SubState::as_str),
            "createdAt": self.created_at.to_string(),
            "updatedAt": self.updated_at.to_string(),
            "input": self.input.to_json(),
            "output": self.output(),
            "agent": self.agent,
            "startedBy": self.started_by.id,
            "correlation_id": self.correlation_id.as_str(),
            "run_id": self.run_id,
            "resumesAt": self.not_before.map(|at| at.to_string()),
        });
        without_nulls(&mut shown);
        shown
    }

    /// S1's output: there once there is something to tell.
    fn output(&self) -> Value {
        if self.metrics.start_time.is_none() && !self.has_ended() {
            return Value::Null;
        }
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let mut metrics = json!({
            "startTime": time(self.metrics.start_time),
            "endTime": time(self.metrics.end_time),
            "duration": self.duration_ms(),
            "approvalCount": self.metrics.approval_count,
            "approvalDuration": self.metrics.approval_ms,
        });
        without_nulls(&mut metrics);
        let mut output = json!({
            "result": self.result,
            "error": self.error.as_ref().map(ErrorDetails::to_json),
            "metrics": metrics,
        });
        without_nulls(&mut output);
        output
    }
}

/// What has nothing to say is left out; S1 marks these as optional.
pub(super) fn without_nulls(shown: &mut Value) {
    if let Value::Object(fields) = shown {
        fields.retain(|_, value| !value.is_null());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    pub(crate) fn sample(name: &str) -> Job {
        let order = Order {
            request_id: "7".to_owned(),
            correlation_id: CorrelationId::trusted(format!("c-{name}")),
            session_id: JobSessionId::trusted(format!("s-{name}")),
            agent: "codex".to_owned(),
            owner: CredentialId::trusted("local"),
            started_by: Actor::system("local"),
            run_id: None,
            input: JobInput::of_prompt("fix the bug"),
        };
        Job::new(JobId::trusted(name), order, at(1_000))
    }

    #[test]
    fn a_job_shows_the_fields_of_s1_under_their_names() {
        let job = sample("j1").step(JobStep::Start, at(2_000)).unwrap();
        let mut ended = job.step(JobStep::Fail, at(5_000)).unwrap();
        ended.error = Some(ErrorDetails::new(ErrorCode::UpstreamError, "the model is away"));
        ended.conversation_id = Some(ConversationId::trusted("th-1"));
        assert_eq!(
            ended.to_json(),
            json!({
                "jobId": "j1", "requestId": "7", "conversationId": "th-1", "status": "failed",
                "createdAt": "1970-01-01T00:00:01.000Z", "updatedAt": "1970-01-01T00:00:05.000Z",
                "input": {"prompt": "fix the bug"},
                "output": {
                    "error": {"code": "UPSTREAM_ERROR", "message": "the model is away", "retryable": true},
                    "metrics": {
                        "startTime": "1970-01-01T00:00:02.000Z", "endTime": "1970-01-01T00:00:05.000Z",
                        "duration": 3_000, "approvalCount": 0, "approvalDuration": 0,
                    },
                },
                "agent": "codex", "startedBy": "local", "correlation_id": "c-j1",
            })
        );
        assert!(sample("j2").to_json().get("output").is_none(), "nothing to tell yet");
    }

    #[test]
    fn every_change_counts_and_what_ended_takes_no_step() {
        let job = sample("j1");
        assert_eq!(job.changed(at(1_500)).version, 2);
        let done = job.step(JobStep::Cancel, at(2_000)).unwrap();
        assert_eq!((done.version, done.duration_ms()), (2, Some(1_000)));
        assert!(done.step(JobStep::Start, at(3_000)).is_err());
    }

    #[test]
    fn a_clock_that_is_paused_goes_on_with_what_was_left() {
        let clock = JobClock::with(Duration::from_secs(10)).running(at(0));
        assert_eq!(clock.ends_at(), Some(at(10_000)));
        let paused = clock.paused(at(4_000));
        assert_eq!(
            (paused.left(at(99_000)), paused.ends_at()),
            (Duration::from_secs(6), None)
        );
        let again = paused.running(at(100_000));
        assert!(!again.is_over(at(105_999)) && again.is_over(at(106_000)));
    }
}
