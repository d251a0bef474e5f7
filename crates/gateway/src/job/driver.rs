//! Port: one kind of agent, and how to speak with it.
//!
//! A driver turns an agent's own protocol into [`AgentEvent`]s and our wishes into its messages. It keeps
//! no state of a job: what must survive a crash is in the events, and whoever follows them writes it down
//! before acting on the next. Every event carries the line that it was read from, so that nothing an agent
//! said is lost, and what a driver does not know is kept as it came.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::effort::Effort;
use super::guidance::Guidance;
use crate::audit::Pending;
use crate::clock::Timestamp;
use crate::policy::effective::{Mode, SandboxMode};
use serde_json::Value;

pub use super::sink::{EventSink, EventSource, Heard, NobodyListens};

/// Port: one kind of agent.
pub trait AgentDriver: Send + Sync + 'static {
    /// As in `agents[].driver`: `codex-app-server`, `codex-exec`, `claude-stream`, `acp`, `jsonl`.
    fn name(&self) -> &'static str;

    /// Whether [`Terms::guidance`] reaches the agent. Where it does not, a task that brings some is refused.
    fn takes_guidance(&self) -> bool {
        false
    }

    /// When the agent hears a further message.
    fn hearing(&self) -> Hearing;

    /// Whether the agent is there, and what it can do.
    fn probe(&self) -> Pending<Result<Probed, DriverError>>;

    /// Begins a conversation with its first turn.
    fn start(&self, start: Start, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>>;

    /// Takes up a conversation that this or another process of ours began: attaches to it where the agent
    /// still runs, else starts the agent again on what it remembers.
    fn resume(&self, resume: Resume, events: EventSink) -> Pending<Result<Arc<dyn Conversation>, DriverError>>;

    /// Whether a process outlived whoever looked after it, so that a conversation in it is attached to.
    fn outlives(&self, _process: &ProcessMark) -> bool {
        false
    }

    /// Ends what a job that nobody looks after any more left running: the process as it was recorded, if it
    /// is still the same and no other job's, and all that carries the job's mark.
    fn reap(&self, job_id: String, process: Option<ProcessMark>) -> Pending<()>;
}

/// One conversation with an agent. Dropping it neither ends the agent nor its turn.
pub trait Conversation: Send + Sync + 'static {
    /// A further message: the next turn, or a word into the running one of an agent that [hears](Hearing) it there.
    fn send(&self, message: Vec<Input>) -> Pending<Result<(), DriverError>>;

    /// Whether a turn runs, of an agent that [always](Hearing::Always) hears: a word that just missed the end of a turn has
    /// begun the next.
    fn is_busy(&self) -> bool {
        false
    }

    /// Answers what [`AgentEvent::ApprovalRequested`] asked. An answer to a question that is no longer open
    /// is not an error.
    fn answer(&self, question: &str, answer: AgentAnswer) -> Pending<Result<(), DriverError>>;

    /// Ends the running turn and everything that it started. The conversation can go on afterwards.
    fn interrupt(&self) -> Pending<Result<(), DriverError>>;

    /// Ends the conversation: by its protocol first, then by signals, and its whole process tree. Others
    /// that share the agent's process go on.
    fn stop(&self) -> Pending<()>;
}

/// When an agent hears a further message. One that it would not hear yet waits where it is kept, not with the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hearing {
    /// Also in the middle of a turn.
    Always,
    /// Once its turn has ended.
    BetweenTurns,
    /// Once its turn has ended, by another process: each has one turn, and ends with it.
    ByAnotherProcess,
}

/// What a conversation begins with.
#[derive(Clone, Debug)]
pub struct Start {
    pub prompt: Vec<Input>,
    pub terms: Terms,
}

/// A conversation to take up again.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The agent's own id of it.
    pub conversation_id: String,
    /// Where the agent keeps it, if it said so.
    pub rollout: Option<PathBuf>,
    /// The process that it ran in, as it was recorded.
    pub process: Option<ProcessMark>,
    pub taking: Taking,
    pub words: Words,
    /// What the job was asked, for an agent that was lost before it had kept anything.
    pub asked: Vec<Input>,
    /// What it used so far, for an agent that tells only of a turn.
    pub used: Usage,
    pub terms: Terms,
}

/// By which process a conversation may be taken up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taking {
    /// By the one that it ran in, or by another.
    Anyhow,
    /// Only by the one that it ran in, which keeps the way back that it was given; another would have none.
    WhereItRuns,
}

/// What a conversation that is taken up is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Words {
    /// The next turn, which begins with this.
    Next(Vec<Input>),
    /// Said only where the turn that was under way runs no more: to go on with it.
    IfCutOff(Vec<Input>),
}

/// Under which a conversation runs.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What marks every process of our job: its id, with the node's name where there are several.
    pub job_id: String,
    /// Who started it. An agent that serves many jobs in one process is shared by jobs of one caller,
    /// directory, sandbox and environment only.
    pub caller: String,
    pub cwd: PathBuf,
    pub model: Option<String>,
    /// How hard it thinks; its own choice where nobody says.
    pub effort: Option<Effort>,
    pub mode: Mode,
    pub sandbox: SandboxMode,
    /// Whether nothing in its directory can be written, by the kernel's word and not by its own.
    pub keeps_still: bool,
    /// What the agent's definition and its run grant; the driver adds where it is, what marks it, and the
    /// endpoint. Nothing else reaches it.
    pub environment: BTreeMap<String, String>,
    /// The endpoint through which the agent's own tool calls come back to us. It is the job's alone, so it
    /// is told to the conversation where a process serves several.
    pub endpoint: Option<Endpoint>,
    /// What the caller says beside the prompt, to a driver that takes it.
    pub guidance: Guidance,
}

/// Countersign as the agent's MCP server.
#[derive(Clone)]
pub struct Endpoint {
    pub url: String,
    pub token: String,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    Text(String),
    Image { url: String },
}

/// What a probe found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probed {
    pub version: String,
    /// Whether questions of the agent reach us.
    pub asks: bool,
    /// Whether a conversation can be taken up again.
    pub resumes: bool,
    /// Whether it is a version that was tried; others are used with a warning.
    pub known: bool,
}

/// A process as it can be told from any other, also from a later one with the same number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessMark {
    pub pid: u32,
    /// In clock ticks since the machine started, as `/proc` says.
    pub started: u64,
    /// Where it is listened to, for an agent that outlives us.
    pub socket: Option<PathBuf>,
}

/// Something that an agent said or that happened to it, with the line that said so.
#[derive(Clone, PartialEq, Debug)]
pub struct AgentEvent {
    pub kind: AgentEventKind,
    /// As the agent wrote it; null for what only we noticed.
    pub raw: Value,
}

#[derive(Clone, PartialEq, Debug)]
pub enum AgentEventKind {
    /// A process runs for the conversation. Recorded before anything is sent to it.
    Spawned(ProcessMark),
    /// The conversation has its id.
    Started {
        conversation_id: String,
        rollout: Option<PathBuf>,
        model: Option<String>,
    },
    TurnStarted {
        turn_id: Option<String>,
    },
    /// A piece of a message that is still being written.
    TextDelta(String),
    /// A whole message of the agent.
    Message(String),
    /// Something that it does: a command, an edit, a tool call.
    Item(Item),
    /// The files as they differ by now, as a unified diff.
    Diff(String),
    ApprovalRequested(AgentQuestion),
    /// The question with this id needs no answer any more.
    ApprovalWithdrawn(String),
    /// Totals of the conversation so far.
    Usage(Usage),
    /// It tries again by itself.
    Retrying {
        message: String,
    },
    /// It may not go on before then; unknown when is none.
    LimitReached {
        resets_at: Option<Timestamp>,
        message: String,
    },
    Warning(String),
    TurnEnded(TurnEnd),
    /// Its process is gone.
    Exited {
        status: Option<i32>,
        signal: Option<i32>,
    },
    /// Nothing that this driver knows.
    Unknown,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    pub id: String,
    pub kind: ItemKind,
    pub phase: ItemPhase,
    /// The command, the files, or the tool, in a line.
    pub title: String,
    pub detail: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemKind {
    Command,
    Edit,
    Tool,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemPhase {
    Started,
    Updated,
    Completed,
    Failed,
    Declined,
}

/// The agent asks before it acts.
#[derive(Clone, PartialEq, Debug)]
pub struct AgentQuestion {
    /// The driver's id of it, the same when the agent asks again after a reconnect.
    pub id: String,
    pub about: QuestionAbout,
    pub reason: Option<String>,
    /// Whether it asks for more than its confinement gives. An agent that asks before every act asks for
    /// leave; one that is refused by its own sandbox, or wants out of it, asks for more.
    pub wants_more: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub enum QuestionAbout {
    Command {
        command: String,
        cwd: Option<PathBuf>,
    },
    /// `grant_root`: it asks for more than these files. Shown, never granted silently.
    Patch {
        changes: Vec<FileChange>,
        grant_root: bool,
    },
    /// Any other tool of the agent.
    Tool {
        name: String,
        input: Value,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileChange {
    pub path: String,
    pub kind: FileChangeKind,
    /// Whole, as the agent gave it; whoever shows it cuts it.
    pub diff: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileChangeKind {
    Create,
    Modify,
    Delete,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentAnswer {
    Allow,
    Deny { reason: String },
}

/// Totals of a conversation; an agent that tells only of a turn is added up by its driver.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Usage {
    pub model: Option<String>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    pub cost_usd: Option<f64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TurnEnd {
    Completed {
        result: Option<String>,
    },
    Interrupted,
    Failed {
        message: String,
        retryable: bool,
    },
    /// Its process was gone in the middle of it.
    Crashed {
        message: String,
        status: Option<i32>,
        signal: Option<i32>,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DriverError {
    /// With the command that installs it.
    #[error("{agent} is not installed; install it with `{install}`")]
    Missing { agent: String, install: String },
    #[error("{agent} {version} cannot be used: {reason}")]
    Unusable {
        agent: String,
        version: String,
        reason: String,
    },
    /// The agent does not offer this.
    #[error("{0}")]
    Unsupported(String),
    /// It knows no such conversation, or another is writing to it.
    #[error("the conversation cannot be taken up: {0}")]
    Lost(String),
    #[error("the agent did not answer within {0:?}")]
    Silent(Duration),
    #[error("the agent said something that cannot be used: {0}")]
    Protocol(String),
    #[error("the agent's process cannot be used: {0}")]
    Process(String),
}
