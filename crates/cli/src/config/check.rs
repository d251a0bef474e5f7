//! What holds between keys, once all sources have spoken.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::approvers;
use super::merge::Effective;
use super::origin::{Problem, Warning};

const TIMEOUT: &str = "command_policy.timeout_seconds";
const TIMEOUT_MAX: &str = "command_policy.timeout_seconds_max";

/// Settles what one key means for another.
pub(super) fn settle(effective: &mut Effective, problems: &mut Vec<Problem>, warnings: &mut Vec<Warning>) {
    timeouts(effective, problems);
    both_or_neither(effective, "tls.cert", "tls.key", problems);
    one_project_each(effective, problems);
    approvers::settle(effective, problems, warnings);
    let allowlist = effective.held("command_policy.allowlist");
    if allowlist.value.as_array().is_some_and(Vec::is_empty) {
        let reason = "nothing is left of the list, so no program may run".to_owned();
        let warning = Warning {
            origin: allowlist.origin.clone(),
            key: "command_policy.allowlist".to_owned(),
            reason,
        };
        warnings.push(warning);
    }
}

/// A maximum that a stronger source lowered takes the timeout down with it; a timeout above the
/// maximum of its own or a weaker source is a mistake.
fn timeouts(effective: &mut Effective, problems: &mut Vec<Problem>) {
    let (timeout, max) = (effective.held(TIMEOUT).clone(), effective.held(TIMEOUT_MAX).clone());
    let number = |value: &Json| value.as_f64().unwrap_or_default();
    if number(&timeout.value) <= number(&max.value) {
        return;
    }
    if timeout.origin.source < max.origin.source {
        effective.set(TIMEOUT, max.value, max.origin);
    } else {
        let message = format!(
            "`{TIMEOUT}` is {}, more than `{TIMEOUT_MAX}`, which is {}",
            timeout.value, max.value
        );
        problems.push(Problem {
            origin: timeout.origin,
            message,
        });
    }
}

fn both_or_neither(effective: &Effective, one: &str, other: &str, problems: &mut Vec<Problem>) {
    for (given, missing) in [(one, other), (other, one)] {
        let held = effective.held(given);
        if !held.value.is_null() && effective.value(missing).is_null() {
            problems.push(Problem {
                origin: held.origin.clone(),
                message: format!("`{given}` needs `{missing}` too"),
            });
        }
    }
}

/// A repository leads to its project, so it may have only one; to GitHub large and small letters are the same.
fn one_project_each(effective: &Effective, problems: &mut Vec<Problem>) {
    let held = effective.held("policies.projects");
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    for (project, policy) in held.value.as_object().into_iter().flatten() {
        let repositories = policy["repositories"].as_array().into_iter().flatten();
        for repository in repositories.filter_map(Json::as_str) {
            if let Some(other) = known
                .insert(repository.to_ascii_lowercase(), project)
                .filter(|other| other != project)
            {
                problems.push(Problem {
                    origin: held.origin.clone(),
                    message: format!("repository `{repository}` is in two projects, `{other}` and `{project}`"),
                });
            }
        }
    }
}
