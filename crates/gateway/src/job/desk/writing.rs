//! What the desk writes: a job that begins, one that ends before anybody looked after it, and word for whoever does.

use serde_json::json;

use super::JobDesk;
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::payload::Payload;
use crate::audit::{Change, RecordError};
use crate::error::ErrorCode;
use crate::job::driver::Input;
use crate::job::event::{JobEvent, JobEventType, presentable};
use crate::job::keeping::{Errand, Hold, JobChange, JobSessionChange, Note, parts_json, unsent, waiting_messages};
use crate::job::lifecycle::{JobStep, session_recorded_as, session_step_at_the_end};
use crate::job::session::JobSession;
use crate::job::state::Job;
use crate::job::supervise::course::Ending;
use crate::job::supervise::told;
use crate::session::Caller;

impl JobDesk {
    /// Writes a job that begins, with its session and what else begins with it.
    pub(super) async fn open(
        &self,
        job: &Job,
        session: JobSession,
        from: Option<u64>,
        also: Change,
    ) -> Result<(), RecordError> {
        let parts = &self.parts;
        let input = presentable(&parts.redactor, json!({"input": job.input.to_json()}));
        let payload = told(job)
            .text("session_name", session.name.as_str())
            .part("input", &(&input["input"]).into())
            .part("config", &(&parts.redactor.redact_json(&session.config)).into())
            .finish();
        let event = self.draft(job, EventType::JobCreated, job.started_by.clone(), payload);
        let mut change = JobChange::new(job.clone());
        change.events.push(JobEvent {
            event_id: parts.ids.event(),
            timestamp: parts.clock.now(),
            job_id: job.id.clone(),
            session_id: session.conversation_id.clone(),
            kind: JobEventType::JobCreated,
            data: input,
        });
        change.session = Some(JobSessionChange { session, from });
        let mut both = also;
        both.events.insert(0, event);
        both.jobs.push(change);
        parts.record.commit(both).await?;
        parts.board.announce();
        Ok(())
    }

    /// Ends a job that nobody looks after.
    pub(super) async fn cancel_waiting(&self, caller: &Caller, job: &Job) -> Result<Job, RecordError> {
        let parts = &self.parts;
        let now = parts.clock.now();
        let ending = Ending::cancelled();
        let mut ended = job.step(ending.step, now).map_err(|_| RecordError::JobMoved)?;
        ended.error = ending.error;
        let duration = i64::try_from(ended.duration_ms().unwrap_or(0)).unwrap_or(i64::MAX);
        let payload = told(&ended)
            .whole("duration_ms", duration)
            .text("error_code", ErrorCode::Cancelled.name())
            .text("by", &caller.actor.id)
            .finish();
        let mut events = vec![self.draft(&ended, EventType::JobCancelled, caller.actor.clone(), payload)];
        let mut change = JobChange::over(job.version, ended.clone());
        change.hold = Hold::Nobody;
        let line = |kind, data| JobEvent {
            event_id: parts.ids.event(),
            timestamp: now,
            job_id: ended.id.clone(),
            session_id: ended.conversation_id.clone(),
            kind,
            data,
        };
        let notes = parts.jobs.notes(&job.id).await?;
        let warning = unsent(waiting_messages(&notes));
        let warned = warning.map(|message| line(JobEventType::AgentWarning, json!({"message": message})));
        change.events.extend(warned);
        let data = json!({"duration": ended.duration_ms(), "error": ended.error.as_ref().map(|error| error.to_json())});
        change.events.push(line(JobEventType::of_step(JobStep::Cancel), data));
        if let Some(session) = parts.jobs.session(&job.session_id).await?
            && let Some(step) = session_step_at_the_end(session.status())
            && let Ok(next) = session.step(step)
        {
            let payload = told(&ended).text("session_name", next.name.as_str()).finish();
            events.push(self.draft(&ended, session_recorded_as(step), caller.actor.clone(), payload));
            change.events.push(line(JobEventType::of_session_step(step), json!({})));
            change.session = Some(JobSessionChange {
                from: Some(session.version),
                session: next,
            });
        }
        parts
            .record
            .commit(Change {
                events,
                jobs: vec![change],
                ..Change::default()
            })
            .await?;
        parts.board.announce();
        Ok(ended)
    }

    /// Leaves word for whoever looks after a job.
    pub(super) async fn leave(
        &self,
        caller: &Caller,
        job: &Job,
        errand: Errand,
        message: Vec<Input>,
    ) -> Result<(), RecordError> {
        let parts = &self.parts;
        let note = Note {
            id: parts.ids.note(),
            job_id: job.id.clone(),
            errand,
            message,
            by: caller.actor.id.clone(),
            at: parts.clock.now(),
            delivered: false,
        };
        let kind = match errand {
            Errand::Message => EventType::JobMessage,
            Errand::Interrupt => EventType::JobInterrupt,
        };
        let said = presentable(&parts.redactor, json!({"items": parts_json(&note.message)}));
        let payload = told(job)
            .text("by", &note.by)
            .part("items", &(&said["items"]).into())
            .finish();
        let change = Change {
            events: vec![self.draft(job, kind, caller.actor.clone(), payload)],
            notes: vec![note],
            ..Change::default()
        };
        parts.record.commit(change).await?;
        parts.board.announce();
        Ok(())
    }

    fn draft(&self, job: &Job, kind: EventType, by: Actor, payload: Payload) -> Draft {
        let (id, now) = (self.parts.ids.event(), self.parts.clock.now());
        Draft::new(id, now, job.correlation_id.clone(), by, kind, payload)
    }
}
