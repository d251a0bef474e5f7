//! The catalog and matrix that ship with the program, as data: which tools there can be, what their
//! acts are, which ask by default, and which a run is offered.
//!
//! Tools that are still to be written stand here already, so that they come with their question. A tool
//! that is not here, and that no file declares, does not exist.

use std::collections::BTreeSet;

use super::effective::ToolApproval;
use super::merge::{Act, Action, Entry, ToolPolicy};

/// Who the source of these entries is.
pub const SOURCE: &str = "built-in";

/// A tool there can be, and what its acts are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownTool {
    pub name: String,
    /// What a call is whose action is not among `acts`.
    pub act: Act,
    /// By the value of its argument `action`.
    pub acts: Vec<(String, Act)>,
}

impl KnownTool {
    pub fn act(&self, action: Option<&str>) -> Act {
        let known = |name: &str| self.acts.iter().find(|(known, _)| known == name).map(|(_, act)| *act);
        action.and_then(known).unwrap_or(self.act)
    }

    /// Everything it can do.
    pub fn all_acts(&self) -> impl Iterator<Item = Act> {
        std::iter::once(self.act).chain(self.acts.iter().map(|(_, act)| *act))
    }
}

/// Acts by the names of a tool's actions.
type Acts = &'static [(&'static str, Act)];

#[rustfmt::skip]
const TOOLS: &[(&str, Act, Acts)] = &[
    ("execute_command", Act::Write, &[]),
    ("execute_process", Act::Write, &[]),
    ("run_command", Act::Write, &[]),
    ("command_status", Act::Read, &[]),
    ("command_cancel", Act::Write, &[]),

    ("github_labels_list", Act::Read, &[]),
    ("github_labels_add", Act::Write, &[]),
    ("github_labels_remove", Act::Write, &[]),
    ("github_labels_transition", Act::Write, &[]),
    ("run_status_report", Act::Write, &[]),
    ("self_improve_runs_list", Act::Read, &[]),
    ("self_improve_run_lookup", Act::Read, &[]),
    ("self_improve_session_get", Act::Read, &[]),
    ("secret.sync.github_k8s", Act::Write, &[]),
    ("database.lifecycle", Act::Write, &[("create", Act::Write), ("delete", Act::Write), ("describe", Act::Read)]),
    ("owner.feedback.request", Act::Write, &[]),

    ("start-codex-task", Act::Write, &[]),
    ("start-task", Act::Write, &[]),
    ("codex", Act::Write, &[]),
    ("codex-reply", Act::Write, &[]),
    ("send-message", Act::Write, &[]),
    ("interrupt-task", Act::Write, &[]),
    ("job-status", Act::Read, &[]),
    ("list-jobs", Act::Read, &[]),
    ("job-logs", Act::Read, &[]),
    ("approval_prompt", Act::Write, &[]),
];

/// Label changes and reports go unasked: they pass through here to be recorded. What touches secrets
/// and databases asks, but for looking at a database.
#[rustfmt::skip]
const MATRIX: &[(&str, Default)] = &[
    ("github_labels_*", Default::Approval(ToolApproval::None)),
    ("run_status_report", Default::Approval(ToolApproval::None)),
    ("self_improve_*", Default::Approval(ToolApproval::None)),
    ("secret.sync.*", Default::Approval(ToolApproval::Required)),
    ("database.*", Default::Actions(&[Action::Read, Action::ApproveRequired])),
    ("owner.feedback.request", Default::Approval(ToolApproval::Required)),
];

enum Default {
    Approval(ToolApproval),
    Actions(&'static [Action]),
}

const SELF_IMPROVE: &[&str] = &["run:self-improve", "run:self-improve:*"];
const OPERATIONS: &[&str] = &["run:ops", "run:ops:*", "run:ai-repair", "run:ai-repair:*"];
const OPERATORS: &[&str] = &["sre", "dev"];

/// What a run that a label started is offered: commands, labels and reports always, the rest only to
/// some. An agent in such a run starts no other agents.
#[rustfmt::skip]
const RUN_CATALOG: &[(&str, &[&str], &[&str])] = &[
    ("self_improve_*", SELF_IMPROVE, &[]),
    ("secret.sync.*", OPERATIONS, OPERATORS),
    ("database.*", OPERATIONS, OPERATORS),
    ("owner.feedback.request", OPERATIONS, OPERATORS),
];
const NOT_IN_RUNS: &[&str] = &[
    "start-codex-task",
    "start-task",
    "codex",
    "codex-reply",
    "send-message",
    "interrupt-task",
    "job-status",
    "list-jobs",
    "job-logs",
];

/// What means something in a run only, and what only a run's agent may see of others.
const ONLY_IN_RUNS: &[&str] = &["run_status_report", "self_improve_*"];

/// All that a discussion is offered: to look, to say how far it is and to ask. Commands are for it too; they read only.
const IN_TALKS: &[&str] = &[
    "execute_command",
    "execute_process",
    "run_command",
    "command_status",
    "command_cancel",
    "github_labels_list",
    "run_status_report",
    "self_improve_runs_list",
    "self_improve_run_lookup",
    "self_improve_session_get",
    "owner.feedback.request",
    "approval_prompt",
];

/// What a discussion is not offered, whatever is configured: no tool changes anything then.
pub fn kept_from_talks(tool: &str) -> Option<Entry> {
    (!IN_TALKS.contains(&tool)).then(|| absent(tool))
}

/// The tools of this program.
pub fn tools() -> Vec<KnownTool> {
    let owned = |(name, act): &(&str, Act)| ((*name).to_owned(), *act);
    TOOLS
        .iter()
        .map(|(name, act, acts)| KnownTool {
            name: (*name).to_owned(),
            act: *act,
            acts: acts.iter().map(owned).collect(),
        })
        .collect()
}

/// What the matrix says where nobody configured it.
pub fn defaults() -> Vec<Entry> {
    let policy = |default: &Default| match default {
        Default::Approval(approval) => ToolPolicy {
            approval: Some(*approval),
            ..ToolPolicy::default()
        },
        Default::Actions(actions) => ToolPolicy {
            actions: Some(actions.iter().copied().collect()),
            ..ToolPolicy::default()
        },
    };
    MATRIX
        .iter()
        .map(|(pattern, default)| entry(pattern, policy(default)))
        .collect()
}

/// What a run is offered where nobody configured it.
pub fn run_catalog() -> Vec<Entry> {
    let some = |words: &[&str]| (!words.is_empty()).then(|| texts(words));
    let restricted = RUN_CATALOG.iter().map(|(pattern, labels, roles)| {
        let policy = ToolPolicy {
            labels: some(labels),
            roles: some(roles),
            ..ToolPolicy::default()
        };
        entry(pattern, policy)
    });
    restricted.chain(NOT_IN_RUNS.iter().map(|name| absent(name))).collect()
}

/// What whoever is in no run is not offered, where nobody configured it.
pub fn outside_catalog() -> Vec<Entry> {
    ONLY_IN_RUNS.iter().map(|pattern| absent(pattern)).collect()
}

fn absent(pattern: &str) -> Entry {
    let policy = ToolPolicy {
        enabled: Some(false),
        ..ToolPolicy::default()
    };
    entry(pattern, policy)
}

fn texts(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn entry(pattern: &str, policy: ToolPolicy) -> Entry {
    Entry {
        pattern: pattern.to_owned(),
        policy,
        source: SOURCE.to_owned(),
    }
}
