//! The layers that speak of tools, and what each of them says of one.

use std::collections::{BTreeMap, BTreeSet};

use crate::github::vocabulary::DISCUSSION;
use crate::policy::matrix::{self, KnownTool};
use crate::policy::merge::{Absence, Demand, Entry, LayerKind, Outcome, Part, Subject, Within, glob};

/// The layers as they were read, by which the rest is made.
#[derive(Clone, PartialEq, Debug)]
pub struct Layers {
    pub tools: Vec<KnownTool>,
    pub defaults: Vec<Entry>,
    pub run_catalog: Vec<Entry>,
    /// What is taken from whoever is in no run.
    pub outside_catalog: Vec<Entry>,
    pub matrix: Vec<MatrixEntry>,
    pub agents: BTreeMap<String, Vec<Entry>>,
    pub labels: BTreeMap<String, LabelPolicy>,
    pub projects: BTreeMap<String, ProjectPolicy>,
}

/// An entry of the configuration's `tools`.
#[derive(Clone, PartialEq, Debug)]
pub struct MatrixEntry {
    pub entry: Entry,
    pub hand: Hand,
}

/// What an entry may do to the built-in ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hand {
    /// Takes the place of a built-in entry for the tool it names.
    Sets,
    Tightens,
}

/// What is configured for runs that a label starts.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct LabelPolicy {
    pub entries: Vec<Entry>,
    pub agent_key: Option<String>,
    pub agent: Option<String>,
    pub runtime: Option<String>,
}

/// What is configured for a project.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ProjectPolicy {
    pub entries: Vec<Entry>,
    pub repositories: Vec<String>,
    pub namespace: Option<String>,
    /// Who said the two above.
    pub source: String,
}

impl Layers {
    /// The built-in layers alone.
    pub fn built_in() -> Self {
        Self {
            tools: matrix::tools(),
            defaults: matrix::defaults(),
            run_catalog: matrix::run_catalog(),
            outside_catalog: matrix::outside_catalog(),
            matrix: Vec::new(),
            agents: BTreeMap::new(),
            labels: BTreeMap::new(),
            projects: BTreeMap::new(),
        }
    }
}

impl Layers {
    /// The built-in matrix, as far as nobody set it, with the configured one.
    pub(super) fn everywhere(&self, tool: &str) -> Outcome {
        let untouched = |entry: &&Entry| {
            let replaces = |by: &MatrixEntry| by.entry.policy.approval.is_some() && by.replaces(entry, tool);
            !self.matrix.iter().any(replaces)
        };
        let defaults = self.defaults.iter().filter(untouched).cloned();
        let (own, declared): (Vec<Entry>, Vec<Entry>) = defaults.partition(|entry| entry.source == matrix::SOURCE);
        let mut outcome = said(LayerKind::BuiltIn, &own, tool, &|pattern| {
            format!("built-in matrix {pattern}")
        });
        // What a file says of its own tool stands where the matrix speaks of ours.
        outcome.join(&said(LayerKind::BuiltIn, &declared, tool, &|pattern| {
            format!("declared tool {pattern}")
        }));
        let matrix: Vec<Entry> = self.matrix.iter().map(|entry| entry.entry.clone()).collect();
        outcome.join(&said(LayerKind::Matrix, &matrix, tool, &|pattern| {
            format!("tools {pattern}")
        }));
        outcome
    }

    /// The same for whoever is in no run: without what only means something in one.
    pub(super) fn outside_runs(&self, tool: &str) -> Outcome {
        let entries: Vec<Entry> = self.not_enabled(&self.outside_catalog, tool).cloned().collect();
        let mut outcome = self.everywhere(tool);
        outcome.join(&said(LayerKind::RunCatalog, &entries, tool, &|pattern| {
            format!("built-in catalog outside of runs {pattern}")
        }));
        outcome
    }

    pub(super) fn offered_to_runs(&self, tool: &str) -> Outcome {
        let entries: Vec<Entry> = self.not_enabled(&self.run_catalog, tool).cloned().collect();
        said(LayerKind::RunCatalog, &entries, tool, &|pattern| {
            format!("built-in run catalog {pattern}")
        })
    }

    /// What no run is offered, no job's agent is: it starts no other agents, which would start others.
    pub(super) fn offered_to_jobs(&self, tool: &str) -> Outcome {
        let absent = |entry: &&Entry| entry.policy.enabled == Some(false);
        let entries = self.not_enabled(&self.run_catalog, tool).filter(absent);
        let entries: Vec<Entry> = entries.cloned().collect();
        said(LayerKind::RunCatalog, &entries, tool, &|pattern| {
            format!("built-in job catalog {pattern}")
        })
    }

    /// The entries of a catalog from which nobody took this tool.
    fn not_enabled<'e>(&'e self, catalog: &'e [Entry], tool: &str) -> impl Iterator<Item = &'e Entry> {
        let untouched = move |entry: &&Entry| {
            let replaces = |by: &MatrixEntry| by.entry.policy.enabled == Some(true) && by.replaces(entry, tool);
            !self.matrix.iter().any(replaces)
        };
        catalog.iter().filter(untouched)
    }
}

/// What a discussion is offered. Nobody adds to it: an operator who offers a tool to every run means runs that work.
pub(super) fn offered_to_talks(tool: &str) -> Outcome {
    let entries: Vec<Entry> = matrix::kept_from_talks(tool).into_iter().collect();
    said(LayerKind::RunCatalog, &entries, tool, &|_| {
        format!("built-in catalog of `{DISCUSSION}`")
    })
}

impl MatrixEntry {
    /// A wide pattern does not reach behind a built-in entry: whoever wants a tool to go unasked that
    /// asks by default names the tool, or repeats the built-in pattern.
    fn replaces(&self, built_in: &Entry, tool: &str) -> bool {
        self.hand == Hand::Sets && (self.entry.pattern == tool || self.entry.pattern == built_in.pattern)
    }
}

impl ProjectPolicy {
    /// What a project's own fields demand of acts that name such things.
    pub(super) fn bounds(&self, place: &str) -> Vec<Outcome> {
        let repositories: BTreeSet<String> = self.repositories.iter().cloned().collect();
        let namespace: BTreeSet<String> = self.namespace.iter().cloned().collect();
        [
            (Subject::Repository, "repositories", repositories),
            (Subject::Namespace, "namespace", namespace),
        ]
        .into_iter()
        .filter(|(_, _, names)| !names.is_empty())
        .map(|(subject, field, names)| {
            let within = Within::AnyOf(names);
            let by = Part {
                layer: LayerKind::Project,
                rule: format!("{place}.{field}"),
                source: self.source.clone(),
                effect: format!("{}: {}", subject.as_str(), within.described()),
            };
            Outcome::demanding(Demand {
                subject,
                within,
                absence: Absence::Passes,
                by,
            })
        })
        .collect()
    }
}

pub(super) fn said(layer: LayerKind, entries: &[Entry], tool: &str, rule: &dyn Fn(&str) -> String) -> Outcome {
    let mut outcome = Outcome::default();
    for entry in entries.iter().filter(|entry| glob(&entry.pattern, tool)) {
        outcome.join(&Outcome::of(layer, &rule(&entry.pattern), entry));
    }
    outcome
}

pub(super) fn in_section(place: &str) -> impl Fn(&str) -> String {
    move |pattern| format!("{place}.tools.{pattern}")
}
