//! What ships, what runs are offered, and that no entry ever loosens.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::policy::merge::tests::{entry, run};
use crate::policy::merge::{Entry, ToolPolicy};

fn says(pattern: &str, approval: ToolApproval) -> Entry {
    Entry {
        pattern: pattern.to_owned(),
        policy: ToolPolicy {
            approval: Some(approval),
            ..ToolPolicy::default()
        },
        source: "file".to_owned(),
    }
}

fn sets(entry: Entry) -> MatrixEntry {
    MatrixEntry {
        entry,
        hand: Hand::Sets,
    }
}

/// `allow`, or the word and the rule.
fn ruled(policies: &ToolPolicies, run: Option<&RunContext>, used: &ToolUse<'_>) -> String {
    let context = policies.context(Role::Agent, run);
    match policies.ruling(&context, used) {
        Ruling::Allow => "allow".to_owned(),
        Ruling::Ask(rule) => format!("ask {}", rule.name),
        Ruling::Deny(rule) => format!("deny {}", rule.name),
        Ruling::Absent(rule) => format!("absent {}", rule.name),
    }
}

#[test]
fn what_ships_asks_about_secrets_and_databases_and_keeps_reports_to_runs() {
    let policies = ToolPolicies::new(Layers::built_in());
    let mut table = Vec::new();
    for tool in matrix::tools() {
        let actions: Vec<Option<&str>> = match tool.acts.as_slice() {
            [] => vec![None],
            acts => acts.iter().map(|(name, _)| Some(name.as_str())).collect(),
        };
        for action in actions {
            let used = ToolUse {
                action,
                ..ToolUse::of(&tool.name)
            };
            let name = format!("{} {}", tool.name, action.unwrap_or_default());
            let row = (name.trim().to_owned(), ruled(&policies, None, &used));
            if row.1 != "allow" {
                table.push(row);
            }
        }
    }
    let table: Vec<_> = table
        .iter()
        .map(|(tool, said)| (tool.as_str(), said.as_str()))
        .collect();
    assert_eq!(
        table,
        [
            (
                "run_status_report",
                "absent built-in catalog outside of runs run_status_report"
            ),
            (
                "self_improve_runs_list",
                "absent built-in catalog outside of runs self_improve_*"
            ),
            (
                "self_improve_run_lookup",
                "absent built-in catalog outside of runs self_improve_*"
            ),
            (
                "self_improve_session_get",
                "absent built-in catalog outside of runs self_improve_*"
            ),
            ("secret.sync.github_k8s", "ask built-in matrix secret.sync.*"),
            ("database.lifecycle create", "ask built-in matrix database.*"),
            ("database.lifecycle delete", "ask built-in matrix database.*"),
            ("owner.feedback.request", "ask built-in matrix owner.feedback.request"),
        ]
    );
    assert_eq!(ruled(&policies, None, &ToolUse::of("deploy")), "absent catalog");
    assert_eq!(
        ruled(&policies, None, &ToolUse::of("database.lifecycle")),
        "ask built-in matrix database.*",
        "an act without a name is taken for the worst it can be"
    );
}

/// The reference's catalog: what a run is offered, by trigger and agent.
#[test]
fn a_run_is_offered_what_its_label_and_agent_allow() {
    let policies = ToolPolicies::new(Layers::built_in());
    let offered = |label: &str, agent: &str| -> Vec<String> {
        let run = RunContext {
            label: Some(label.to_owned()),
            agent_key: Some(agent.to_owned()),
            ..RunContext::default()
        };
        let context = policies.context(Role::Agent, Some(&run));
        let tools = matrix::tools().into_iter().map(|tool| tool.name);
        let beyond_base = |name: &String| {
            !name.contains("command") && name != "execute_process" && !name.starts_with("github_labels_")
        };
        tools
            .filter(|tool| policies.lists(&context, tool))
            .filter(beyond_base)
            .collect()
    };
    let base = ["run_status_report", "approval_prompt"];
    let control = [
        "run_status_report",
        "secret.sync.github_k8s",
        "database.lifecycle",
        "owner.feedback.request",
        "approval_prompt",
    ];
    assert_eq!(offered("run:dev", "dev"), base);
    assert_eq!(offered("run:ops", "reviewer"), base);
    assert_eq!(offered("run:ops", "sre"), control);
    assert_eq!(offered("run:ai-repair:revise", "dev"), control);
    let improving = offered("run:self-improve", "km");
    assert_eq!(
        improving,
        [
            "run_status_report",
            "self_improve_runs_list",
            "self_improve_run_lookup",
            "self_improve_session_get",
            "approval_prompt"
        ]
    );
}

#[test]
fn an_operator_replaces_a_built_in_entry_by_naming_the_tool() {
    let secret = ToolUse::of("secret.sync.github_k8s");
    for (pattern, hand, expected) in [
        ("secret.sync.github_k8s", Hand::Sets, "allow"),
        ("secret.sync.*", Hand::Sets, "allow"),
        ("secret.*", Hand::Sets, "ask built-in matrix secret.sync.*"),
        ("*", Hand::Sets, "ask built-in matrix secret.sync.*"),
        (
            "secret.sync.github_k8s",
            Hand::Tightens,
            "ask built-in matrix secret.sync.*",
        ),
    ] {
        let entry = says(pattern, ToolApproval::None);
        let policies = ToolPolicies::new(Layers {
            matrix: vec![MatrixEntry { entry, hand }],
            ..Layers::built_in()
        });
        assert_eq!(ruled(&policies, None, &secret), expected, "{pattern} {hand:?}");
    }
}

#[test]
fn the_policies_of_agent_label_and_project_join_the_matrix() {
    let scoped = Entry {
        policy: ToolPolicy {
            scope: crate::policy::merge::Scope {
                namespace: Some(Within::Own),
                ..Default::default()
            },
            ..ToolPolicy::default()
        },
        ..says("database.*", ToolApproval::None)
    };
    let policies = ToolPolicies::new(Layers {
        agents: BTreeMap::from([(
            "reviewer".into(),
            vec![says("execute_*", ToolApproval::Deny), says("*", ToolApproval::None)],
        )]),
        labels: BTreeMap::from([(
            "run:ops".into(),
            LabelPolicy {
                entries: vec![says("github_labels_*", ToolApproval::Required)],
                agent_key: Some("sre".into()),
                ..LabelPolicy::default()
            },
        )]),
        projects: BTreeMap::from([(
            "shop".into(),
            ProjectPolicy {
                entries: vec![scoped],
                repositories: vec!["example/shop".into()],
                namespace: Some("shop".into()),
                source: "file".into(),
            },
        )]),
        ..Layers::built_in()
    });
    let of = |agent: Option<&str>, label: Option<&str>, repository: Option<&str>| RunContext {
        agent_key: agent.map(str::to_owned),
        label: label.map(str::to_owned),
        repository: repository.map(str::to_owned),
        ..RunContext::default()
    };
    let check = |run: &RunContext, used: &ToolUse<'_>, expected: &str| {
        assert_eq!(ruled(&policies, Some(run), used), expected, "{run:?} {used:?}");
    };
    let reviewer = of(Some("reviewer"), None, None);
    check(
        &reviewer,
        &ToolUse::of("execute_process"),
        "absent policies.agents.reviewer.tools.execute_*",
    );
    check(&reviewer, &ToolUse::of("run_command"), "allow");
    // The label brings the agent, the repository the project, and the project the namespace.
    let ops = of(None, Some("run:ops"), Some("example/shop"));
    check(
        &ops,
        &ToolUse::of("github_labels_list"),
        "ask policies.labels.run:ops.tools.github_labels_*",
    );
    let describe = ToolUse {
        action: Some("describe"),
        ..ToolUse::of("database.lifecycle")
    };
    check(&ops, &describe, "allow");
    let elsewhere = Target {
        namespace: Some("blog"),
        ..Target::default()
    };
    let elsewhere = ToolUse {
        target: elsewhere,
        ..describe
    };
    check(&ops, &elsewhere, "deny policies.projects.shop.tools.database.*");
    let foreign = Target {
        repository: Some("example/other"),
        ..Target::default()
    };
    let foreign = ToolUse {
        target: foreign,
        ..describe
    };
    check(&ops, &foreign, "deny policies.projects.shop.repositories");
    // A repository is the same in large and in small letters, so its project's policy holds.
    let shouted = of(None, Some("run:ops"), Some("Example/SHOP"));
    check(&shouted, &elsewhere, "deny policies.projects.shop.tools.database.*");
    check(&shouted, &foreign, "deny policies.projects.shop.repositories");
    check(&shouted, &describe, "allow");
}

#[test]
fn an_agent_named_like_a_role_does_not_have_it() {
    let entry = Entry {
        policy: ToolPolicy {
            roles: Some(BTreeSet::from(["operator".to_owned()])),
            ..ToolPolicy::default()
        },
        ..says("run_command", ToolApproval::None)
    };
    let policies = ToolPolicies::new(Layers {
        matrix: vec![sets(entry)],
        ..Layers::built_in()
    });
    let run = RunContext {
        agent_key: Some("operator".into()),
        ..RunContext::default()
    };
    assert!(!policies.lists(&policies.context(Role::Agent, Some(&run)), "run_command"));
    assert!(policies.lists(&Context::of_role(Role::Operator), "run_command"));
}

#[test]
fn what_everybody_is_denied_is_not_listed_but_answered() {
    let policies = ToolPolicies::new(Layers {
        matrix: vec![sets(says("run_command", ToolApproval::Deny))],
        ..Layers::built_in()
    });
    let agent = Context::of_role(Role::Agent);
    assert!(!policies.lists(&agent, "run_command"));
    assert!(policies.sees(&agent, "run_command").is_ok());
    assert_eq!(
        ruled(&policies, None, &ToolUse::of("run_command")),
        "deny tools run_command"
    );
}

pub(crate) fn layers() -> impl Strategy<Value = Layers> {
    let key = |names: &'static [&'static str]| select(names).prop_map(str::to_owned);
    let matrix = (entry(), any::<bool>()).prop_map(|(entry, sets)| MatrixEntry {
        entry,
        hand: if sets { Hand::Sets } else { Hand::Tightens },
    });
    let label = (
        vec(entry(), 0..3),
        option::of(key(&["sre", "dev"])),
        option::of(key(&["full-env", "code-only"])),
    )
        .prop_map(|(entries, agent_key, runtime)| LabelPolicy {
            entries,
            agent_key,
            agent: None,
            runtime,
        });
    let project = (vec(entry(), 0..3), any::<bool>(), option::of(key(&["shop", "blog"]))).prop_map(
        |(entries, bound, namespace)| ProjectPolicy {
            entries,
            repositories: if bound { vec!["example/shop".to_owned()] } else { vec![] },
            namespace,
            source: "operator file a, line 9, column 1".to_owned(),
        },
    );
    (
        vec(matrix, 0..4),
        btree_map(key(&["sre", "dev"]), vec(entry(), 0..3), 0..3),
        btree_map(key(&["run:ops", "run:dev"]), label, 0..3),
        btree_map(key(&["shop", "blog"]), project, 0..3),
    )
        .prop_map(|(matrix, agents, labels, projects)| Layers {
            matrix,
            agents,
            labels,
            projects,
            ..Layers::built_in()
        })
}

fn severity(ruling: &Ruling) -> u8 {
    match ruling {
        Ruling::Allow => 0,
        Ruling::Ask(_) => 1,
        Ruling::Deny(_) => 2,
        Ruling::Absent(_) => 3,
    }
}

proptest! {
    #[test]
    fn one_more_entry_never_loosens(
        layers in layers(), more in entry(), place in 0..4, run in option::of(run()), role in select(&Role::ALL[..]),
    ) {
        let mut stricter = layers.clone();
        match place {
            0 => stricter.matrix.push(MatrixEntry { entry: more, hand: Hand::Tightens }),
            1 => stricter.agents.entry("sre".into()).or_default().push(more),
            2 => stricter.labels.entry("run:ops".into()).or_default().entries.push(more),
            _ => stricter.projects.entry("shop".into()).or_default().entries.push(more),
        }
        let (before, after) = (ToolPolicies::new(layers), ToolPolicies::new(stricter));
        for tool in matrix::tools() {
            let used = ToolUse::of(&tool.name);
            let was = before.ruling(&before.context(role, run.as_ref()), &used);
            let is = after.ruling(&after.context(role, run.as_ref()), &used);
            prop_assert!(severity(&is).min(2) >= severity(&was).min(2), "{}: {was:?} became {is:?}", tool.name);
        }
    }

    #[test]
    fn what_is_listed_can_be_called_and_what_is_not_cannot(layers in layers(), run in option::of(run()), role in select(&Role::ALL[..])) {
        let policies = ToolPolicies::new(layers);
        let context = policies.context(role, run.as_ref());
        for tool in matrix::tools() {
            let ruling = policies.ruling(&context, &ToolUse::of(&tool.name));
            if policies.lists(&context, &tool.name) {
                prop_assert!(!matches!(ruling, Ruling::Absent(_)), "{}", tool.name);
            } else {
                prop_assert!(matches!(ruling, Ruling::Absent(_) | Ruling::Deny(_)), "{}", tool.name);
            }
            prop_assert_eq!(policies.sees(&context, &tool.name).is_err(), matches!(ruling, Ruling::Absent(_)));
        }
    }
}
