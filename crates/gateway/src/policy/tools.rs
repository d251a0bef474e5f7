//! Tools by policy: what all layers say of a tool for one caller, and what that means for an act.
//!
//! Everything that needs patterns is joined when the policy is loaded, per tool and per key. A call
//! looks up at most seven outcomes by name and joins them; a caller outside of runs needs one.

mod layers;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::actor::{Context, RunContext, Target};
use super::approvers::{self, ApprovalMode};
use super::decide::Rule;
use super::effective::ToolApproval;
use super::matrix::{self, KnownTool};
use super::merge::{Act, Demand, Entry, LayerKind, Level, Outcome, Part, Within, glob};
use crate::session::Role;
use crate::tools::declared::{DeclaredTools, Executor};
use crate::tools::exec::request::CommandTool;

pub use layers::{Hand, LabelPolicy, Layers, MatrixEntry, ProjectPolicy};
use layers::{in_section, offered_to_talks, said};

/// One use of a tool.
#[derive(Clone, Copy, Debug)]
pub struct ToolUse<'a> {
    pub tool: &'a str,
    /// The value of its argument `action`, where it has one.
    pub action: Option<&'a str>,
    pub target: Target<'a>,
}

impl<'a> ToolUse<'a> {
    /// A call that is all one act, aimed at nothing but its run.
    pub fn of(tool: &'a str) -> Self {
        Self {
            tool,
            action: None,
            target: Target::default(),
        }
    }
}

/// What the layers say of one use.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ruling {
    Allow,
    Ask(Rule),
    /// Denied, and the caller knows that there is such a tool.
    Deny(Rule),
    /// For this caller there is no such tool.
    Absent(Rule),
}

type Outcomes = HashMap<String, Outcome>;

/// The layers, made ready.
#[derive(Clone, Debug)]
pub struct ToolPolicies {
    layers: Layers,
    // INVARIANT: what follows is made from `layers` by `new` and holds an outcome for every known tool.
    known: HashMap<String, KnownTool>,
    everywhere: Outcomes,
    /// The same, less what only runs are offered.
    outside_runs: Outcomes,
    run_catalog: Outcomes,
    job_catalog: Outcomes,
    talk_catalog: Outcomes,
    agents: HashMap<String, Outcomes>,
    labels: HashMap<String, Outcomes>,
    projects: HashMap<String, Outcomes>,
    project_of: HashMap<String, String>,
    declared: Arc<DeclaredTools>,
}

impl ToolPolicies {
    pub fn new(layers: Layers) -> Self {
        let names: Vec<&str> = layers.tools.iter().map(|tool| tool.name.as_str()).collect();
        let per_tool = |outcome: &dyn Fn(&str) -> Outcome| -> Outcomes {
            names.iter().map(|name| ((*name).to_owned(), outcome(name))).collect()
        };
        let policy = |section: &str, key: &str| format!("policies.{section}.{key}");
        let agents = layers.agents.iter().map(|(key, entries)| {
            let place = policy("agents", key);
            let said = per_tool(&|tool| said(LayerKind::Agent, entries, tool, &in_section(&place)));
            (key.clone(), said)
        });
        let labels = layers.labels.iter().map(|(key, label)| {
            let place = policy("labels", key);
            let said = per_tool(&|tool| said(LayerKind::Label, &label.entries, tool, &in_section(&place)));
            (key.clone(), said)
        });
        let projects = layers.projects.iter().map(|(key, project)| {
            let place = policy("projects", key);
            let bounds = project.bounds(&place);
            let said = per_tool(&|tool| {
                let mut outcome = said(LayerKind::Project, &project.entries, tool, &in_section(&place));
                bounds.iter().for_each(|bound| outcome.join(bound));
                outcome
            });
            (key.clone(), said)
        });
        let repositories = |(key, project): (&String, &ProjectPolicy)| {
            // To GitHub large and small letters are the same.
            let pair = |name: &String| (name.to_ascii_lowercase(), key.clone());
            project.repositories.iter().map(pair).collect::<Vec<_>>()
        };
        Self {
            known: layers
                .tools
                .iter()
                .map(|tool| (tool.name.clone(), tool.clone()))
                .collect(),
            everywhere: per_tool(&|tool| layers.everywhere(tool)),
            outside_runs: per_tool(&|tool| layers.outside_runs(tool)),
            run_catalog: per_tool(&|tool| layers.offered_to_runs(tool)),
            job_catalog: per_tool(&|tool| layers.offered_to_jobs(tool)),
            talk_catalog: per_tool(&offered_to_talks),
            agents: agents.collect(),
            labels: labels.collect(),
            projects: projects.collect(),
            project_of: layers.projects.iter().flat_map(repositories).collect(),
            declared: Arc::default(),
            layers,
        }
    }

    /// The layers with the tools that files declare.
    pub fn with_declared(mut layers: Layers, declared: DeclaredTools) -> Self {
        let (tools, entries) = declared.layered();
        layers.tools.extend(tools);
        layers.defaults.extend(entries);
        Self {
            declared: Arc::new(declared),
            ..Self::new(layers)
        }
    }

    /// The tools that files declare.
    pub fn declared(&self) -> &Arc<DeclaredTools> {
        &self.declared
    }

    pub(crate) fn set_declared(&mut self, declared: DeclaredTools) {
        self.declared = Arc::new(declared);
    }

    /// The tool of this name, where calling it runs a program.
    pub(crate) fn command_tool(&self, name: &str) -> Option<CommandTool> {
        let built_in = CommandTool::ALL.into_iter().find(|tool| tool.name() == name);
        built_in.or_else(|| match self.declared.find(name) {
            Some(tool) if matches!(tool.executor, Executor::Argv(_)) => Some(CommandTool::Declared(tool.clone())),
            Some(_) | None => None,
        })
    }

    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// A caller as policy sees it. What its run does not say is taken from what the policies say of
    /// its label, repository and project.
    pub fn context<'a>(&'a self, role: Role, run: Option<&'a RunContext>) -> Context<'a> {
        let Some(run) = run else {
            return Context::of_role(role);
        };
        let label = run.label.as_deref();
        let of_label = label.and_then(|label| self.layers.labels.get(label));
        let project_of = |repository: &String| {
            let project = self.project_of.get(&repository.to_ascii_lowercase());
            project.map(String::as_str)
        };
        let project = run
            .project
            .as_deref()
            .or_else(|| run.repository.as_ref().and_then(project_of));
        let of_project = project.and_then(|project| self.layers.projects.get(project));
        Context {
            role,
            agent_key: run
                .agent_key
                .as_deref()
                .or_else(|| of_label.and_then(|label| label.agent_key.as_deref())),
            label,
            project,
            other_labels: Some(&run.labels),
            namespace: run
                .namespace
                .as_deref()
                .or_else(|| of_project.and_then(|project| project.namespace.as_deref())),
            cluster: run.cluster.as_deref(),
            repository: run.repository.as_deref(),
            runtime: run.runtime,
            in_run: run.is_run || run.run_id.is_some() || label.is_some(),
            in_job: false,
        }
    }

    /// What all layers that this caller's keys select say of a tool; nothing for a tool that is not
    /// known.
    pub fn outcome(&self, context: &Context<'_>, tool: &str) -> Option<Cow<'_, Outcome>> {
        let base = match context.in_run {
            true => self.everywhere.get(tool)?,
            false => self.outside_runs.get(tool)?,
        };
        let more = [
            context.in_run.then(|| self.run_catalog.get(tool)).flatten(),
            context.in_job.then(|| self.job_catalog.get(tool)).flatten(),
            context.is_talk().then(|| self.talk_catalog.get(tool)).flatten(),
            find(&self.agents, context.agent_key, tool),
            find(&self.labels, context.label, tool),
            find(&self.projects, context.project, tool),
        ];
        let mut outcome = Cow::Borrowed(base);
        for layer in more.into_iter().flatten() {
            outcome.to_mut().join(layer);
        }
        Some(outcome)
    }

    /// What the layers say of one use. Absence denies.
    pub fn ruling(&self, context: &Context<'_>, used: &ToolUse<'_>) -> Ruling {
        let (Some(outcome), Some(known)) = (self.outcome(context, used.tool), self.known.get(used.tool)) else {
            return Ruling::Absent(unknown(used.tool));
        };
        if let Some(absent) = hidden(&outcome, known, context) {
            return Ruling::Absent(absent);
        }
        let level = outcome.level(self.act(used));
        // A strictness that nobody stands for would be a bug; it must not become a permission.
        let ruled = |reason: String| match level.decided_by() {
            Some(by) => rule(by, reason),
            None => Rule {
                reason,
                ..unknown(used.tool)
            },
        };
        match (level.approval, outcome.unmet(context, &used.target)) {
            (ToolApproval::Deny, _) => {
                let reason = format!("policy denies the tool `{}`", used.tool);
                Ruling::Deny(ruled(match used.action {
                    Some(action) => format!("{reason} its action `{action}`"),
                    None => reason,
                }))
            }
            (ToolApproval::Required | ToolApproval::None, Some(demand)) => {
                Ruling::Deny(rule(&demand.by, demand.refusal(used.tool)))
            }
            (ToolApproval::Required, None) => Ruling::Ask(ruled(format!("the tool `{}` needs approval", used.tool))),
            (ToolApproval::None, None) => Ruling::Allow,
        }
    }

    /// Who may answer for a tool: the stricter of what is built in and what is configured. None where whoever
    /// may decide at all does.
    pub fn approval_mode(&self, context: &Context<'_>, tool: &str) -> Option<ApprovalMode> {
        let configured = self.outcome(context, tool).is_some_and(|outcome| outcome.is_owners());
        let configured = configured.then_some(ApprovalMode::Owner);
        approvers::built_in(tool, context).max(configured)
    }

    /// The names of all tools that policy knows of, also of those that nobody is offered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.layers.tools.iter().map(|tool| tool.name.as_str())
    }

    /// Configured entries that fit no tool, so that they decide nothing.
    pub fn idle(&self) -> impl Iterator<Item = &Entry> {
        let layers = &self.layers;
        let matrix = layers.matrix.iter().map(|entry| &entry.entry);
        let agents = layers.agents.values().flatten();
        let labels = layers.labels.values().flat_map(|label| &label.entries);
        let projects = layers.projects.values().flat_map(|project| &project.entries);
        let fits_none = |entry: &&Entry| !self.names().any(|name| glob(&entry.pattern, name));
        matrix.chain(agents).chain(labels).chain(projects).filter(fits_none)
    }

    pub fn knows(&self, tool: &str) -> bool {
        self.known.contains_key(tool)
    }

    /// What a use is to the world outside; of a tool that is not known, the worst.
    pub fn act(&self, used: &ToolUse<'_>) -> Act {
        self.known
            .get(used.tool)
            .map_or(Act::Write, |tool| tool.act(used.action))
    }

    /// Whether a call to this tool gets as far as being judged. Where not, it is answered as if there
    /// were no such tool.
    pub fn sees(&self, context: &Context<'_>, tool: &str) -> Result<(), Rule> {
        match (self.outcome(context, tool), self.known.get(tool)) {
            (Some(outcome), Some(known)) => match hidden(&outcome, known, context) {
                Some(rule) => Err(rule),
                None => Ok(()),
            },
            _ => Err(unknown(tool)),
        }
    }

    /// Whether the tool is listed: the caller sees it, and not everything it does is denied.
    pub fn lists(&self, context: &Context<'_>, tool: &str) -> bool {
        match (self.outcome(context, tool), self.known.get(tool)) {
            (Some(outcome), Some(known)) => {
                hidden(&outcome, known, context).is_none() && denied(&outcome, known).is_none()
            }
            _ => false,
        }
    }
}

impl Demand {
    fn refusal(&self, tool: &str) -> String {
        let subject = self.subject.as_str();
        match &self.within {
            Within::Own => format!("the tool `{tool}` may act only upon the run's own {subject}"),
            Within::AnyOf(_) => format!(
                "the tool `{tool}` may act only for {subject} {}",
                self.within.described()
            ),
        }
    }
}

fn find<'o>(layers: &'o HashMap<String, Outcomes>, key: Option<&str>, tool: &str) -> Option<&'o Outcome> {
    layers.get(key?)?.get(tool)
}

/// Why this caller does not even see the tool: it is off, it is for others, or the policy of the
/// caller's run denies all of it. What `tools` denies to everybody is no secret.
fn hidden(outcome: &Outcome, known: &KnownTool, context: &Context<'_>) -> Option<Rule> {
    let name = &known.name;
    if let Some(by) = outcome.disabled_by() {
        return Some(rule(
            by,
            format!("the tool `{name}` is disabled, so callers do not find it"),
        ));
    }
    if let Some(demand) = outcome.unmet_by_actor(context) {
        return Some(rule(&demand.by, demand.refusal(name)));
    }
    let of_the_run = |level: &Level| {
        let by = level.decided_by()?;
        match by.layer {
            LayerKind::BuiltIn | LayerKind::Matrix => None,
            LayerKind::RunCatalog | LayerKind::Agent | LayerKind::Label | LayerKind::Project => {
                Some(rule(by, format!("policy denies the tool `{name}` to this run")))
            }
        }
    };
    denied(outcome, known).and_then(of_the_run)
}

/// The level that denies everything the tool does.
fn denied<'o>(outcome: &'o Outcome, known: &KnownTool) -> Option<&'o Level> {
    let is_denied = |act: Act| outcome.level(act).approval == ToolApproval::Deny;
    known.all_acts().all(is_denied).then(|| outcome.level(known.act))
}

fn unknown(tool: &str) -> Rule {
    Rule {
        name: "catalog".to_owned(),
        source: matrix::SOURCE.to_owned(),
        reason: format!("there is no tool `{tool}`"),
    }
}

fn rule(by: &Part, reason: String) -> Rule {
    Rule {
        name: by.rule.clone(),
        source: by.source.clone(),
        reason,
    }
}

#[cfg(test)]
pub(super) mod tests;
