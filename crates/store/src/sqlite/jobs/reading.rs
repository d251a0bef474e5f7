//! Jobs as they are read back.

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{ConversationId, CredentialId, EventId, JobId, JobSessionId};
use countersign_gateway::job::driver::Usage;
use countersign_gateway::job::event::StoredEvent;
use countersign_gateway::job::keeping::{AbandonedJob, AgentProcess, JobFilter, Jobs, Note, Place};
use countersign_gateway::job::lifecycle::JobStatus;
use countersign_gateway::job::session::JobSession;
use countersign_gateway::job::state::Job;
use rusqlite::{Params, params};

use super::super::SqliteStore;
use super::super::readers::Readers;
use crate::process::Process;
use crate::rows::jobs::{
    COLUMNS, COUNT, EVENT_COLUMNS, NOTE_COLUMNS, PROCESS_COLUMNS, SESSION_COLUMNS, counts, event, held_job, job, note,
    process, session,
};
use crate::rows::{at_most, one_of};

impl Readers {
    fn jobs(&self, rest: &str, values: impl Params) -> Result<Vec<Job>, RecordError> {
        self.all(&format!("SELECT {COLUMNS} FROM jobs {rest}"), values, |row| job(row))
    }

    fn sessions_of_jobs(&self, rest: &str, values: impl Params) -> Result<Vec<JobSession>, RecordError> {
        self.all(
            &format!("SELECT {SESSION_COLUMNS} FROM job_sessions {rest}"),
            values,
            |row| session(row),
        )
    }

    fn abandoned_jobs(&self, silent_since: Timestamp) -> Result<Vec<AbandonedJob>, RecordError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM jobs WHERE status IN ('pending', 'running') AND holder IS NOT NULL
             ORDER BY created_at_ms, rowid"
        );
        let mut found = self.all(&sql, [], |row| held_job(row))?;
        found.retain(|(holder, it)| it.seen_at < silent_since || !Process::is_alive(holder));
        Ok(found.into_iter().map(|(_, it)| it).collect())
    }
}

impl Jobs for SqliteStore {
    fn holder(&self) -> String {
        self.site.process.as_str().to_owned()
    }

    fn mark(&self, job: &JobId) -> String {
        job.as_str().to_owned()
    }

    fn place(&self, job: &JobId) -> Pending<Result<Place, RecordError>> {
        let (job, own) = (job.clone(), self.holder());
        self.read(move |readers| {
            let sql = "SELECT holder FROM jobs WHERE job_id = ?1 AND holder IS NOT NULL";
            let holder = readers.first(sql, [job.as_str()], |row| row.get::<_, String>(0))?;
            let is_ours = holder.is_some_and(|holder| holder == own);
            Ok(if is_ours { Place::Here } else { Place::ThisNode })
        })
    }

    fn find(&self, id: &JobId) -> Pending<Result<Option<Job>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| Ok(readers.jobs("WHERE job_id = ?1", [id.as_str()])?.pop()))
    }

    fn list(&self, filter: JobFilter) -> Pending<Result<Vec<Job>, RecordError>> {
        self.read(move |readers| {
            let statuses = one_of("status", filter.statuses.iter().map(|status| status.as_str()));
            let rest = format!(
                "WHERE {statuses} AND (?1 IS NULL OR owner = ?1) ORDER BY created_at_ms DESC, rowid DESC LIMIT ?2"
            );
            let owner = filter.owner.as_ref().map(CredentialId::as_str);
            let mut found = readers.jobs(&rest, params![owner, at_most(filter.limit)])?;
            found.reverse();
            Ok(found)
        })
    }

    fn count(&self) -> Pending<Result<Vec<(JobStatus, usize)>, RecordError>> {
        self.read(move |readers| {
            let counted = readers.all(COUNT, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
            Ok(counts(counted))
        })
    }

    fn open_of(&self, owner: &CredentialId) -> Pending<Result<usize, RecordError>> {
        let owner = owner.clone();
        self.read(move |readers| {
            let sql = "SELECT count(*) FROM jobs WHERE status IN ('pending', 'running') AND owner = ?1";
            let count = readers.first(sql, [owner.as_str()], |row| row.get::<_, i64>(0))?;
            Ok(usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX))
        })
    }

    fn waiting(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Job>, RecordError>> {
        self.read(move |readers| {
            readers.jobs(
                "WHERE status IN ('pending', 'running') AND holder IS NULL
                     AND (not_before_ms IS NULL OR not_before_ms <= ?1)
                     AND NOT EXISTS (SELECT 1 FROM agent_processes
                         WHERE agent_processes.session_id = jobs.session_id AND agent_processes.job_id <> jobs.job_id)
                 ORDER BY row_number() OVER (PARTITION BY owner ORDER BY created_at_ms, rowid), created_at_ms, rowid
                 LIMIT ?2",
                [now.as_millis(), at_most(limit)],
            )
        })
    }

    fn next_wake(&self, now: Timestamp) -> Pending<Result<Option<Timestamp>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT min(not_before_ms) FROM jobs
                 WHERE status IN ('pending', 'running') AND holder IS NULL AND not_before_ms > ?1";
            let found = readers.first(sql, [now.as_millis()], |row| row.get::<_, Option<i64>>(0))?;
            Ok(found.flatten().map(Timestamp::from_millis))
        })
    }

    fn abandoned(&self, silent_since: Timestamp) -> Pending<Result<Vec<AbandonedJob>, RecordError>> {
        self.read(move |readers| readers.abandoned_jobs(silent_since))
    }

    fn session(&self, id: &JobSessionId) -> Pending<Result<Option<JobSession>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| Ok(readers.sessions_of_jobs("WHERE session_id = ?1", [id.as_str()])?.pop()))
    }

    fn session_of(&self, conversation: &ConversationId) -> Pending<Result<Option<JobSession>, RecordError>> {
        let id = conversation.clone();
        self.read(move |readers| {
            Ok(readers
                .sessions_of_jobs("WHERE conversation_id = ?1", [id.as_str()])?
                .pop())
        })
    }

    fn events(
        &self,
        session: &JobSessionId,
        after: u64,
        limit: usize,
    ) -> Pending<Result<Vec<StoredEvent>, RecordError>> {
        let session = session.clone();
        self.read(move |readers| {
            let sql = format!(
                "SELECT {EVENT_COLUMNS} FROM job_events WHERE session_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
            );
            let values = params![session.as_str(), after.cast_signed(), at_most(limit)];
            readers.all(&sql, values, |row| event(row))
        })
    }

    fn event_ids(&self, session: &JobSessionId) -> Pending<Result<Vec<EventId>, RecordError>> {
        let session = session.clone();
        self.read(move |readers| {
            let sql = "SELECT event_id FROM job_events WHERE session_id = ?1 ORDER BY seq";
            readers.all(sql, [session.as_str()], |row| {
                Ok(EventId::trusted(row.get::<_, String>(0)?))
            })
        })
    }

    fn unfiled(&self, limit: usize) -> Pending<Result<Vec<JobSession>, RecordError>> {
        self.read(move |readers| {
            readers.sessions_of_jobs(
                "WHERE filed_seq < last_seq ORDER BY created_at_ms LIMIT ?1",
                [at_most(limit)],
            )
        })
    }

    fn notes(&self, job: &JobId) -> Pending<Result<Vec<Note>, RecordError>> {
        let job = job.clone();
        self.read(move |readers| {
            let sql = format!("SELECT {NOTE_COLUMNS} FROM job_notes WHERE job_id = ?1 ORDER BY sent_at_ms, rowid");
            readers.all(&sql, [job.as_str()], |row| note(row, &job))
        })
    }

    fn processes(&self) -> Pending<Result<Vec<AgentProcess>, RecordError>> {
        self.read(move |readers| {
            let sql = format!("SELECT {PROCESS_COLUMNS} FROM agent_processes ORDER BY created_at_ms, pid");
            readers.all(&sql, [], |row| process(row))
        })
    }

    fn usage(&self, session: &JobSessionId) -> Pending<Result<Usage, RecordError>> {
        let session = session.clone();
        self.read(move |readers| {
            let sql = "SELECT max(model), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0),
                     coalesce(sum(total_tokens), 0), sum(cost_usd)
                 FROM token_usage WHERE session_id = ?1";
            let used = readers.first(sql, [session.as_str()], |row| {
                Ok(Usage {
                    model: row.get(0)?,
                    prompt_tokens: row.get::<_, i64>(1)?.cast_unsigned(),
                    completion_tokens: row.get::<_, i64>(2)?.cast_unsigned(),
                    total_tokens: row.get::<_, i64>(3)?.cast_unsigned(),
                    cost_usd: row.get(4)?,
                })
            })?;
            Ok(used.unwrap_or_default())
        })
    }
}
