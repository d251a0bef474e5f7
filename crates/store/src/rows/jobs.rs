//! Jobs, the sessions and processes of their agents, and who may write a job.

use countersign_gateway::audit::event::{Actor, ActorType};
use countersign_gateway::clock::Timestamp;
use countersign_gateway::ids::{ConversationId, CorrelationId, CredentialId, EventId, JobId, JobSessionId, NoteId};
use countersign_gateway::job::driver::ProcessMark;
use countersign_gateway::job::event::{JobEvent, JobEventType, StoredEvent};
use countersign_gateway::job::input::JobInput;
use countersign_gateway::job::keeping::{AbandonedJob, AgentProcess, Errand, Hold, JobChange, Note, mark, parts_from};
use countersign_gateway::job::lifecycle::{JobStatus, SessionStatus, SubState};
use countersign_gateway::job::session::{JobSession, SessionName};
use countersign_gateway::job::state::{ErrorDetails, Job, JobClock, JobMetrics, Order};

use super::Cells;

/// The columns that [`job`] and [`held_job`] read, in their order.
pub(crate) const COLUMNS: &str = "job_id, version, status, sub_state, request_id, correlation_id, session_id, \
     conversation_id, agent, owner, actor_type, actor_id, run_id, input, result, error, created_at_ms, updated_at_ms, \
     started_at_ms, ended_at_ms, approval_count, approval_ms, remaining_ms, clock_since_ms, retries, not_before_ms, \
     holder, seen_at_ms";
/// The columns that [`session`] reads, in its order.
pub(crate) const SESSION_COLUMNS: &str = "session_id, version, status, conversation_id, name, job_id, agent, owner, \
     created_at_ms, rollout, pid, pid_started, socket, config";
/// The columns that [`event`] reads, in its order.
pub(crate) const EVENT_COLUMNS: &str = "seq, event_id, timestamp_ms, job_id, conversation_id, type, data";
/// The columns that [`note`] reads, in its order.
pub(crate) const NOTE_COLUMNS: &str = "note_id, errand, message, sent_by, sent_at_ms, delivered";
/// The columns that [`process`] reads, in its order.
pub(crate) const PROCESS_COLUMNS: &str = "pid, started, socket, job_id, session_id, agent, created_at_ms";
/// How many jobs stand at each status.
pub(crate) const COUNT: &str = "SELECT status, count(*) FROM jobs GROUP BY status";
/// Who looks after how many jobs.
pub(crate) const HOLDERS: &str = "SELECT holder, count(*) FROM jobs
     WHERE status IN ('pending', 'running') AND holder IS NOT NULL GROUP BY holder";

/// Who looks after a job after a change, and when they were last seen.
pub(crate) type Held = Option<(String, i64)>;

/// Who looks after a job once a change of this process is written; none where it may not write it. Whether a holder
/// who was last seen then is lost, to somebody who waits since then, is for each database to say.
pub(crate) fn held_after<E>(
    change: &JobChange,
    held: Held,
    process: &str,
    is_lost: impl FnOnce(&str, Timestamp, Timestamp) -> Result<bool, E>,
) -> Result<Option<Held>, E> {
    let is_free = held.as_ref().is_none_or(|(holder, _)| holder == process);
    Ok(match &change.hold {
        Hold::Keep => is_free.then_some(held),
        Hold::Nobody => held.is_none().then_some(None),
        Hold::Take { .. } => is_free.then(|| Some((process.to_owned(), change.job.updated_at.as_millis()))),
        Hold::Free { silent_since } => match held {
            Some((holder, seen)) => is_lost(&holder, Timestamp::from_millis(seen), *silent_since)?.then_some(None),
            None => Some(None),
        },
        Hold::Release => is_free.then_some(None),
    })
}

/// What [`COUNT`] found.
pub(crate) fn counts(found: Vec<(String, i64)>) -> Vec<(JobStatus, usize)> {
    let known = found
        .into_iter()
        .filter_map(|(status, count)| Some((JobStatus::parse(&status)?, usize::try_from(count).unwrap_or(usize::MAX))));
    known.collect()
}

pub(crate) fn job<R: Cells>(row: &R) -> Result<Job, R::Error> {
    let order = Order {
        request_id: row.text(4)?,
        correlation_id: CorrelationId::trusted(row.text(5)?),
        session_id: JobSessionId::trusted(row.text(6)?),
        agent: row.text(8)?,
        owner: CredentialId::trusted(row.text(9)?),
        started_by: Actor {
            kind: ActorType::parse(&row.text(10)?).unwrap_or(ActorType::System),
            id: row.text(11)?,
        },
        run_id: row.any_text(12)?,
        input: JobInput::restored(&row.json(13)?),
    };
    let mut job = Job::new(JobId::trusted(row.text(0)?), order, row.time(16)?);
    job.version = row.count(1)?;
    job.sub_state = row.any_text(3)?.as_deref().and_then(SubState::parse);
    job.conversation_id = row.any_text(7)?.map(ConversationId::trusted);
    job.result = row.any_text(14)?;
    job.error = row
        .any_text(15)?
        .and_then(|kept| ErrorDetails::from_json(&serde_json::from_str(&kept).ok()?));
    job.updated_at = row.time(17)?;
    job.metrics = JobMetrics {
        start_time: row.any_time(18)?,
        end_time: row.any_time(19)?,
        approval_count: row.count(20)?,
        approval_ms: row.count(21)?,
    };
    job.clock = JobClock {
        remaining_ms: row.count(22)?,
        since: row.any_time(23)?,
    };
    job.retries = row.number(24)?;
    job.not_before = row.any_time(25)?;
    // The table allows no other words; one that is none could at least not be acted upon.
    let status = JobStatus::parse(&row.text(2)?).unwrap_or(JobStatus::Failed);
    Ok(Job::restored(status, job))
}

/// A job that somebody looks after, behind the name of who does.
pub(crate) fn held_job<R: Cells>(row: &R) -> Result<(String, AbandonedJob), R::Error> {
    let abandoned = AbandonedJob {
        job: job(row)?,
        seen_at: row.time(27)?,
    };
    Ok((row.text(26)?, abandoned))
}

pub(crate) fn session<R: Cells>(row: &R) -> Result<JobSession, R::Error> {
    let mut session = JobSession::new(
        JobSessionId::trusted(row.text(0)?),
        SessionName::trusted(row.text(4)?),
        JobId::trusted(row.text(5)?),
        row.text(6)?,
        CredentialId::trusted(row.text(7)?),
        row.time(8)?,
    );
    session.version = row.count(1)?;
    session.conversation_id = row.any_text(3)?.map(ConversationId::trusted);
    session.rollout = row.any_text(9)?;
    session.process = match (row.any_whole(10)?, row.any_count(11)?) {
        (Some(_), Some(started)) => Some(mark(row.number(10)?, started, row.any_text(12)?)),
        (Some(_), None) | (None, _) => None,
    };
    session.config = serde_json::from_str(&row.text(13)?).unwrap_or_default();
    let status = SessionStatus::parse(&row.text(2)?).unwrap_or(SessionStatus::Terminated);
    Ok(JobSession::restored(status, session))
}

pub(crate) fn process<R: Cells>(row: &R) -> Result<AgentProcess, R::Error> {
    Ok(AgentProcess {
        mark: mark(row.number(0)?, row.count(1)?, row.any_text(2)?),
        job_id: JobId::trusted(row.text(3)?),
        session_id: JobSessionId::trusted(row.text(4)?),
        agent: row.text(5)?,
        created_at: row.time(6)?,
    })
}

/// The columns of a process, where there is one: its number, when it began, and where it is listened to.
pub(crate) fn process_columns(mark: Option<&ProcessMark>) -> (Option<i64>, Option<i64>, Option<String>) {
    let pid = mark.map(|mark| i64::from(mark.pid));
    let started = mark.map(|mark| mark.started.cast_signed());
    let socket = mark.and_then(|mark| mark.socket.as_ref());
    (pid, started, socket.map(|socket| socket.to_string_lossy().into_owned()))
}

pub(crate) fn event<R: Cells>(row: &R) -> Result<StoredEvent, R::Error> {
    Ok(StoredEvent {
        seq: row.count(0)?,
        event: JobEvent {
            event_id: EventId::trusted(row.text(1)?),
            timestamp: row.time(2)?,
            job_id: JobId::trusted(row.text(3)?),
            session_id: row.any_text(4)?.map(ConversationId::trusted),
            // A newer program may know more kinds.
            kind: JobEventType::parse(&row.text(5)?).unwrap_or(JobEventType::AgentEvent),
            data: row.json(6)?,
        },
    })
}

pub(crate) fn note<R: Cells>(row: &R, job: &JobId) -> Result<Note, R::Error> {
    Ok(Note {
        id: NoteId::trusted(row.text(0)?),
        job_id: job.clone(),
        errand: Errand::parse(&row.text(1)?).unwrap_or(Errand::Message),
        message: parts_from(&serde_json::from_str(&row.text(2)?).unwrap_or_default()),
        by: row.text(3)?,
        at: row.time(4)?,
        delivered: row.flag(5)?,
    })
}
