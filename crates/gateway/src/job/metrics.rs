//! S1's MetricsSummary of one session, from what its file tells.

use serde_json::json;

use super::event::{JobEventType, StoredEvent};
use crate::audit::summary::{
    JOB_CANCELLED, JOB_COMPLETED, JOB_CREATED, JOB_FAILED, JOB_PROCESS_RESTARTED, JOB_SESSION_RECOVERED, JOB_TIMEOUT,
    MetricsSummary, Tally,
};
use crate::clock::Timestamp;

/// What a session's events come to, from the first to the last of them.
pub fn of_session<'e>(events: impl IntoIterator<Item = &'e StoredEvent>) -> MetricsSummary {
    use JobEventType as Type;
    let mut tally = Tally::default();
    let (mut from, mut to) = (None, None);
    let mut recovers = false;
    for StoredEvent { event, .. } in events {
        from.get_or_insert(event.timestamp);
        to = Some(event.timestamp);
        let data = &event.data;
        let end = || json!({"duration_ms": data["duration"], "error": data["error"]}).to_string();
        match event.kind {
            Type::JobCreated => tally.count(JOB_CREATED, None, "{}"),
            Type::JobCompleted => tally.count(JOB_COMPLETED, None, &end()),
            Type::JobFailed => tally.count(JOB_FAILED, None, &end()),
            Type::JobCancelled => tally.count(JOB_CANCELLED, None, &end()),
            Type::JobTimeout => tally.count(JOB_TIMEOUT, None, &end()),
            Type::ProcessRestarted => tally.count(JOB_PROCESS_RESTARTED, None, "{}"),
            Type::SessionRecovering => recovers = true,
            Type::SessionActive if std::mem::take(&mut recovers) => tally.count(JOB_SESSION_RECOVERED, None, "{}"),
            Type::ApprovalRequested => tally.count("approval.requested", None, "{}"),
            Type::ApprovalAutoApproved => tally.count("approval.approved", Some("auto-approved"), "{}"),
            Type::ApprovalApproved | Type::ApprovalDenied => {
                let kind = match event.kind {
                    Type::ApprovalApproved => "approval.approved",
                    _ => "approval.denied",
                };
                tally.count(kind, data["approval_state"].as_str(), "{}");
                let waited = json!({"approval_id": data["requestId"], "waited_ms": data["waitingDuration"]});
                tally.count("run.wait.resumed", None, &waited.to_string());
            }
            Type::SessionActive
            | Type::JobStarted
            | Type::SessionCreated
            | Type::SessionIdle
            | Type::SessionTerminated
            | Type::ProcessStarted
            | Type::ProcessCrashed
            | Type::CodexTaskStarted
            | Type::CodexAgentMessage
            | Type::CodexTaskComplete
            | Type::CodexTaskError
            | Type::UserMessage
            | Type::AgentItem
            | Type::AgentDiff
            | Type::AgentUsage
            | Type::AgentWarning
            | Type::AgentRetrying
            | Type::AgentLimit
            | Type::AgentEvent => {}
        }
    }
    let start = Timestamp::from_millis(0);
    tally.finish(from.unwrap_or(start), to.unwrap_or(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{EventId, JobId};
    use crate::job::event::JobEvent;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Events in a row, a millisecond apart.
    fn stored(told: Vec<(JobEventType, Value)>) -> Vec<StoredEvent> {
        let event = |(seq, (kind, data)): (u32, (JobEventType, Value))| StoredEvent {
            seq: seq.into(),
            event: JobEvent {
                event_id: EventId::trusted(seq.to_string()),
                timestamp: Timestamp::from_millis(i64::from(seq)),
                job_id: JobId::trusted("j"),
                session_id: None,
                kind,
                data,
            },
        };
        (1_u32..).zip(told).map(event).collect()
    }

    #[test]
    fn a_sessions_numbers_are_those_of_its_file() {
        let told = [
            (JobEventType::JobCreated, json!({})),
            (JobEventType::ApprovalRequested, json!({})),
            (
                JobEventType::ApprovalApproved,
                json!({"requestId": "a", "approval_state": "approved", "waitingDuration": 300}),
            ),
            (JobEventType::ApprovalAutoApproved, json!({})),
            (JobEventType::SessionRecovering, json!({})),
            (JobEventType::ProcessRestarted, json!({})),
            (JobEventType::SessionActive, json!({})),
            (
                JobEventType::JobFailed,
                json!({"duration": 50, "error": {"code": "UPSTREAM_ERROR"}}),
            ),
            (JobEventType::JobCreated, json!({})),
            (JobEventType::SessionActive, json!({})),
            (JobEventType::JobCompleted, json!({"duration": 150})),
        ];
        let events = stored(told.to_vec());
        let shown = of_session(&events).to_json();
        let number = |name: &str| shown[name].as_f64().unwrap();
        for (name, expected) in [
            ("totalJobs", 2.0),
            ("completedJobs", 1.0),
            ("failedJobs", 1.0),
            ("avgJobDuration", 100.0),
            ("p50JobDuration", 50.0),
            ("p99JobDuration", 150.0),
            ("totalApprovals", 2.0),
            ("autoApprovedCount", 1.0),
            ("manualApprovedCount", 1.0),
            ("avgApprovalDuration", 300.0),
            ("processRestarts", 1.0),
            ("sessionRecoveries", 1.0),
        ] {
            assert!(
                (number(name) - expected).abs() < f64::EPSILON,
                "{name}: {}",
                shown[name]
            );
        }
        assert_eq!(shown["errorDistribution"], json!({"UPSTREAM_ERROR": 1}));
        assert_eq!(shown["periodEnd"], Value::from("1970-01-01T00:00:00.011Z"));
    }

    /// A random history of one session: what happens, and what a naive reader makes of it.
    fn history() -> impl Strategy<Value = Vec<(JobEventType, Value)>> {
        let end = |kind| (0_u64..5_000).prop_map(move |ms| (kind, json!({"duration": ms, "error": {"code": "X"}})));
        let plain = |kind| Just((kind, json!({})));
        let answer = |kind: JobEventType, state: &'static str| {
            (0_u64..900).prop_map(move |ms| {
                (
                    kind,
                    json!({"requestId": "a", "approval_state": state, "waitingDuration": ms}),
                )
            })
        };
        let one = prop_oneof![
            plain(JobEventType::JobCreated),
            (0_u64..5_000).prop_map(|ms| (JobEventType::JobCompleted, json!({"duration": ms}))),
            end(JobEventType::JobFailed),
            end(JobEventType::JobCancelled),
            end(JobEventType::JobTimeout),
            plain(JobEventType::ProcessRestarted),
            plain(JobEventType::ApprovalRequested),
            plain(JobEventType::ApprovalAutoApproved),
            answer(JobEventType::ApprovalApproved, "approved"),
            answer(JobEventType::ApprovalDenied, "denied"),
            plain(JobEventType::CodexAgentMessage),
        ];
        proptest::collection::vec(one, 0..80)
    }

    proptest! {
        #[test]
        fn every_number_of_a_session_is_what_a_naive_computation_finds(told in history()) {
            use JobEventType as Type;
            let count = |kind: JobEventType| told.iter().filter(|(it, _)| *it == kind).count();
            let ends = [Type::JobCompleted, Type::JobFailed, Type::JobCancelled, Type::JobTimeout];
            let numbers = |kinds: &[JobEventType], name: &str| -> Vec<u64> {
                let of = told.iter().filter(|(it, _)| kinds.contains(it));
                of.filter_map(|(_, data)| data[name].as_u64()).collect()
            };
            let mean = |values: &[u64]| values.iter().sum::<u64>() as f64 / values.len().max(1) as f64;
            let least = |values: &[u64], percent: usize| {
                let enough = |limit: &u64| values.iter().filter(|it| *it <= limit).count() * 100 >= percent * values.len();
                values.iter().copied().filter(enough).min().unwrap_or(0)
            };
            let durations = numbers(&ends, "duration");
            let waits = numbers(&[Type::ApprovalApproved, Type::ApprovalDenied], "waitingDuration");
            let shown = of_session(&stored(told.clone())).to_json();
            for (name, expected) in [
                ("totalJobs", count(Type::JobCreated)),
                ("completedJobs", count(Type::JobCompleted)),
                ("failedJobs", count(Type::JobFailed)),
                ("cancelledJobs", count(Type::JobCancelled)),
                ("timeoutJobs", count(Type::JobTimeout)),
                ("totalApprovals", count(Type::ApprovalRequested) + count(Type::ApprovalAutoApproved)),
                ("autoApprovedCount", count(Type::ApprovalAutoApproved)),
                ("manualApprovedCount", count(Type::ApprovalApproved)),
                ("deniedCount", count(Type::ApprovalDenied)),
                ("processRestarts", count(Type::ProcessRestarted)),
                ("sessionRecoveries", 0),
                ("p50JobDuration", least(&durations, 50) as usize),
                ("p95JobDuration", least(&durations, 95) as usize),
                ("p99JobDuration", least(&durations, 99) as usize),
            ] {
                prop_assert_eq!(&shown[name], &json!(expected), "{}", name);
            }
            prop_assert!((shown["avgJobDuration"].as_f64().unwrap() - mean(&durations)).abs() < 1e-6);
            prop_assert!((shown["avgApprovalDuration"].as_f64().unwrap() - mean(&waits)).abs() < 1e-6);
            let errors = count(Type::JobFailed) + count(Type::JobCancelled) + count(Type::JobTimeout);
            prop_assert_eq!(shown["errorDistribution"]["X"].as_u64().unwrap_or(0), errors as u64);
        }
    }
}
