//! Jobs as they are read back.

use countersign_gateway::audit::event::{Actor, ActorType};
use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{ConversationId, CorrelationId, CredentialId, EventId, JobId, JobSessionId, NoteId};
use countersign_gateway::job::driver::{ProcessMark, Usage};
use countersign_gateway::job::event::{JobEvent, JobEventType, StoredEvent};
use countersign_gateway::job::input::JobInput;
use countersign_gateway::job::keeping::{
    AbandonedJob, AgentProcess, Errand, JobFilter, Jobs, Note, Place, mark, parts_from,
};
use countersign_gateway::job::lifecycle::{JobStatus, SessionStatus, SubState};
use countersign_gateway::job::session::{JobSession, SessionName};
use countersign_gateway::job::state::{ErrorDetails, Job, JobClock, JobMetrics, Order};
use tokio_postgres::Row;

use super::super::PgStore;
use super::super::link::Values;
use super::super::node::SILENT_FOR;
use super::super::readers::Readers;
use super::super::trouble::{self, Trouble};

const COLUMNS: &str = "job_id, version, status, sub_state, request_id, correlation_id, session_id, conversation_id, \
     agent, owner, actor_type, actor_id, run_id, input, result, error, created_at_ms, updated_at_ms, started_at_ms, \
     ended_at_ms, approval_count, approval_ms, remaining_ms, clock_since_ms, retries, not_before_ms, holder, seen_at_ms";
const SESSION_COLUMNS: &str = "session_id, version, status, conversation_id, name, job_id, agent, owner, \
     created_at_ms, rollout, pid, pid_started, socket, config, (SELECT node FROM agent_processes AS known \
     WHERE known.session_id = job_sessions.session_id AND known.pid = job_sessions.pid \
     AND known.started = job_sessions.pid_started LIMIT 1)";

impl Readers {
    fn jobs(&self, rest: &str, values: Values<'_>) -> Result<Vec<Job>, RecordError> {
        self.all(&format!("SELECT {COLUMNS} FROM jobs {rest}"), values, job)
    }

    fn sessions_of_jobs(&self, rest: &str, values: Values<'_>) -> Result<Vec<JobSession>, RecordError> {
        let own = self.site.node.name();
        self.all(
            &format!("SELECT {SESSION_COLUMNS} FROM job_sessions {rest}"),
            values,
            |row| {
                let mut session = session(row)?;
                // The same number means another process on every node.
                if row.try_get::<_, Option<&str>>(14)?.is_some_and(|node| node != own) {
                    session.process = None;
                }
                Ok(session)
            },
        )
    }

    fn abandoned_jobs(&self, silent_since: Timestamp) -> Result<Vec<AbandonedJob>, RecordError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM jobs WHERE status IN ('pending', 'running') AND holder IS NOT NULL
             ORDER BY created_at_ms, arrival"
        );
        let held = |row: &Row| {
            let abandoned = AbandonedJob {
                job: job(row)?,
                seen_at: Timestamp::from_millis(row.try_get(27)?),
            };
            Ok((row.try_get::<_, String>(26)?, abandoned))
        };
        let found = self.read(|link| {
            let mut abandoned = Vec::new();
            for (holder, it) in link.all(&sql, &[], held)? {
                if self.site.node.is_lost(link, &holder, it.seen_at, silent_since)? {
                    abandoned.push(it);
                }
            }
            Ok(abandoned)
        });
        found.map_err(|error| trouble::unavailable(&error))
    }
}

impl Jobs for PgStore {
    fn holder(&self) -> String {
        self.site.node.process().to_owned()
    }

    fn mark(&self, job: &JobId) -> String {
        format!("{}_{}", job.as_str(), self.site.node.name())
    }

    fn place(&self, job: &JobId) -> Pending<Result<Place, RecordError>> {
        let job = job.clone();
        self.read(move |readers| {
            let sql = "SELECT holder FROM jobs WHERE job_id = $1";
            let found = readers.first(sql, &[&job.as_str()], |row| Ok(row.try_get::<_, Option<String>>(0)?))?;
            let node = &readers.site.node;
            Ok(match found.flatten() {
                None => Place::Nowhere,
                Some(holder) if holder == node.process() => Place::Here,
                Some(holder) if node.is_of(&holder) => Place::ThisNode,
                Some(_) => Place::OtherNode,
            })
        })
    }

    fn find(&self, id: &JobId) -> Pending<Result<Option<Job>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| Ok(readers.jobs("WHERE job_id = $1", &[&id.as_str()])?.pop()))
    }

    fn list(&self, filter: JobFilter) -> Pending<Result<Vec<Job>, RecordError>> {
        self.read(move |readers| {
            let words: Vec<String> = filter
                .statuses
                .iter()
                .map(|status| format!("'{}'", status.as_str()))
                .collect();
            let statuses = if words.is_empty() {
                "true".to_owned()
            } else {
                format!("status IN ({})", words.join(", "))
            };
            let rest = format!(
                "WHERE {statuses} AND ($1::text IS NULL OR owner = $1) ORDER BY created_at_ms DESC, arrival DESC LIMIT $2"
            );
            let owner = filter.owner.as_ref().map(CredentialId::as_str);
            let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
            let mut found = readers.jobs(&rest, &[&owner, &limit])?;
            found.reverse();
            Ok(found)
        })
    }

    fn open_of(&self, owner: &CredentialId) -> Pending<Result<usize, RecordError>> {
        let owner = owner.clone();
        self.read(move |readers| {
            let sql = "SELECT count(*) FROM jobs WHERE status IN ('pending', 'running') AND owner = $1";
            let count = readers.first(sql, &[&owner.as_str()], |row| Ok(row.try_get::<_, i64>(0)?))?;
            Ok(usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX))
        })
    }

    fn count(&self) -> Pending<Result<Vec<(JobStatus, usize)>, RecordError>> {
        self.read(move |readers| {
            let counted = readers.all("SELECT status, count(*) FROM jobs GROUP BY status", &[], |row| {
                Ok((row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?))
            })?;
            let known = counted.into_iter().filter_map(|(status, count)| {
                Some((JobStatus::parse(&status)?, usize::try_from(count).unwrap_or(usize::MAX)))
            });
            Ok(known.collect())
        })
    }

    fn waiting(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Job>, RecordError>> {
        self.read(move |readers| {
            // What a silent node had at work stands in nobody's way.
            let rest = format!(
                "WHERE status IN ('pending', 'running') AND holder IS NULL
                     AND (not_before_ms IS NULL OR not_before_ms <= $1)
                     AND NOT EXISTS (SELECT 1 FROM agent_processes
                         WHERE agent_processes.session_id = jobs.session_id AND agent_processes.job_id <> jobs.job_id
                             AND EXISTS (SELECT 1 FROM processes WHERE processes.node = agent_processes.node
                                 AND seen_at > clock_timestamp() - interval '{SILENT_FOR}'))
                 ORDER BY row_number() OVER (PARTITION BY owner ORDER BY created_at_ms, arrival), created_at_ms, arrival
                 LIMIT $2"
            );
            readers.jobs(&rest, &[&now.as_millis(), &i64::try_from(limit).unwrap_or(i64::MAX)])
        })
    }

    fn next_wake(&self, now: Timestamp) -> Pending<Result<Option<Timestamp>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT min(not_before_ms) FROM jobs
                 WHERE status IN ('pending', 'running') AND holder IS NULL AND not_before_ms > $1";
            let found = readers.first(sql, &[&now.as_millis()], |row| Ok(row.try_get::<_, Option<i64>>(0)?))?;
            Ok(found.flatten().map(Timestamp::from_millis))
        })
    }

    fn abandoned(&self, silent_since: Timestamp) -> Pending<Result<Vec<AbandonedJob>, RecordError>> {
        self.read(move |readers| readers.abandoned_jobs(silent_since))
    }

    fn session(&self, id: &JobSessionId) -> Pending<Result<Option<JobSession>, RecordError>> {
        let id = id.clone();
        self.read(move |readers| {
            Ok(readers
                .sessions_of_jobs("WHERE session_id = $1", &[&id.as_str()])?
                .pop())
        })
    }

    fn session_of(&self, conversation: &ConversationId) -> Pending<Result<Option<JobSession>, RecordError>> {
        let id = conversation.clone();
        self.read(move |readers| {
            Ok(readers
                .sessions_of_jobs("WHERE conversation_id = $1", &[&id.as_str()])?
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
            let sql = "SELECT seq, event_id, timestamp_ms, job_id, conversation_id, type, data FROM job_events
                 WHERE session_id = $1 AND seq > $2 ORDER BY seq LIMIT $3";
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            readers.all(sql, &[&session.as_str(), &after.cast_signed(), &limit], event)
        })
    }

    fn event_ids(&self, session: &JobSessionId) -> Pending<Result<Vec<EventId>, RecordError>> {
        let session = session.clone();
        self.read(move |readers| {
            let sql = "SELECT event_id FROM job_events WHERE session_id = $1 ORDER BY seq";
            readers.all(sql, &[&session.as_str()], |row| {
                Ok(EventId::trusted(row.try_get::<_, String>(0)?))
            })
        })
    }

    fn unfiled(&self, limit: usize) -> Pending<Result<Vec<JobSession>, RecordError>> {
        self.read(move |readers| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            readers.sessions_of_jobs("WHERE filed_seq < last_seq ORDER BY created_at_ms LIMIT $1", &[&limit])
        })
    }

    fn notes(&self, job: &JobId) -> Pending<Result<Vec<Note>, RecordError>> {
        let job = job.clone();
        self.read(move |readers| {
            let sql = "SELECT note_id, errand, message, sent_by, sent_at_ms, delivered FROM job_notes
                 WHERE job_id = $1 ORDER BY sent_at_ms, arrival";
            readers.all(sql, &[&job.as_str()], |row| note(row, &job))
        })
    }

    fn processes(&self) -> Pending<Result<Vec<AgentProcess>, RecordError>> {
        self.read(move |readers| {
            let sql = "SELECT pid, started, socket, job_id, session_id, agent, created_at_ms FROM agent_processes
                 WHERE node = $1 ORDER BY created_at_ms, pid";
            readers.all(sql, &[&readers.site.node.name()], |row| {
                Ok(AgentProcess {
                    mark: mark(
                        pid(row.try_get(0)?, 0)?,
                        row.try_get::<_, i64>(1)?.cast_unsigned(),
                        row.try_get(2)?,
                    ),
                    job_id: JobId::trusted(row.try_get::<_, String>(3)?),
                    session_id: JobSessionId::trusted(row.try_get::<_, String>(4)?),
                    agent: row.try_get(5)?,
                    created_at: Timestamp::from_millis(row.try_get(6)?),
                })
            })
        })
    }

    fn usage(&self, session: &JobSessionId) -> Pending<Result<Usage, RecordError>> {
        let session = session.clone();
        self.read(move |readers| {
            let sql = "SELECT max(model), coalesce(sum(prompt_tokens), 0)::bigint,
                     coalesce(sum(completion_tokens), 0)::bigint, coalesce(sum(total_tokens), 0)::bigint, sum(cost_usd)
                 FROM token_usage WHERE session_id = $1";
            let used = readers.first(sql, &[&session.as_str()], |row| {
                Ok(Usage {
                    model: row.try_get(0)?,
                    prompt_tokens: row.try_get::<_, i64>(1)?.cast_unsigned(),
                    completion_tokens: row.try_get::<_, i64>(2)?.cast_unsigned(),
                    total_tokens: row.try_get::<_, i64>(3)?.cast_unsigned(),
                    cost_usd: row.try_get(4)?,
                })
            })?;
            Ok(used.unwrap_or_default())
        })
    }
}

fn job(row: &Row) -> Result<Job, Trouble> {
    let text = |index: usize| row.try_get::<_, String>(index);
    let time = |index: usize| {
        Ok::<_, tokio_postgres::Error>(row.try_get::<_, Option<i64>>(index)?.map(Timestamp::from_millis))
    };
    let count = |index: usize| Ok::<_, tokio_postgres::Error>(row.try_get::<_, i64>(index)?.cast_unsigned());
    let input = text(13)?;
    let read = serde_json::from_str(&input).map_err(|error| Trouble::damaged(13, error))?;
    let input = JobInput::restored(&read);
    let order = Order {
        request_id: text(4)?,
        correlation_id: CorrelationId::trusted(text(5)?),
        session_id: JobSessionId::trusted(text(6)?),
        agent: text(8)?,
        owner: CredentialId::trusted(text(9)?),
        started_by: Actor {
            kind: ActorType::parse(&text(10)?).unwrap_or(ActorType::System),
            id: text(11)?,
        },
        run_id: row.try_get(12)?,
        input,
    };
    let mut job = Job::new(
        JobId::trusted(text(0)?),
        order,
        Timestamp::from_millis(row.try_get(16)?),
    );
    job.version = count(1)?;
    job.sub_state = row
        .try_get::<_, Option<String>>(3)?
        .as_deref()
        .and_then(SubState::parse);
    job.conversation_id = row.try_get::<_, Option<String>>(7)?.map(ConversationId::trusted);
    job.result = row.try_get(14)?;
    job.error = row
        .try_get::<_, Option<String>>(15)?
        .and_then(|kept| ErrorDetails::from_json(&serde_json::from_str(&kept).ok()?));
    job.updated_at = Timestamp::from_millis(row.try_get(17)?);
    job.metrics = JobMetrics {
        start_time: time(18)?,
        end_time: time(19)?,
        approval_count: count(20)?,
        approval_ms: count(21)?,
    };
    job.clock = JobClock {
        remaining_ms: count(22)?,
        since: time(23)?,
    };
    job.retries = u32::try_from(row.try_get::<_, i64>(24)?).unwrap_or(u32::MAX);
    job.not_before = time(25)?;
    // The table allows no other words; one that is none could at least not be acted upon.
    let status = JobStatus::parse(&text(2)?).unwrap_or(JobStatus::Failed);
    Ok(Job::restored(status, job))
}

fn session(row: &Row) -> Result<JobSession, Trouble> {
    let text = |index: usize| row.try_get::<_, String>(index);
    let mut session = JobSession::new(
        JobSessionId::trusted(text(0)?),
        SessionName::trusted(text(4)?),
        JobId::trusted(text(5)?),
        text(6)?,
        CredentialId::trusted(text(7)?),
        Timestamp::from_millis(row.try_get(8)?),
    );
    session.version = row.try_get::<_, i64>(1)?.cast_unsigned();
    session.conversation_id = row.try_get::<_, Option<String>>(3)?.map(ConversationId::trusted);
    session.rollout = row.try_get(9)?;
    session.process = process(row)?;
    session.config = serde_json::from_str(&text(13)?).unwrap_or_default();
    let status = SessionStatus::parse(&text(2)?).unwrap_or(SessionStatus::Terminated);
    Ok(JobSession::restored(status, session))
}

fn process(row: &Row) -> Result<Option<ProcessMark>, Trouble> {
    let found = row.try_get::<_, Option<i64>>(10)?;
    let (found, started) = (
        found.map(|found| pid(found, 10)).transpose()?,
        row.try_get::<_, Option<i64>>(11)?,
    );
    let socket = row.try_get(12)?;
    Ok(found
        .zip(started)
        .map(|(pid, started)| mark(pid, started.cast_unsigned(), socket)))
}

fn event(row: &Row) -> Result<StoredEvent, Trouble> {
    let text = |index: usize| row.try_get::<_, String>(index);
    Ok(StoredEvent {
        seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
        event: JobEvent {
            event_id: EventId::trusted(text(1)?),
            timestamp: Timestamp::from_millis(row.try_get(2)?),
            job_id: JobId::trusted(text(3)?),
            session_id: row.try_get::<_, Option<String>>(4)?.map(ConversationId::trusted),
            // A newer program may know more kinds.
            kind: JobEventType::parse(&text(5)?).unwrap_or(JobEventType::AgentEvent),
            data: serde_json::from_str(&text(6)?).map_err(|error| Trouble::damaged(6, error))?,
        },
    })
}

fn note(row: &Row, job: &JobId) -> Result<Note, Trouble> {
    let text = |index: usize| row.try_get::<_, String>(index);
    Ok(Note {
        id: NoteId::trusted(text(0)?),
        job_id: job.clone(),
        errand: Errand::parse(&text(1)?).unwrap_or(Errand::Message),
        message: parts_from(&serde_json::from_str(&text(2)?).unwrap_or_default()),
        by: text(3)?,
        at: Timestamp::from_millis(row.try_get(4)?),
        delivered: row.try_get(5)?,
    })
}

fn pid(found: i64, column: usize) -> Result<u32, Trouble> {
    u32::try_from(found).map_err(|error| Trouble::damaged(column, error))
}
