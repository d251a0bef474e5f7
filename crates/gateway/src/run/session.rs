//! S4's agent session: what the store keeps of the agent that does a run's work. It is written with every
//! change of the run's job, by the store itself, so that it is never behind.

use crate::clock::Timestamp;
use crate::ids::{CorrelationId, RunId};

/// A row of `agent_sessions`.
#[derive(Clone, PartialEq, Debug)]
pub struct AgentSession {
    pub run_id: RunId,
    pub correlation_id: CorrelationId,
    pub project: Option<String>,
    pub repository: Option<String>,
    pub issue_number: Option<u64>,
    pub pull_request_number: Option<u64>,
    pub trigger_kind: String,
    pub agent_key: String,
    pub model: Option<String>,
    /// How hard it was told to think.
    pub reasoning_effort: Option<String>,
    /// The branch that it works on: its pull request's, else the one that is checked out where it works.
    pub branch_name: Option<String>,
    pub pull_request_url: Option<String>,
    /// What its prompt is for, `work`, `revise` or `discussion`, and whose words it is in, `built-in` or `configured`.
    pub template_kind: Option<String>,
    pub template_source: Option<String>,
    /// The language of those words, where they are ours.
    pub template_locale: Option<String>,
    /// `running`, `succeeded`, `failed`, `cancelled` or `failed_precondition`.
    pub status: String,
    /// The agent's own id of the conversation.
    pub session_id: Option<String>,
    /// The job and its conversation's settings, as JSON.
    pub session_json: String,
    /// The agent's own file of the conversation, where it has one.
    pub rollout: Option<String>,
    /// How many events the snapshot covers, a digest over all of them in order, and when it was taken.
    pub snapshot_version: u64,
    pub snapshot_checksum: Option<String>,
    pub snapshot_updated_at: Option<Timestamp>,
    pub wait_state: Option<String>,
    /// Whether its time stands still.
    pub timeout_guard_disabled: bool,
    pub last_heartbeat_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
