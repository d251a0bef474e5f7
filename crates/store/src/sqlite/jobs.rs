//! Jobs in the database: written with their events, each change over the version it was made from and only
//! by whoever holds the job.

mod reading;

use countersign_gateway::audit::RecordError;
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::ConversationId;
use countersign_gateway::job::event::JobEvent;
use countersign_gateway::job::keeping::{
    Beat, Filed, GoneProcess, Hold, JobChange, JobSessionChange, Note, parts_json,
};
use countersign_gateway::job::lifecycle::SubState;
use countersign_gateway::job::state::{ErrorDetails, Job};
use rusqlite::{OptionalExtension as _, params};

use super::ledger::Ledger;
use crate::process::Process;
use crate::rows::jobs::{HOLDERS, Held, held_after, process_columns};

const INSERT: &str = "INSERT INTO jobs (job_id, version, status, sub_state, request_id, correlation_id, session_id,
         conversation_id, agent, owner, actor_type, actor_id, run_id, input, result, error, created_at_ms,
         updated_at_ms, started_at_ms, ended_at_ms, approval_count, approval_ms, remaining_ms, clock_since_ms, retries,
         not_before_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
         ?24, ?25, ?26) ON CONFLICT DO NOTHING";
/// The arrows of `job/lifecycle.rs` once more: this connection has no triggers.
const ADVANCE: &str = "UPDATE jobs SET version = ?3, status = ?4, sub_state = ?5, conversation_id = ?6, result = ?7,
         error = ?8, updated_at_ms = ?9, started_at_ms = ?10, ended_at_ms = ?11, approval_count = ?12,
         approval_ms = ?13, remaining_ms = ?14, clock_since_ms = ?15, retries = ?16, not_before_ms = ?17,
         holder = ?18, seen_at_ms = ?19
     WHERE job_id = ?1 AND version = ?2
         AND (status = ?4 AND status IN ('pending', 'running')
             OR status = 'pending' AND ?4 IN ('running', 'failed', 'cancelled', 'timeout')
             OR status = 'running' AND ?4 IN ('completed', 'failed', 'cancelled', 'timeout'))
         AND NOT (?4 = 'completed' AND EXISTS (SELECT 1 FROM job_notes
             WHERE job_notes.job_id = ?1 AND delivered = 0 AND errand = 'message'))";
const HELD_BY: &str = "SELECT holder, seen_at_ms FROM jobs WHERE job_id = ?1 AND version = ?2";
const BEAT: &str = "UPDATE jobs SET seen_at_ms = max(seen_at_ms, ?3) WHERE job_id = ?1 AND holder = ?2";

const INSERT_SESSION: &str = "INSERT INTO job_sessions (session_id, version, status, conversation_id, name, folder,
         job_id, agent, owner, created_at_ms, rollout, pid, pid_started, socket, config, last_seq, filed_seq)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 0, 0) ON CONFLICT DO NOTHING";
const ADVANCE_SESSION: &str = "UPDATE job_sessions SET version = ?3, status = ?4, conversation_id = ?5, job_id = ?6,
         rollout = ?7, pid = ?8, pid_started = ?9, socket = ?10, config = ?11
     WHERE session_id = ?1 AND version = ?2 AND status <> 'terminated'";
const NEXT_SEQ: &str = "UPDATE job_sessions SET last_seq = last_seq + 1 WHERE session_id = ?1 RETURNING last_seq";
const FILED: &str = "UPDATE job_sessions SET filed_seq = max(filed_seq, min(?2, last_seq)) WHERE session_id = ?1";
const INSERT_EVENT: &str = "INSERT INTO job_events (session_id, seq, event_id, timestamp_ms, job_id, conversation_id,
         type, data)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const INSERT_USAGE: &str = "INSERT INTO token_usage (session_id, job_id, model, prompt_tokens, completion_tokens,
         total_tokens, cost_usd, created_at_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const PROCESS_BEGAN: &str = "INSERT INTO agent_processes (pid, started, session_id, job_id, agent, socket,
         created_at_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET job_id = excluded.job_id";
const PROCESS_GONE: &str = "DELETE FROM agent_processes WHERE pid = ?1 AND started = ?2 AND session_id = ?3";
const INSERT_NOTE: &str = "INSERT INTO job_notes (note_id, job_id, errand, message, sent_by, sent_at_ms, delivered)
     SELECT ?1, ?2, ?3, ?4, ?5, ?6, 0 WHERE EXISTS
         (SELECT 1 FROM jobs WHERE job_id = ?2 AND status IN ('pending', 'running'))";
const DELIVERED: &str = "UPDATE job_notes SET delivered = 1 WHERE note_id = ?1 AND job_id = ?2";

impl Ledger<'_> {
    /// Writes a job with all that changes with it; says what is in the way where something is.
    pub(super) fn write_job(&self, change: &JobChange) -> rusqlite::Result<Option<RecordError>> {
        // A name that is taken is said to be, before anything refers to it.
        if let Some(session) = &change.session
            && let Some(refused) = self.write_job_session(session)?
        {
            return Ok(Some(refused));
        }
        if let Hold::Take { places } = change.hold
            && self.looked_after()? >= places
        {
            return Ok(Some(RecordError::NoPlace));
        }
        let written = match change.from {
            None => self.insert_job(&change.job)?,
            Some(from) => match self.held_after(change, from)? {
                Some(held) => self.advance_job(&change.job, from, held)?,
                None => 0,
            },
        };
        if written != 1 {
            return Ok(Some(RecordError::JobMoved));
        }
        let job = &change.job;
        let session = job.session_id.as_str();
        for event in &change.events {
            self.add_job_event(session, event)?;
        }
        if let Some(usage) = &change.usage {
            let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            self.statement(INSERT_USAGE)?.execute(params![
                session,
                job.id.as_str(),
                usage.model,
                whole(usage.prompt_tokens),
                whole(usage.completion_tokens),
                whole(usage.total_tokens),
                usage.cost_usd,
                job.updated_at.as_millis(),
            ])?;
        }
        if let Some(mark) = &change.process {
            let (pid, started, socket) = process_columns(Some(mark));
            let at = job.updated_at.as_millis();
            let row = params![pid, started, session, job.id.as_str(), job.agent, socket, at];
            self.statement(PROCESS_BEGAN)?.execute(row)?;
        }
        for id in &change.delivered {
            self.statement(DELIVERED)?.execute([id.as_str(), job.id.as_str()])?;
        }
        Ok(None)
    }

    pub(super) fn write_beats(&self, beats: &[Beat]) -> rusqlite::Result<()> {
        for beat in beats {
            let key = params![beat.job.as_str(), self.process(), beat.at.as_millis()];
            self.statement(BEAT)?.execute(key)?;
        }
        Ok(())
    }

    pub(super) fn write_gone(&self, gone: &[GoneProcess]) -> rusqlite::Result<()> {
        for GoneProcess { mark, session } in gone {
            let key = params![i64::from(mark.pid), mark.started.cast_signed(), session.as_str()];
            self.statement(PROCESS_GONE)?.execute(key)?;
        }
        Ok(())
    }

    pub(super) fn write_filed(&self, filed: &[Filed]) -> rusqlite::Result<()> {
        for file in filed {
            let key = params![file.session.as_str(), file.seq.cast_signed()];
            self.statement(FILED)?.execute(key)?;
        }
        Ok(())
    }

    /// Who looks after the job once this is written; none where this process may not write it.
    fn held_after(&self, change: &JobChange, from: u64) -> rusqlite::Result<Option<Held>> {
        let key = params![change.job.id.as_str(), from.cast_signed()];
        let found = self
            .statement(HELD_BY)?
            .query_row(key, |row| {
                Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<i64>>(1)?))
            })
            .optional()?;
        let Some((holder, seen)) = found else {
            return Ok(None);
        };
        held_after(
            change,
            holder.zip(seen),
            self.process(),
            |holder, seen_at, silent_since| Ok(seen_at < silent_since || !Process::is_alive(holder)),
        )
    }

    /// Jobs that a living process looks after.
    fn looked_after(&self) -> rusqlite::Result<usize> {
        let mut statement = self.statement(HOLDERS)?;
        let mut rows = statement.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let (holder, jobs): (String, i64) = (row.get(0)?, row.get(1)?);
            if Process::is_alive(&holder) {
                count += usize::try_from(jobs).unwrap_or(usize::MAX);
            }
        }
        Ok(count)
    }

    fn insert_job(&self, job: &Job) -> rusqlite::Result<usize> {
        let time = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        self.statement(INSERT)?.execute(params![
            job.id.as_str(),
            job.version.cast_signed(),
            job.status().as_str(),
            job.sub_state.map(SubState::as_str),
            job.request_id,
            job.correlation_id.as_str(),
            job.session_id.as_str(),
            job.conversation_id.as_ref().map(ConversationId::as_str),
            job.agent,
            job.owner.as_str(),
            job.started_by.kind.as_str(),
            job.started_by.id,
            job.run_id,
            job.input.to_json().to_string(),
            job.result,
            job.error.as_ref().map(|error| error.to_json().to_string()),
            job.created_at.as_millis(),
            job.updated_at.as_millis(),
            time(job.metrics.start_time),
            time(job.metrics.end_time),
            job.metrics.approval_count.cast_signed(),
            job.metrics.approval_ms.cast_signed(),
            job.clock.remaining_ms.cast_signed(),
            time(job.clock.since),
            job.retries,
            time(job.not_before),
        ])
    }

    fn advance_job(&self, job: &Job, from: u64, held: Held) -> rusqlite::Result<usize> {
        let time = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        let (holder, seen) = held.unzip();
        self.statement(ADVANCE)?.execute(params![
            job.id.as_str(),
            from.cast_signed(),
            job.version.cast_signed(),
            job.status().as_str(),
            job.sub_state.map(SubState::as_str),
            job.conversation_id.as_ref().map(ConversationId::as_str),
            job.result,
            job.error
                .as_ref()
                .map(|error: &ErrorDetails| error.to_json().to_string()),
            job.updated_at.as_millis(),
            time(job.metrics.start_time),
            time(job.metrics.end_time),
            job.metrics.approval_count.cast_signed(),
            job.metrics.approval_ms.cast_signed(),
            job.clock.remaining_ms.cast_signed(),
            time(job.clock.since),
            job.retries,
            time(job.not_before),
            holder,
            seen,
        ])
    }

    fn write_job_session(&self, change: &JobSessionChange) -> rusqlite::Result<Option<RecordError>> {
        let JobSessionChange { session, from } = change;
        let (pid, pid_started, socket) = process_columns(session.process.as_ref());
        let conversation = session.conversation_id.as_ref().map(ConversationId::as_str);
        let written = match from {
            None => self.statement(INSERT_SESSION)?.execute(params![
                session.id.as_str(),
                session.version.cast_signed(),
                session.status().as_str(),
                conversation,
                session.name.as_str(),
                session.folder(),
                session.job_id.as_str(),
                session.agent,
                session.owner.as_str(),
                session.created_at.as_millis(),
                session.rollout,
                pid,
                pid_started,
                socket,
                session.config.to_string(),
            ])?,
            Some(from) => self.statement(ADVANCE_SESSION)?.execute(params![
                session.id.as_str(),
                from.cast_signed(),
                session.version.cast_signed(),
                session.status().as_str(),
                conversation,
                session.job_id.as_str(),
                session.rollout,
                pid,
                pid_started,
                socket,
                session.config.to_string(),
            ])?,
        };
        Ok(match (written, from) {
            (1, _) => None,
            (_, None) => Some(RecordError::SessionNameTaken),
            (_, Some(_)) => Some(RecordError::JobMoved),
        })
    }

    fn add_job_event(&self, session: &str, event: &JobEvent) -> rusqlite::Result<()> {
        let seq: i64 = self.statement(NEXT_SEQ)?.query_row([session], |row| row.get(0))?;
        self.statement(INSERT_EVENT)?.execute(params![
            session,
            seq,
            event.event_id.as_str(),
            event.timestamp.as_millis(),
            event.job_id.as_str(),
            event.session_id.as_ref().map(ConversationId::as_str),
            event.kind.as_str(),
            event.data.to_string(),
        ])?;
        Ok(())
    }

    /// False when the job has ended.
    pub(super) fn add_note(&self, note: &Note) -> rusqlite::Result<bool> {
        let rows = self.statement(INSERT_NOTE)?.execute(params![
            note.id.as_str(),
            note.job_id.as_str(),
            note.errand.as_str(),
            parts_json(&note.message).to_string(),
            note.by,
            note.at.as_millis(),
        ])?;
        Ok(rows == 1)
    }
}
