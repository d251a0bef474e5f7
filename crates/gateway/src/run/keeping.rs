//! Port: runs as a store keeps them. They change through the record only, with their events, each change
//! over the version that it was made from.

use super::lifecycle::RunStatus;
use super::session::AgentSession;
use super::state::Run;
use crate::audit::{Pending, RecordError};
use crate::ids::{JobId, RunId};
use crate::job::lifecycle::words;

/// Port: runs and what they are linked with.
pub trait Runs: Send + Sync + 'static {
    fn find_run(&self, id: &RunId) -> Pending<Result<Option<Run>, RecordError>>;

    /// The latest that are asked for; the newest first.
    fn list_runs(&self, filter: RunFilter) -> Pending<Result<Vec<Run>, RecordError>>;

    /// Runs whose turn it is, oldest first: the first that waits of each issue of which none is under way.
    fn runs_due(&self, limit: usize) -> Pending<Result<Vec<Run>, RecordError>>;

    /// Jobs that go on though their run has ended, each with its run.
    fn jobs_left(&self, limit: usize) -> Pending<Result<Vec<(JobId, RunId)>, RecordError>>;

    /// What is kept of the agent that does a run's work.
    fn agent_session(&self, run: &RunId) -> Pending<Result<Option<AgentSession>, RecordError>>;

    /// What a thing is linked with, from either end; the oldest first.
    fn links_of(&self, end: LinkEnd) -> Pending<Result<Vec<Link>, RecordError>>;
}

/// Which runs are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunFilter {
    pub repository: Option<String>,
    pub issue_number: Option<u64>,
    pub pull_request_number: Option<u64>,
    /// In any of these states; empty for all.
    pub statuses: Vec<RunStatus>,
    /// How many of the newest are left out.
    pub offset: usize,
    pub limit: usize,
}

/// A run after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct RunChange {
    pub run: Run,
    /// The version that it was made from; none for a new run, which is refused where one with the same label
    /// waits for the same issue already. A run does not start while another of its issue is under way.
    pub from: Option<u64>,
}

impl RunChange {
    pub fn new(run: Run) -> Self {
        Self { run, from: None }
    }

    pub fn over(from: u64, run: Run) -> Self {
        Self { run, from: Some(from) }
    }
}

/// What a run made waits for the owner's review, or no longer does. The run itself has ended, so that this is told of
/// its agent's session, which a revise goes on from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReviewChange {
    pub run_id: RunId,
    pub waits: bool,
    pub now: crate::clock::Timestamp,
}

/// The branch that a run's pull request comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeadChange {
    pub run_id: RunId,
    pub branch: String,
}

/// One end of a link.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LinkEnd {
    pub kind: LinkKind,
    /// `owner/name#12` for an issue or a pull request, else its id or path.
    pub id: String,
}

words! {
    /// What is linked.
    LinkKind {
        Issue "issue",
        PullRequest "pr",
        Run "run",
        Session "session",
        Document "doc",
        Decision "adr",
    }
}

words! {
    /// How.
    LinkType {
        References "references",
        Implements "implements",
        Supersedes "supersedes",
    }
}

/// A row of S4's `links`; there is one of a kind between two ends.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    pub source: LinkEnd,
    pub target: LinkEnd,
    pub link_type: LinkType,
    pub metadata: serde_json::Map<String, serde_json::Value>,
    pub created_at: crate::clock::Timestamp,
}
