//! Port: jobs as a store keeps them. They change through the record only, with their events, each change
//! over the version that it was made from.

use std::path::PathBuf;

use super::driver::{Input, ProcessMark, Usage};
use super::event::{JobEvent, StoredEvent};
use super::lifecycle::{JobStatus, words};
use super::session::JobSession;
use super::state::Job;
use crate::audit::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::ids::{ConversationId, CredentialId, EventId, JobId, JobSessionId, NoteId};

/// Port: jobs, their sessions and what is on its way to them.
pub trait Jobs: Send + Sync + 'static {
    /// What this process is called as the holder of a job.
    fn holder(&self) -> String;

    /// What the processes of a job are known by on this node. Another node may have had the job before, and nodes may
    /// share a machine: neither must take the other's processes for its own.
    fn mark(&self, job: &JobId) -> String;

    /// Where a job is looked after.
    fn place(&self, job: &JobId) -> Pending<Result<Place, RecordError>>;

    fn find(&self, id: &JobId) -> Pending<Result<Option<Job>, RecordError>>;

    /// The latest that are asked for; the newest last.
    fn list(&self, filter: JobFilter) -> Pending<Result<Vec<Job>, RecordError>>;

    /// How many jobs there are in each state that any is in.
    fn count(&self) -> Pending<Result<Vec<(JobStatus, usize)>, RecordError>>;

    /// How many jobs of a credential wait or run.
    fn open_of(&self, owner: &CredentialId) -> Pending<Result<usize, RecordError>>;

    /// Jobs that wait for their turn and may have it now; nobody holds them. The oldest of each owner come first, then the
    /// second of each, so that however many one has, everybody's are seen. One whose
    /// conversation an agent still serves for another job waits until that agent is gone: a conversation has
    /// one writer.
    fn waiting(&self, now: Timestamp, limit: usize) -> Pending<Result<Vec<Job>, RecordError>>;

    /// When the first job may have its turn that may not yet.
    fn next_wake(&self, now: Timestamp) -> Pending<Result<Option<Timestamp>, RecordError>>;

    /// Jobs that somebody held who is gone, or who gave no sign of life since.
    fn abandoned(&self, silent_since: Timestamp) -> Pending<Result<Vec<AbandonedJob>, RecordError>>;

    fn session(&self, id: &JobSessionId) -> Pending<Result<Option<JobSession>, RecordError>>;

    /// The session that an agent calls so.
    fn session_of(&self, conversation: &ConversationId) -> Pending<Result<Option<JobSession>, RecordError>>;

    /// A session's events behind a place, in order.
    fn events(
        &self,
        session: &JobSessionId,
        after: u64,
        limit: usize,
    ) -> Pending<Result<Vec<StoredEvent>, RecordError>>;

    /// The ids of a session's events, all of them, in order.
    fn event_ids(&self, session: &JobSessionId) -> Pending<Result<Vec<EventId>, RecordError>>;

    /// Sessions whose file lacks events that are kept.
    fn unfiled(&self, limit: usize) -> Pending<Result<Vec<JobSession>, RecordError>>;

    /// What is on its way to a job, oldest first.
    fn notes(&self, job: &JobId) -> Pending<Result<Vec<Note>, RecordError>>;

    /// Processes that run for jobs, as far as anybody knows.
    fn processes(&self) -> Pending<Result<Vec<AgentProcess>, RecordError>>;

    /// What a session used so far, all turns together.
    fn usage(&self, session: &JobSessionId) -> Pending<Result<Usage, RecordError>>;
}

/// Which jobs are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobFilter {
    /// Only this credential's; none for everybody's.
    pub owner: Option<CredentialId>,
    /// In any of these states; empty for all.
    pub statuses: Vec<JobStatus>,
    pub limit: usize,
}

/// Where a job is looked after, as seen from one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// By this very process.
    Here,
    /// On this node, which has its agent too; or nowhere, where there is but one node.
    ThisNode,
    /// What served it on this node serves nobody.
    OtherNode,
    Nowhere,
}

/// A job that nobody looks after any more.
#[derive(Clone, PartialEq, Debug)]
pub struct AbandonedJob {
    pub job: Job,
    /// When its holder last gave a sign of life.
    pub seen_at: Timestamp,
}

/// A job after a change, with all that changes with it; all of it, or nothing. A job does not complete
/// while a message is on its way to it.
#[derive(Clone, PartialEq, Debug)]
pub struct JobChange {
    pub job: Job,
    /// The version that it was made from; none for a new job. Refused over any other, and where another
    /// process holds the job.
    pub from: Option<u64>,
    pub hold: Hold,
    pub session: Option<JobSessionChange>,
    pub events: Vec<JobEvent>,
    /// What was used since the last time.
    pub usage: Option<Usage>,
    /// A process that began for it.
    pub process: Option<ProcessMark>,
    /// What has been handed over.
    pub delivered: Vec<NoteId>,
}

impl JobChange {
    pub fn new(job: Job) -> Self {
        Self::of(job, None)
    }

    pub fn over(from: u64, job: Job) -> Self {
        Self::of(job, Some(from))
    }

    fn of(job: Job, from: Option<u64>) -> Self {
        Self {
            job,
            from,
            hold: Hold::Keep,
            session: None,
            events: Vec::new(),
            usage: None,
            process: None,
            delivered: Vec::new(),
        }
    }
}

/// What a change does to who looks after a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hold {
    /// This process does, or nobody, as before.
    Keep,
    /// Nobody does, not even another part of this process, and so it stays.
    Nobody,
    /// From now on this process does; it was free. Refused while so many are looked after, by whichever
    /// process of the state directory.
    Take {
        places: usize,
    },
    /// Nobody does any more; another did, who is gone or gave no sign of life since.
    Free {
        silent_since: Timestamp,
    },
    Release,
}

/// A session after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSessionChange {
    pub session: JobSession,
    /// As in [`JobChange`].
    pub from: Option<u64>,
}

/// A process of an agent that is gone, or serves a session no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoneProcess {
    pub mark: ProcessMark,
    pub session: JobSessionId,
}

/// A process that runs for a job, as it was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentProcess {
    pub mark: ProcessMark,
    pub job_id: JobId,
    pub session_id: JobSessionId,
    pub agent: String,
    pub created_at: Timestamp,
}

words! {
    /// What a note wants.
    Errand {
        Message "message",
        Interrupt "interrupt",
    }
}

/// Something on its way to a job, from whichever process it was said in.
#[derive(Clone, PartialEq, Debug)]
pub struct Note {
    pub id: NoteId,
    pub job_id: JobId,
    pub errand: Errand,
    pub message: Vec<Input>,
    /// Who said it.
    pub by: String,
    pub at: Timestamp,
    /// Whether it was handed over before; told again only if its supervisor died with it.
    pub delivered: bool,
}

/// How many messages wait to be said.
pub fn waiting_messages(notes: &[Note]) -> usize {
    let waits = |note: &&Note| !note.delivered && note.errand == Errand::Message;
    notes.iter().filter(waits).count()
}

/// What is said of so many messages that a job which ended never came to.
pub fn unsent(messages: usize) -> Option<String> {
    match messages {
        0 => None,
        1 => Some("1 message that waited was not sent".to_owned()),
        count => Some(format!("{count} messages that waited were not sent")),
    }
}

/// A sign of life of whoever looks after a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    pub job: JobId,
    pub at: Timestamp,
}

/// How far a session's file tells what is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filed {
    pub session: JobSessionId,
    pub seq: u64,
}

/// Parts of a message, as they are kept.
pub fn parts_json(parts: &[Input]) -> serde_json::Value {
    let part = |part: &Input| match part {
        Input::Text(text) => serde_json::json!({"type": "text", "text": text}),
        Input::Image { url } => serde_json::json!({"type": "image", "imageUrl": url}),
    };
    parts.iter().map(part).collect()
}

/// Parts out of what a store kept; what cannot be read is left out.
pub fn parts_from(kept: &serde_json::Value) -> Vec<Input> {
    let part = |part: &serde_json::Value| match part["type"].as_str()? {
        "text" => Some(Input::Text(part["text"].as_str()?.to_owned())),
        "image" => Some(Input::Image {
            url: part["imageUrl"].as_str()?.to_owned(),
        }),
        _ => None,
    };
    kept.as_array().into_iter().flatten().filter_map(part).collect()
}

/// A process as a store keeps it.
pub fn mark(pid: u32, started: u64, socket: Option<String>) -> ProcessMark {
    ProcessMark {
        pid,
        started,
        socket: socket.map(PathBuf::from),
    }
}
