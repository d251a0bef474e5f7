//! Who may answer for a tool in a run: its owner only, or also those the owner delegates to. The matrix of
//! the reference, as data; a configuration may take delegation away.

use super::actor::Context;
use super::merge::glob;
use crate::run::lifecycle::Runtime;

words! {
    /// Mildest first: the stricter of two is the greater.
    ApprovalMode {
        /// An approver may answer, and so may the owner.
        Delegated "delegated",
        /// Only an operator may answer.
        Owner "owner",
    }
}

/// Tools whose questions go to the owner, and the runs in which they are delegated: by label, and by the keys
/// of agents where only some of them count.
struct Delegation {
    tools: &'static str,
    runs: &'static [(&'static str, &'static [&'static str])],
}

const DELEGATIONS: &[Delegation] = &[
    Delegation {
        tools: "secret.sync.*",
        runs: &[
            ("run:dev:revise", &[]),
            ("run:self-improve", &[]),
            ("run:self-improve:*", &[]),
            ("run:ops", &["sre"]),
            ("run:ops:*", &["sre"]),
            ("run:ai-repair", &["sre"]),
            ("run:ai-repair:*", &["sre"]),
        ],
    },
    Delegation {
        tools: "database.*",
        runs: &[
            ("run:ops", &["sre", "dev"]),
            ("run:ops:*", &["sre", "dev"]),
            ("run:ai-repair", &["sre", "dev"]),
            ("run:ai-repair:*", &["sre", "dev"]),
        ],
    },
    Delegation {
        tools: "owner.feedback.request",
        runs: &[],
    },
];

/// What is built in. Nothing for other tools, and outside of runs: there whoever may decide at all does.
pub(super) fn built_in(tool: &str, context: &Context<'_>) -> Option<ApprovalMode> {
    let delegation = DELEGATIONS.iter().find(|it| glob(it.tools, tool))?;
    if !context.in_run {
        return None;
    }
    let counts = |label: &str, keys: &[&str]| {
        let is_label = context.label.is_some_and(|its| glob(label, its));
        let is_key = keys.is_empty() || context.agent_key.is_some_and(|its| keys.contains(&its));
        is_label && is_key
    };
    let is_delegated = delegation.runs.iter().any(|(label, keys)| counts(label, keys));
    Some(match (context.runtime, is_delegated) {
        (Some(Runtime::FullEnv), true) => ApprovalMode::Delegated,
        // An agent without its own surroundings acts upon somebody else's.
        (Some(Runtime::FullEnv | Runtime::CodeOnly) | None, _) => ApprovalMode::Owner,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Role;

    fn mode(tool: &str, label: &str, key: &str, runtime: Runtime) -> Option<&'static str> {
        let context = Context {
            label: Some(label),
            agent_key: Some(key),
            runtime: Some(runtime),
            in_run: true,
            ..Context::of_role(Role::Agent)
        };
        built_in(tool, &context).map(ApprovalMode::as_str)
    }

    #[test]
    fn the_matrix_of_the_reference() {
        const SECRET: &str = "secret.sync.github_k8s";
        const DATABASE: &str = "database.lifecycle";
        for (tool, label, key, expected) in [
            (SECRET, "run:dev", "dev", "owner"),
            (SECRET, "run:dev:revise", "dev", "delegated"),
            (SECRET, "run:self-improve", "km", "delegated"),
            (SECRET, "run:ops", "sre", "delegated"),
            (SECRET, "run:ops", "dev", "owner"),
            (SECRET, "run:ai-repair", "sre", "delegated"),
            (DATABASE, "run:ops", "dev", "delegated"),
            (DATABASE, "run:ai-repair", "sre", "delegated"),
            (DATABASE, "run:ops", "qa", "owner"),
            (DATABASE, "run:dev:revise", "dev", "owner"),
            ("owner.feedback.request", "run:ops", "sre", "owner"),
        ] {
            assert_eq!(
                mode(tool, label, key, Runtime::FullEnv),
                Some(expected),
                "{tool} {label} {key}"
            );
            assert_eq!(
                mode(tool, label, key, Runtime::CodeOnly),
                Some("owner"),
                "{tool} {label} {key}"
            );
        }
        assert_eq!(mode("github_labels_add", "run:dev", "dev", Runtime::FullEnv), None);
        assert_eq!(built_in(SECRET, &Context::of_role(Role::Agent)), None);
    }
}
