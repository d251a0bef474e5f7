//! S1's MetricsSummary: what a period of the record comes to.
//!
//! Pure: rows go in, numbers come out. Every number counts what happened within the period, so the counts
//! of two periods that meet add up to those of both together. Averages and percentiles are exact, over
//! what ended in the period: a percentile is the least duration that so many of all do not exceed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::row::Row;
use crate::clock::Timestamp;

/// The events that are counted; a store need not read any others.
pub const COUNTED: [&str; 17] = [
    COMMAND_VALIDATED,
    COMMAND_COMPLETED,
    TOOL_CALLED,
    REQUEST_REFUSED,
    APPROVAL_REQUESTED,
    APPROVAL_APPROVED,
    APPROVAL_DENIED,
    APPROVAL_EXPIRED,
    APPROVAL_WITHDRAWN,
    WAIT_RESUMED,
    JOB_CREATED,
    JOB_COMPLETED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_TIMEOUT,
    JOB_PROCESS_RESTARTED,
    JOB_SESSION_RECOVERED,
];

const COMMAND_VALIDATED: &str = "command.validated";
const COMMAND_COMPLETED: &str = "command.completed";
const TOOL_CALLED: &str = "tool.called";
const REQUEST_REFUSED: &str = "request.refused";
const APPROVAL_REQUESTED: &str = "approval.requested";
const APPROVAL_APPROVED: &str = "approval.approved";
const APPROVAL_DENIED: &str = "approval.denied";
const APPROVAL_EXPIRED: &str = "approval.expired";
const APPROVAL_WITHDRAWN: &str = "approval.withdrawn";
const WAIT_RESUMED: &str = "run.wait.resumed";
/// Jobs: each ends with one of the four, whose payload has `duration_ms` and, for a failure,
/// `error_code` or S1's `error`.
pub const JOB_CREATED: &str = "job.created";
pub const JOB_COMPLETED: &str = "job.completed";
pub const JOB_FAILED: &str = "job.failed";
pub const JOB_CANCELLED: &str = "job.cancelled";
pub const JOB_TIMEOUT: &str = "job.timeout";
/// An agent's process that was started anew, and a session that goes on after one.
pub const JOB_PROCESS_RESTARTED: &str = "job.process.restarted";
pub const JOB_SESSION_RECOVERED: &str = "job.session.recovered";

/// From one moment on and before another; an open end is where the record begins, or now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

/// Nothing can be found there, and "nothing" would be taken for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the period ends ({to}) before it begins ({from}); exchange the two")]
pub struct Backwards {
    from: Timestamp,
    to: Timestamp,
}

impl Period {
    pub fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Result<Self, Backwards> {
        match (from, to) {
            (Some(from), Some(to)) if to < from => Err(Backwards { from, to }),
            (from, to) => Ok(Self { from, to }),
        }
    }

    pub fn since(moment: Timestamp) -> Self {
        Self {
            from: Some(moment),
            to: None,
        }
    }

    pub fn from(self) -> Option<Timestamp> {
        self.from
    }

    pub fn to(self) -> Option<Timestamp> {
        self.to
    }
}

/// S1's MetricsSummary. Durations are milliseconds; nothing to average is 0.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricsSummary {
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    pub total_jobs: u64,
    pub completed_jobs: u64,
    pub failed_jobs: u64,
    pub cancelled_jobs: u64,
    pub timeout_jobs: u64,
    pub avg_job_duration: f64,
    pub p50_job_duration: u64,
    pub p95_job_duration: u64,
    pub p99_job_duration: u64,
    /// Questions that were asked, and what the whitelist answered.
    pub total_approvals: u64,
    pub auto_approved: u64,
    pub manual_approved: u64,
    /// Expired and withdrawn questions are denied ones, as in S1's status.
    pub denied: u64,
    /// How long questions waited that were settled, whichever way.
    pub avg_approval_duration: f64,
    pub process_restarts: u64,
    pub session_recoveries: u64,
    /// By code of the error table.
    pub error_distribution: BTreeMap<String, u64>,
}

impl MetricsSummary {
    pub fn to_json(&self) -> Value {
        json!({
            "periodStart": self.period_start.to_string(),
            "periodEnd": self.period_end.to_string(),
            "totalJobs": self.total_jobs,
            "completedJobs": self.completed_jobs,
            "failedJobs": self.failed_jobs,
            "cancelledJobs": self.cancelled_jobs,
            "timeoutJobs": self.timeout_jobs,
            "avgJobDuration": self.avg_job_duration,
            "p50JobDuration": self.p50_job_duration,
            "p95JobDuration": self.p95_job_duration,
            "p99JobDuration": self.p99_job_duration,
            "totalApprovals": self.total_approvals,
            "autoApprovedCount": self.auto_approved,
            "manualApprovedCount": self.manual_approved,
            "deniedCount": self.denied,
            "avgApprovalDuration": self.avg_approval_duration,
            "processRestarts": self.process_restarts,
            "sessionRecoveries": self.session_recoveries,
            "errorDistribution": self.error_distribution,
        })
    }
}

/// The numbers of a period while its rows are read, in any order.
#[derive(Debug, Default)]
pub struct Tally {
    jobs: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    timeout: u64,
    durations: Vec<u64>,
    asked: u64,
    automatic: u64,
    approved: u64,
    denied: u64,
    waits: u64,
    waited: u128,
    restarts: u64,
    recoveries: u64,
    errors: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts one row; one that is of no interest or cannot be read counts nothing.
    pub fn add(&mut self, row: &Row) {
        self.count(&row.event_type, row.approval_state.as_deref(), &row.payload);
    }

    /// The same for what of a row is looked at.
    pub fn count(&mut self, event_type: &str, approval_state: Option<&str>, payload: &str) {
        let read = || serde_json::from_str::<Value>(payload).unwrap_or(Value::Null);
        match event_type {
            COMMAND_VALIDATED => self.automatic += u64::from(approval_state == Some("auto-approved")),
            COMMAND_COMPLETED | REQUEST_REFUSED => self.error(&read()["error_code"]),
            TOOL_CALLED => self.error(&read()["error"]["data"]["errorCode"]),
            APPROVAL_REQUESTED => self.asked += 1,
            // Of several people who must agree only the last one's word makes it approved.
            APPROVAL_APPROVED => match approval_state {
                Some("auto-approved") => self.automatic += 1,
                Some("pending") => {}
                _ => self.approved += 1,
            },
            APPROVAL_DENIED | APPROVAL_EXPIRED | APPROVAL_WITHDRAWN => self.denied += 1,
            WAIT_RESUMED => {
                let payload = read();
                // Other things than questions may hold a clock.
                if let (Some(_), Some(waited)) = (payload["approval_id"].as_str(), payload["waited_ms"].as_u64()) {
                    self.waits += 1;
                    self.waited += u128::from(waited);
                }
            }
            JOB_CREATED => self.jobs += 1,
            JOB_COMPLETED => self.ended(&read(), |tally| &mut tally.completed),
            JOB_FAILED => self.ended(&read(), |tally| &mut tally.failed),
            JOB_CANCELLED => self.ended(&read(), |tally| &mut tally.cancelled),
            JOB_TIMEOUT => self.ended(&read(), |tally| &mut tally.timeout),
            JOB_PROCESS_RESTARTED => self.restarts += 1,
            JOB_SESSION_RECOVERED => self.recoveries += 1,
            _ => {}
        }
    }

    fn ended(&mut self, payload: &Value, how: fn(&mut Self) -> &mut u64) {
        *how(self) += 1;
        self.durations.extend(payload["duration_ms"].as_u64());
        self.error(match &payload["error_code"] {
            Value::Null => &payload["error"]["code"],
            code => code,
        });
    }

    fn error(&mut self, code: &Value) {
        if let Some(code) = code.as_str() {
            *self.errors.entry(code.to_owned()).or_default() += 1;
        }
    }

    /// What it comes to.
    pub fn finish(mut self, period_start: Timestamp, period_end: Timestamp) -> MetricsSummary {
        self.durations.sort_unstable();
        let sum = self.durations.iter().map(|it| u128::from(*it)).sum();
        MetricsSummary {
            period_start,
            period_end,
            total_jobs: self.jobs,
            completed_jobs: self.completed,
            failed_jobs: self.failed,
            cancelled_jobs: self.cancelled,
            timeout_jobs: self.timeout,
            avg_job_duration: mean(sum, self.durations.len() as u64),
            p50_job_duration: percentile(&self.durations, 50),
            p95_job_duration: percentile(&self.durations, 95),
            p99_job_duration: percentile(&self.durations, 99),
            total_approvals: self.asked + self.automatic,
            auto_approved: self.automatic,
            manual_approved: self.approved,
            denied: self.denied,
            avg_approval_duration: mean(self.waited, self.waits),
            process_restarts: self.restarts,
            session_recoveries: self.recoveries,
            error_distribution: self.errors,
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "an average of milliseconds is exact enough as a float"
)]
fn mean(sum: u128, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

/// The nearest rank among sorted values; 0 of none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1)
        .and_then(|place| sorted.get(place))
        .copied()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn summed(rows: &[(&str, Option<&str>, Value)]) -> MetricsSummary {
        let mut tally = Tally::default();
        for (kind, state, payload) in rows {
            tally.count(kind, *state, &payload.to_string());
        }
        tally.finish(at(0), at(60_000))
    }

    #[test]
    fn every_number_of_the_summary_has_the_events_that_it_counts() {
        let wait = |ms: u64| json!({"approval_id": "a", "waited_ms": ms});
        let rows = [
            ("job.created", None, json!({})),
            ("job.created", None, json!({})),
            ("job.created", None, json!({})),
            ("job.created", None, json!({})),
            ("job.completed", None, json!({"duration_ms": 100})),
            (
                "job.failed",
                None,
                json!({"duration_ms": 300, "error_code": "UPSTREAM_ERROR"}),
            ),
            ("job.cancelled", None, json!({"duration_ms": 200})),
            ("job.timeout", None, json!({"duration_ms": 1_000})),
            ("job.process.restarted", None, json!({})),
            ("job.session.recovered", None, json!({})),
            ("command.validated", Some("auto-approved"), json!({})),
            ("command.validated", None, json!({})),
            (
                "command.completed",
                None,
                json!({"error_code": "COMMAND_TIMEOUT", "status": "timeout"}),
            ),
            ("command.completed", None, json!({"error_code": null, "status": "ok"})),
            ("request.refused", None, json!({"error_code": "PARSE_ERROR"})),
            (
                "tool.called",
                None,
                json!({"error": {"data": {"errorCode": "UNKNOWN_TOOL"}}}),
            ),
            ("approval.requested", Some("pending"), json!({})),
            ("approval.requested", Some("pending"), json!({})),
            ("approval.requested", Some("pending"), json!({})),
            ("approval.approved", Some("pending"), json!({})),
            ("approval.approved", Some("approved"), json!({})),
            ("run.wait.resumed", Some("approved"), wait(1_000)),
            ("approval.denied", Some("denied"), json!({})),
            ("run.wait.resumed", Some("denied"), wait(3_000)),
            ("run.wait.resumed", None, json!({"waited_ms": 9})),
            ("approval.expired", Some("expired"), json!({})),
            ("session.created", None, json!({"error_code": "X"})),
        ];
        let expected = json!({
          "periodStart": "1970-01-01T00:00:00.000Z",
          "periodEnd": "1970-01-01T00:01:00.000Z",
          "totalJobs": 4,
          "completedJobs": 1,
          "failedJobs": 1,
          "cancelledJobs": 1,
          "timeoutJobs": 1,
          "avgJobDuration": 400.0,
          "p50JobDuration": 200,
          "p95JobDuration": 1000,
          "p99JobDuration": 1000,
          "totalApprovals": 4,
          "autoApprovedCount": 1,
          "manualApprovedCount": 1,
          "deniedCount": 2,
          "avgApprovalDuration": 2000.0,
          "processRestarts": 1,
          "sessionRecoveries": 1,
          "errorDistribution": {
            "COMMAND_TIMEOUT": 1,
            "PARSE_ERROR": 1,
            "UNKNOWN_TOOL": 1,
            "UPSTREAM_ERROR": 1
          }
        });
        assert_eq!(summed(&rows).to_json(), expected);
    }

    #[test]
    fn a_period_without_anything_is_all_zeros() {
        let summary = summed(&[]);
        assert_eq!((summary.avg_job_duration, summary.p99_job_duration), (0.0, 0));
        assert_eq!((summary.total_approvals, summary.error_distribution.len()), (0, 0));
    }

    #[test]
    fn a_row_that_cannot_be_read_counts_as_what_it_is_and_no_more() {
        let mut tally = Tally::default();
        tally.count("job.completed", None, "{");
        tally.count("command.completed", None, "{");
        let summary = tally.finish(at(0), at(1));
        assert_eq!((summary.completed_jobs, summary.avg_job_duration), (1, 0.0));
        assert!(summary.error_distribution.is_empty());
    }

    /// The least value that is not below `percent` of all, found by trying each.
    fn naive(values: &[u64], percent: u64) -> u64 {
        let enough = |candidate: u64| {
            let covered = values.iter().filter(|value| **value <= candidate).count() as u64;
            covered * 100 >= percent * values.len() as u64
        };
        let candidates = values.iter().copied().filter(|value| enough(*value));
        candidates.min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn percentiles_and_averages_are_what_a_naive_computation_finds(values in prop::collection::vec(0_u64..10_000, 0..200)) {
            let rows: Vec<_> = values
                .iter()
                .map(|ms| ("job.completed", None, json!({"duration_ms": ms})))
                .collect();
            let summary = summed(&rows);
            prop_assert_eq!(summary.p50_job_duration, naive(&values, 50));
            prop_assert_eq!(summary.p95_job_duration, naive(&values, 95));
            prop_assert_eq!(summary.p99_job_duration, naive(&values, 99));
            let mean = values.iter().sum::<u64>() as f64 / values.len().max(1) as f64;
            prop_assert!((summary.avg_job_duration - mean).abs() < 1e-6);
        }

        #[test]
        fn periods_that_meet_add_up(kinds in prop::collection::vec(0..COUNTED.len(), 0..100), cut in 0_usize..100) {
            let rows: Vec<_> = kinds.iter().map(|kind| (COUNTED[*kind], None, json!({"error_code": "X"}))).collect();
            let (early, late) = rows.split_at(cut.min(rows.len()));
            let (early, late, whole) = (summed(early), summed(late), summed(&rows));
            prop_assert_eq!(early.total_jobs + late.total_jobs, whole.total_jobs);
            prop_assert_eq!(early.total_approvals + late.total_approvals, whole.total_approvals);
            prop_assert_eq!(early.denied + late.denied, whole.denied);
            let errors = |summary: &MetricsSummary| summary.error_distribution.values().sum::<u64>();
            prop_assert_eq!(errors(&early) + errors(&late), errors(&whole));
        }
    }
}
