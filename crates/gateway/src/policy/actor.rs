//! Who acts, and upon what: everything besides the request that a policy of an agent, a label or a
//! project looks at. All of it may be absent; what a policy demands and nobody names is not met.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::github::vocabulary::DISCUSSION;
use crate::ids::{CorrelationId, RunId};
use crate::run::lifecycle::Runtime;
use crate::session::Role;

/// The run a caller belongs to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RunContext {
    /// None where only its keys are known.
    pub run_id: Option<RunId>,
    /// Whether it is known to be a run, also where neither its id nor its label is.
    pub is_run: bool,
    pub correlation_id: Option<CorrelationId>,
    pub runtime: Option<Runtime>,
    pub issue_number: Option<u64>,
    pub pull_request_number: Option<u64>,
    pub agent_key: Option<String>,
    /// The `run:*` label that started it.
    pub label: Option<String>,
    pub project: Option<String>,
    /// The other labels of its issue.
    pub labels: BTreeSet<String>,
    pub namespace: Option<String>,
    pub cluster: Option<String>,
    pub repository: Option<String>,
}

/// A caller as policy sees it, completed from what the policies say of labels and projects; made by
/// [`super::tools::ToolPolicies::context`].
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub role: Role,
    pub agent_key: Option<&'a str>,
    pub label: Option<&'a str>,
    pub project: Option<&'a str>,
    pub(super) other_labels: Option<&'a BTreeSet<String>>,
    pub namespace: Option<&'a str>,
    pub cluster: Option<&'a str>,
    pub repository: Option<&'a str>,
    pub runtime: Option<Runtime>,
    /// Whether it belongs to a run, and not only to somebody whose keys are known.
    pub in_run: bool,
    /// Whether a job of ours calls, through its agent.
    pub in_job: bool,
}

/// What an act is aimed at, where its arguments say so.
#[derive(Clone, Copy, Default, Debug)]
pub struct Target<'a> {
    pub namespace: Option<&'a str>,
    pub cluster: Option<&'a str>,
    pub repository: Option<&'a str>,
}

impl<'a> Context<'a> {
    /// A caller that belongs to no run.
    pub fn of_role(role: Role) -> Self {
        Self {
            role,
            agent_key: None,
            label: None,
            project: None,
            other_labels: None,
            namespace: None,
            cluster: None,
            repository: None,
            runtime: None,
            in_run: false,
            in_job: false,
        }
    }

    /// The credential's role, and in a run the agent's key. An agent that is called like a role of
    /// credentials does not have it.
    pub(super) fn roles(&self) -> impl Iterator<Item = &'a str> {
        let is_ours = |key: &&str| Role::ALL.iter().any(|role| role.as_str() == *key);
        std::iter::once(self.role.as_str()).chain(self.agent_key.filter(|key| !is_ours(key)))
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = &'a str> {
        let others = self.other_labels.into_iter().flatten().map(String::as_str);
        self.label.into_iter().chain(others)
    }

    /// Whether it may only talk: its issue carries `mode:discussion`.
    pub fn is_talk(&self) -> bool {
        self.labels().any(|label| label.eq_ignore_ascii_case(DISCUSSION))
    }

    /// Whether anything but the role tells this caller from others.
    pub fn is_in_a_run(&self) -> bool {
        self.in_run || self.keys().next().is_some() || self.labels().next().is_some()
    }

    /// Whether its role alone says how it is judged.
    pub fn is_plain(&self) -> bool {
        !self.is_in_a_run() && !self.in_job
    }

    /// What, with the policy, leads to the same decision again.
    pub fn recorded(&self) -> Value {
        let mut keys = json!({"role": self.role.as_str()});
        for (name, key) in self.keys() {
            keys[name] = json!(key);
        }
        // A label says it by itself.
        if self.in_run && self.label.is_none() {
            keys["in_run"] = json!(true);
        }
        if self.in_job {
            keys["in_job"] = json!(true);
        }
        let labels: BTreeSet<&str> = self.labels().collect();
        if !labels.is_empty() {
            keys["labels"] = json!(labels);
        }
        keys
    }

    /// The keys by which policies are chosen.
    fn keys(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        [
            ("agent_key", self.agent_key),
            ("label", self.label),
            ("project", self.project),
            ("namespace", self.namespace),
            ("cluster", self.cluster),
            ("repository", self.repository),
        ]
        .into_iter()
        .filter_map(|(name, key)| Some((name, key?)))
    }
}

impl RunContext {
    /// The run whose keys were recorded.
    pub fn from_recorded(keys: &Value) -> Self {
        let text = |name: &str| keys[name].as_str().map(str::to_owned);
        let labels = keys["labels"].as_array().into_iter().flatten();
        Self {
            is_run: keys["in_run"] == json!(true),
            agent_key: text("agent_key"),
            label: text("label"),
            project: text("project"),
            labels: labels.filter_map(Value::as_str).map(str::to_owned).collect(),
            namespace: text("namespace"),
            cluster: text("cluster"),
            repository: text("repository"),
            ..Self::default()
        }
    }
}
