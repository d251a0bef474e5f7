//! What the record says of runs.

use super::lifecycle::{Runtime, TriggerKind, WaitState};
use super::state::Run;
use crate::audit::event::{Actor, ActorType, Draft, EventType};
use crate::audit::payload::{Object, Payload};
use crate::clock::Timestamp;
use crate::ids::{ConversationId, EventId, JobId};
use crate::job::state::Job;

/// What every event of a run says.
pub fn told(run: &Run) -> Object {
    let number = |object: Object, name, number: Option<u64>| match number {
        Some(number) => object.whole(name, i64::try_from(number).unwrap_or(i64::MAX)),
        None => object,
    };
    let object = Object::new()
        .text("run_id", run.id.as_str())
        .text("status", run.status.as_str())
        .text("agent_key", &run.agent_key)
        .text("trigger_kind", TriggerKind::as_str(run.trigger_kind))
        .optional_text("trigger_label", run.trigger_label.as_deref())
        .text("runtime", Runtime::as_str(run.runtime))
        .optional_text("project_id", run.project.as_deref())
        .optional_text("repository", run.repository.as_deref())
        .optional_text("job_id", run.job_id.as_ref().map(JobId::as_str));
    let object = number(object, "issue_number", run.issue_number);
    number(object, "pull_request_number", run.pull_request_number)
}

/// An event of a run, under its correlation id.
pub fn draft(run: &Run, id: EventId, now: Timestamp, by: Actor, kind: EventType, payload: Payload) -> Draft {
    Draft::new(id, now, run.correlation_id.clone(), by, kind, payload)
}

/// The event of a run whose clock stopped or went on: what is left of its time, and until when that lasts.
pub fn clock(run: &Run, id: EventId, now: Timestamp, kind: EventType, wait_state: &str) -> Draft {
    let left = i64::try_from(run.timer.remaining.as_millis()).unwrap_or(i64::MAX);
    let deadline = run.timer.deadline().map(|at| at.to_string());
    let payload = told(run)
        .text("clock", "run")
        .text("wait_state", wait_state)
        .whole("remaining_ms", left)
        .optional_text("deadline", deadline.as_deref())
        .finish();
    draft(run, id, now, Actor::system("timer"), kind, payload)
}

/// The event of a run whose work waits for the owner's review, or no longer does. No clock runs meanwhile.
pub fn review(run: &Run, id: EventId, now: Timestamp, waits: bool, by: Actor) -> Draft {
    let kind = match waits {
        true => EventType::WaitPaused,
        false => EventType::WaitResumed,
    };
    let payload = told(run)
        .text("clock", "session")
        .text("wait_state", WaitState::OwnerReview.as_str())
        .finish();
    draft(run, id, now, by, kind, payload)
}

/// The event of a run whose agent has begun to listen.
pub fn ready(run: &Run, job: &Job, id: EventId, now: Timestamp) -> Draft {
    let conversation = job.conversation_id.as_ref().map(ConversationId::as_str);
    let payload = told(run)
        .text("agent", &job.agent)
        .optional_text("conversation_id", conversation)
        .finish();
    let by = Actor {
        kind: ActorType::Agent,
        id: job.agent.clone(),
    };
    draft(run, id, now, by, EventType::RunAgentReady, payload)
}
