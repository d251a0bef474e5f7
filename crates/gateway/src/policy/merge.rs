//! What several layers together say of one tool: the strictest of everything.
//!
//! A *layer* is what one source of policy says (the built-in matrix, `tools`, the policy of an agent, a
//! label, a project); an [`Entry`] of it names tools by name or glob. Each entry is turned into an
//! [`Outcome`] and outcomes are joined. Joining is commutative, associative and idempotent, and never
//! loosens: so it does not matter in which order sources are read, and parts of it can be joined ahead
//! of time. Every part of an outcome carries the rule and source that said it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::actor::{Context, Target};
use super::approvers::ApprovalMode;
use super::effective::ToolApproval;

words! {
    /// What an entry lets a tool do.
    Action {
        Read "read",
        Write "write",
        /// Only after a person approved it.
        ApproveRequired "approve-required",
    }
}

words! {
    /// What an act is to the world outside.
    Act {
        Read "read",
        Write "write",
    }
}

words! {
    /// What a demand looks at.
    Subject {
        Role "role",
        Label "label",
        Namespace "namespace",
        Cluster "cluster",
        Repository "repository",
    }
}

words! {
    /// Where an entry was found, in the order in which they are named.
    LayerKind {
        /// The matrix that ships with the program.
        BuiltIn "built-in",
        /// What the program offers to a run unless configured otherwise.
        RunCatalog "run-catalog",
        /// The configuration's `tools`.
        Matrix "tools",
        Agent "agents",
        Label "labels",
        Project "projects",
    }
}

/// What one entry says of the tools it names. What is absent is not restricted by this entry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ToolPolicy {
    pub approval: Option<ToolApproval>,
    pub enabled: Option<bool>,
    pub actions: Option<BTreeSet<Action>>,
    pub scope: Scope,
    pub roles: Option<BTreeSet<String>>,
    pub labels: Option<BTreeSet<String>>,
    pub approvers: Option<ApprovalMode>,
}

/// Where a tool may act.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Scope {
    pub namespace: Option<Within>,
    pub cluster: Option<Within>,
    pub repository: Option<Within>,
}

/// A set of names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Within {
    /// The run's own.
    Own,
    /// Any of these; `*` stands for any text.
    AnyOf(BTreeSet<String>),
}

/// One entry of a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// A tool's name, or a glob with `*`.
    pub pattern: String,
    pub policy: ToolPolicy,
    /// `operator file …, line 3, column 5`.
    pub source: String,
}

/// A rule that took part, and what it said.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    pub layer: LayerKind,
    pub rule: String,
    pub source: String,
    pub effect: String,
}

/// Something that must hold of the actor or of what is acted upon.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Demand {
    pub subject: Subject,
    pub within: Within,
    /// Whether an act that names no such thing fails the demand.
    pub absence: Absence,
    pub by: Part,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Absence {
    Denies,
    /// An act that touches no such thing is no matter of this demand.
    Passes,
}

/// A strictness, and those who said so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Level {
    pub approval: ToolApproval,
    // INVARIANT: empty only where the approval is `none`.
    by: BTreeSet<Part>,
}

/// What all layers say of one tool.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Who took the tool away.
    disabled: BTreeSet<Part>,
    /// Of every act.
    every: Level,
    read: Level,
    write: Level,
    demands: BTreeSet<Demand>,
    /// Who leaves the answer to the owner.
    owners: BTreeSet<Part>,
    took_part: BTreeSet<Part>,
}

/// Joins what layers say of one tool.
pub fn merge<'o>(outcomes: impl IntoIterator<Item = &'o Outcome>) -> Outcome {
    let mut joined = Outcome::default();
    for outcome in outcomes {
        joined.join(outcome);
    }
    joined
}

impl Default for Level {
    /// Where nobody says anything, nobody is stricter than `none`.
    fn default() -> Self {
        Self {
            approval: ToolApproval::None,
            by: BTreeSet::new(),
        }
    }
}

impl Level {
    fn of(approval: ToolApproval, by: &Part) -> Self {
        Self {
            approval,
            by: BTreeSet::from([by.clone()]),
        }
    }

    fn join(&mut self, other: &Self) {
        match other.approval.cmp(&self.approval) {
            std::cmp::Ordering::Greater => *self = other.clone(),
            std::cmp::Ordering::Equal => self.by.extend(other.by.iter().cloned()),
            std::cmp::Ordering::Less => {}
        }
    }

    /// The rule to name: of those that say the same, the first in the order of layers.
    pub fn decided_by(&self) -> Option<&Part> {
        self.by.first()
    }
}

impl Outcome {
    /// What one entry says.
    pub fn of(layer: LayerKind, rule: &str, entry: &Entry) -> Self {
        let policy = &entry.policy;
        let by = |effect: String| Part {
            layer,
            rule: rule.to_owned(),
            source: entry.source.clone(),
            effect,
        };
        let mut outcome = Self::default();
        if let Some(approval) = policy.approval {
            outcome.every = Level::of(approval, &by(format!("approval: {}", approval.as_str())));
        }
        if policy.enabled == Some(false) {
            outcome.disabled.insert(by("enabled: false".to_owned()));
        }
        if let Some(actions) = &policy.actions {
            let words: Vec<_> = actions.iter().map(|action| action.as_str()).collect();
            let by = by(format!("actions: {}", listed(&words)));
            outcome.read = Level::of(reading(actions), &by);
            outcome.write = Level::of(writing(actions), &by);
        }
        if policy.approvers == Some(ApprovalMode::Owner) {
            outcome.owners.insert(by("approvers: owner".to_owned()));
        }
        let scope = &policy.scope;
        let named = |names: &Option<BTreeSet<String>>| names.clone().map(Within::AnyOf);
        for (subject, within) in [
            (Subject::Namespace, scope.namespace.clone()),
            (Subject::Cluster, scope.cluster.clone()),
            (Subject::Repository, scope.repository.clone()),
            (Subject::Role, named(&policy.roles)),
            (Subject::Label, named(&policy.labels)),
        ] {
            if let Some(within) = within {
                let by = by(format!("{}: {}", subject.as_str(), within.described()));
                outcome.demands.insert(Demand {
                    subject,
                    within,
                    absence: Absence::Denies,
                    by,
                });
            }
        }
        outcome.gather_parts();
        outcome
    }

    /// A demand that nobody's entry makes, but a project's own fields.
    pub fn demanding(demand: Demand) -> Self {
        let mut outcome = Self::default();
        outcome.demands.insert(demand);
        outcome.gather_parts();
        outcome
    }

    pub fn join(&mut self, other: &Self) {
        self.disabled.extend(other.disabled.iter().cloned());
        self.every.join(&other.every);
        self.read.join(&other.read);
        self.write.join(&other.write);
        self.demands.extend(other.demands.iter().cloned());
        self.owners.extend(other.owners.iter().cloned());
        self.took_part.extend(other.took_part.iter().cloned());
    }

    /// Every rule that said something of this tool, whether or not it decided.
    pub fn took_part(&self) -> impl Iterator<Item = &Part> {
        self.took_part.iter()
    }

    /// Whether only the owner may answer for it.
    pub fn is_owners(&self) -> bool {
        !self.owners.is_empty()
    }

    pub fn disabled_by(&self) -> Option<&Part> {
        self.disabled.first()
    }

    /// What is said of an act: the stricter of what is said of every act and of such ones.
    pub fn level(&self, act: Act) -> &Level {
        let of_act = match act {
            Act::Read => &self.read,
            Act::Write => &self.write,
        };
        if of_act.approval > self.every.approval || self.every.by.is_empty() {
            of_act
        } else {
            &self.every
        }
    }

    /// The first demand that does not hold.
    pub fn unmet(&self, context: &Context<'_>, target: &Target<'_>) -> Option<&Demand> {
        self.demands.iter().find(|demand| !demand.holds(context, target))
    }

    /// The first demand on the actor that does not hold: such a caller does not even see the tool.
    pub fn unmet_by_actor(&self, context: &Context<'_>) -> Option<&Demand> {
        let on_actor = |demand: &&Demand| matches!(demand.subject, Subject::Role | Subject::Label);
        self.demands
            .iter()
            .filter(on_actor)
            .find(|demand| !demand.holds(context, &Target::default()))
    }

    fn gather_parts(&mut self) {
        let levels = [&self.every, &self.read, &self.write];
        let of_levels = levels.into_iter().flat_map(|level| level.by.iter());
        let of_demands = self.demands.iter().map(|demand| &demand.by);
        let others = self.disabled.iter().chain(&self.owners);
        self.took_part = of_levels.chain(others).chain(of_demands).cloned().collect();
    }
}

impl Demand {
    fn holds(&self, context: &Context<'_>, target: &Target<'_>) -> bool {
        let (own, acted_upon) = match self.subject {
            Subject::Role => return context.roles().any(|role| self.within.contains(role)),
            Subject::Label => return context.labels().any(|label| self.within.contains(label)),
            Subject::Namespace => (context.namespace, target.namespace),
            Subject::Cluster => (context.cluster, target.cluster),
            Subject::Repository => (context.repository, target.repository),
        };
        // An act that names nothing acts upon the run's own.
        match (acted_upon.or(own), &self.within) {
            (None, _) => self.absence == Absence::Passes,
            (Some(name), Within::Own) => own.is_some_and(|own| self.spelt(own) == self.spelt(name)),
            (Some(name), Within::AnyOf(names)) => {
                let name = self.spelt(name);
                names.iter().any(|pattern| glob(&self.spelt(pattern), &name))
            }
        }
    }

    /// A name as it is compared: to GitHub a repository is the same in large and in small letters.
    fn spelt<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.subject {
            Subject::Repository => Cow::Owned(name.to_ascii_lowercase()),
            Subject::Role | Subject::Label | Subject::Namespace | Subject::Cluster => Cow::Borrowed(name),
        }
    }
}

impl Within {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::Own => false,
            Self::AnyOf(names) => names.iter().any(|pattern| glob(pattern, name)),
        }
    }

    pub(super) fn described(&self) -> String {
        match self {
            Self::Own => "the run's own".to_owned(),
            Self::AnyOf(names) => listed(&names.iter().map(String::as_str).collect::<Vec<_>>()),
        }
    }
}

/// Reading is free where it is listed, and asked about where only approval is.
fn reading(actions: &BTreeSet<Action>) -> ToolApproval {
    if actions.contains(&Action::Read) {
        ToolApproval::None
    } else if actions.contains(&Action::ApproveRequired) {
        ToolApproval::Required
    } else {
        ToolApproval::Deny
    }
}

/// `approve-required` beside `write` is the stricter of the two.
fn writing(actions: &BTreeSet<Action>) -> ToolApproval {
    if actions.contains(&Action::ApproveRequired) {
        ToolApproval::Required
    } else if actions.contains(&Action::Write) {
        ToolApproval::None
    } else {
        ToolApproval::Deny
    }
}

fn listed(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        words => words.join(", "),
    }
}

/// Matches a name against a pattern in which `*` stands for any text.
pub fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut rest = rest;
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => end.is_empty() || rest.is_empty() || name.ends_with(end),
    }
}

#[cfg(test)]
pub(super) mod tests;
