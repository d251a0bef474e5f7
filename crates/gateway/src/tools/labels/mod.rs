//! The label tools: looking at the labels of an issue or a pull request, and changing them at one desk, so
//! that every change is in the record.
//!
//! They are offered where a control token is configured. Which repository is meant, the run says; outside of a
//! run it is the only one that policy names.

mod schema;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::approval::ClearedAct;
use crate::audit::Pending;
use crate::catalog::arguments::Arguments;
use crate::catalog::definition::ToolDefinition;
use crate::error::{ErrorCode, Refusal, brief};
use crate::github::labels::{Errand, LabelChange, LabelDesk};
use crate::github::vocabulary::{LABEL_CHARS_MAX, LABELS_MAX, is_label};
use crate::github::{IssueRef, Repository};
use crate::ids::RunId;
use crate::policy::actor::Target;
use crate::policy::effective::EffectivePolicy;
use crate::session::Caller;
use crate::tools::acts::{Act, Asked, Toolbox};

pub struct LabelTools {
    desk: Arc<LabelDesk>,
}

impl LabelTools {
    pub fn new(desk: Arc<LabelDesk>) -> Arc<Self> {
        Arc::new(Self { desk })
    }
}

impl Toolbox for LabelTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        schema::definitions()
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let mut arguments = Arguments::new(&asked.call.arguments);
        let number = arguments.optional_positive("issue_number");
        let change = match asked.call.tool.as_str() {
            "github_labels_list" => None,
            "github_labels_add" => Some(LabelChange {
                add: labels(&mut arguments, "labels", Least::One),
                ..LabelChange::default()
            }),
            "github_labels_remove" => Some(LabelChange {
                remove: labels(&mut arguments, "labels", Least::One),
                ..LabelChange::default()
            }),
            "github_labels_transition" => {
                let change = LabelChange {
                    remove: labels(&mut arguments, "remove_labels", Least::None),
                    add: labels(&mut arguments, "add_labels", Least::None),
                };
                if change == LabelChange::default() {
                    arguments.problem("give `remove_labels` or `add_labels`, with at least one label".to_owned());
                }
                if let Some(both) = change.add.iter().find(|label| is_among(&change.remove, label)) {
                    arguments.problem(format!("`{}` is to be added and removed; leave one", brief(both)));
                }
                Some(change)
            }
            other => {
                let message = format!("there is no tool `{other}`");
                return Err(Refusal::new(ErrorCode::UnknownTool, message));
            }
        };
        arguments.finish()?;
        Ok(Box::new(Relabel {
            of: aimed_at(asked.caller, asked.policy, number)?,
            tool: asked.call.tool.clone(),
            desk: self.desk.clone(),
            change,
        }))
    }
}

/// GitHub takes labels that differ in large and small letters only for one.
fn is_among(labels: &[String], label: &str) -> bool {
    labels.iter().any(|other| other.to_lowercase() == label.to_lowercase())
}

/// How many labels there must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Least {
    None,
    One,
}

fn labels(arguments: &mut Arguments<'_>, name: &'static str, least: Least) -> Vec<String> {
    let given = match least {
        Least::One => Some(arguments.some_strings(name)),
        Least::None => arguments.optional_strings(name),
    };
    let given = given.unwrap_or_default();
    if least == Least::One && given.is_empty() {
        arguments.problem(format!("`{name}` must name at least one label"));
    }
    if given.len() > LABELS_MAX {
        arguments.problem(format!("`{name}` must have at most {LABELS_MAX} entries"));
    }
    for label in given.iter().filter(|label| !is_label(label)) {
        let shown = brief(label);
        arguments.problem(format!(
            "`{shown}` is no label: a label has 1 to {LABEL_CHARS_MAX} characters on one line, without spaces around it"
        ));
    }
    given
}

/// The issue that is meant.
fn aimed_at(caller: &Caller, policy: &EffectivePolicy, number: Option<u64>) -> Result<IssueRef, Refusal> {
    let run = caller.run.as_deref();
    let wrong = |message: &str| Refusal::new(ErrorCode::InvalidArguments, message);
    let number = number.or_else(|| run.and_then(|run| run.issue_number.or(run.pull_request_number)));
    let number = number.ok_or_else(|| wrong("`issue_number` is missing; only a run of an issue can leave it out"))?;
    let of_run = run.and_then(|run| run.repository.as_deref());
    let repository = match of_run.map(str::to_owned) {
        Some(repository) => repository,
        None => only_repository(policy)?,
    };
    let repository = Repository::parse(&repository)
        .ok_or_else(|| wrong("the repository is not named `owner/name`; see `policies.projects`"))?;
    Ok(IssueRef { repository, number })
}

fn only_repository(policy: &EffectivePolicy) -> Result<String, Refusal> {
    let projects = &policy.tools.layers().projects;
    let mut named: Vec<&String> = projects.values().flat_map(|project| &project.repositories).collect();
    named.sort();
    named.dedup();
    match named.as_slice() {
        [one] => Ok((*one).clone()),
        [] | [..] => {
            let message = "which repository is meant is not clear: call from a run, or name exactly one under \
                `policies.projects.<name>.repositories`";
            Err(Refusal::new(ErrorCode::ConfigurationError, message))
        }
    }
}

struct Relabel {
    desk: Arc<LabelDesk>,
    tool: String,
    of: IssueRef,
    /// None only looks.
    change: Option<LabelChange>,
}

impl Act for Relabel {
    fn target(&self) -> Target<'_> {
        Target {
            repository: Some(self.of.repository.as_str()),
            ..Target::default()
        }
    }

    fn only_looks(&self) -> bool {
        self.change.is_none()
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::from_iter([
            ("repository".to_owned(), json!(self.of.repository.as_str())),
            ("issue_number".to_owned(), json!(self.of.number)),
        ]);
        if let Some(change) = &self.change {
            details.insert("add_labels".to_owned(), json!(change.add));
            details.insert("remove_labels".to_owned(), json!(change.remove));
        }
        details
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let Some(change) = &self.change else {
                return Ok(result(self.desk.list(&self.of).await?, None));
            };
            let run = cleared.caller().run.as_deref();
            let errand = Errand {
                by: cleared.caller().actor.clone(),
                correlation_id: cleared.correlation_id().clone(),
                run_id: run.and_then(|run| run.run_id.as_ref().map(RunId::to_string)),
                cause: self.tool.clone(),
            };
            let done = self.desk.change(&self.of, change, &errand).await?;
            let message = if done.before == done.after {
                format!("the labels of {} were so already", self.of)
            } else {
                format!("the labels of {} are changed", self.of)
            };
            let mut labels = done.after;
            labels.sort();
            Ok(result(labels, Some(message)))
        })
    }
}

fn result(labels: Vec<String>, message: Option<String>) -> Map<String, Value> {
    let mut fields = Map::from_iter([("status".to_owned(), json!("ok")), ("labels".to_owned(), json!(labels))]);
    if let Some(message) = message {
        fields.insert("message".to_owned(), json!(message));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::matrix;

    #[test]
    fn labels_that_differ_in_large_and_small_letters_only_are_one() {
        let labels = ["Run:Dev".to_owned(), "état".to_owned()];
        assert!(is_among(&labels, "run:dev") && is_among(&labels, "ÉTAT"));
        assert!(!is_among(&labels, "run:dev:revise") && !is_among(&labels, "run"));
    }

    #[test]
    fn policy_knows_every_label_tool() {
        let known = matrix::tools();
        for tool in schema::definitions() {
            assert!(known.iter().any(|known| known.name == tool.name), "{}", tool.name);
        }
    }
}
