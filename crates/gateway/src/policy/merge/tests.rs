//! The laws of joining, over random entries and callers.

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::policy::actor::RunContext;
use crate::policy::tools::{Layers, ToolPolicies};
use crate::session::Role;

fn names(known: &'static [&'static str]) -> impl Strategy<Value = BTreeSet<String>> {
    btree_set(select(known).prop_map(str::to_owned), 0..3)
}

fn within(known: &'static [&'static str]) -> impl Strategy<Value = Within> {
    prop_oneof![Just(Within::Own), names(known).prop_map(Within::AnyOf)]
}

prop_compose! {
    pub(crate) fn policy()(
        approval in option::of(select(ToolApproval::ALL)),
        enabled in option::weighted(0.2, any::<bool>()),
        actions in option::weighted(0.4, btree_set(select(Action::ALL), 0..4)),
        namespace in option::weighted(0.2, within(&["shop", "blog", "*"])),
        cluster in option::weighted(0.1, within(&["east", "west"])),
        repository in option::weighted(0.2, within(&["example/shop", "example/*"])),
        roles in option::weighted(0.2, names(&["agent", "operator", "sre", "dev"])),
        labels in option::weighted(0.2, names(&["run:ops", "run:*", "bug"])),
        approvers in option::weighted(0.2, select(ApprovalMode::ALL)),
    ) -> ToolPolicy {
        ToolPolicy { approval, enabled, actions, scope: Scope { namespace, cluster, repository }, roles, labels, approvers }
    }
}

prop_compose! {
    pub(crate) fn entry()(
        pattern in select(&["*", "execute_*", "execute_process", "database.*", "database.lifecycle", "secret.sync.*"][..]),
        policy in policy(),
        source in select(&["operator file a, line 1, column 1", "project file b, line 2, column 3"][..]),
    ) -> Entry {
        Entry { pattern: pattern.to_owned(), policy, source: source.to_owned() }
    }
}

prop_compose! {
    pub(crate) fn run()(
        agent_key in option::of(select(&["sre", "dev", "operator"][..])),
        label in option::of(select(&["run:ops", "run:dev", "run:self-improve"][..])),
        project in option::of(select(&["shop", "blog"][..])),
        labels in names(&["bug", "run:ops"]),
        namespace in option::of(select(&["shop", "blog"][..])),
        cluster in option::of(select(&["east", "west"][..])),
        repository in option::of(select(&["example/shop", "other/blog"][..])),
    ) -> RunContext {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        RunContext {
            agent_key: owned(agent_key), label: owned(label), project: owned(project), labels,
            namespace: owned(namespace), cluster: owned(cluster), repository: owned(repository),
            ..RunContext::default()
        }
    }
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let one = (select(LayerKind::ALL), entry()).prop_map(|(layer, entry)| {
        let rule = format!("{} {}", layer.as_str(), entry.pattern);
        Outcome::of(layer, &rule, &entry)
    });
    vec(one, 0..4).prop_map(|outcomes| merge(&outcomes))
}

/// How strict an outcome is with one act: 0 lets it pass, 3 denies it.
fn strictness(outcome: &Outcome, context: &Context<'_>, target: &Target<'_>, act: Act) -> u8 {
    if outcome.disabled_by().is_some() || outcome.unmet(context, target).is_some() {
        return 3;
    }
    match outcome.level(act).approval {
        ToolApproval::None => 0,
        ToolApproval::Required => 1,
        ToolApproval::Deny => 3,
    }
}

fn with(first: &Outcome, second: &Outcome) -> Outcome {
    merge([first, second])
}

proptest! {
    #[test]
    fn the_order_of_layers_does_not_matter(a in outcome(), b in outcome(), c in outcome()) {
        prop_assert_eq!(with(&a, &b), with(&b, &a));
        prop_assert_eq!(with(&with(&a, &b), &c), with(&a, &with(&b, &c)));
    }

    #[test]
    fn saying_it_twice_changes_nothing(a in outcome()) {
        prop_assert_eq!(with(&a, &a), a.clone());
        prop_assert_eq!(with(&Outcome::default(), &a), a);
    }

    #[test]
    fn one_more_layer_never_loosens(
        a in outcome(), b in outcome(), run in run(), role in select(&Role::ALL[..]),
        act in select(Act::ALL), namespace in option::of(select(&["shop", "blog"][..])),
    ) {
        let policies = ToolPolicies::new(Layers::built_in());
        let context = policies.context(role, Some(&run));
        let target = Target { namespace, ..Target::default() };
        let joined = strictness(&with(&a, &b), &context, &target, act);
        prop_assert_eq!(joined, strictness(&a, &context, &target, act).max(strictness(&b, &context, &target, act)));
    }

    #[test]
    fn who_decided_is_among_those_who_took_part(a in outcome(), act in select(Act::ALL)) {
        let parts: BTreeSet<_> = a.took_part().collect();
        for by in a.level(act).decided_by().into_iter().chain(a.disabled_by()).chain(a.demands.iter().map(|it| &it.by)) {
            prop_assert!(parts.contains(by));
        }
        if a.level(act).approval > ToolApproval::None {
            prop_assert!(a.level(act).decided_by().is_some());
        }
    }
}

#[test]
fn actions_say_what_is_free_what_asks_and_what_is_denied() {
    use Action::{ApproveRequired, Read, Write};
    use ToolApproval::{Deny, None, Required};
    for (actions, read, write) in [
        (&[][..], Deny, Deny),
        (&[Read], None, Deny),
        (&[Write], Deny, None),
        (&[Read, Write], None, None),
        (&[ApproveRequired], Required, Required),
        (&[Read, ApproveRequired], None, Required),
        (&[Read, Write, ApproveRequired], None, Required),
    ] {
        let actions: BTreeSet<Action> = actions.iter().copied().collect();
        assert_eq!((reading(&actions), writing(&actions)), (read, write), "{actions:?}");
    }
}

#[test]
fn a_demand_that_nobody_can_answer_is_not_met() {
    let policies = ToolPolicies::new(Layers::built_in());
    let nobody = Context::of_role(Role::Agent);
    let shop = RunContext {
        namespace: Some("shop".into()),
        ..RunContext::default()
    };
    let shop = policies.context(Role::Agent, Some(&shop));
    let blog = Target {
        namespace: Some("blog"),
        ..Target::default()
    };
    let only = |within: Within, absence: Absence| {
        let by = Part {
            layer: LayerKind::Project,
            rule: "r".into(),
            source: "s".into(),
            effect: "e".into(),
        };
        Demand {
            subject: Subject::Namespace,
            within,
            absence,
            by,
        }
    };
    let any = |name: &str| Within::AnyOf(BTreeSet::from([name.to_owned()]));
    for (within, absence, context, target, holds) in [
        (any("shop"), Absence::Denies, &nobody, Target::default(), false),
        (any("shop"), Absence::Passes, &nobody, Target::default(), true),
        (Within::Own, Absence::Denies, &nobody, Target::default(), false),
        (Within::Own, Absence::Denies, &nobody, blog, false),
        (any("shop"), Absence::Denies, &shop, Target::default(), true),
        (any("shop"), Absence::Passes, &shop, blog, false),
        (any("*"), Absence::Denies, &shop, blog, true),
        (Within::Own, Absence::Denies, &shop, Target::default(), true),
        (Within::Own, Absence::Denies, &shop, blog, false),
        (Within::AnyOf(BTreeSet::new()), Absence::Denies, &shop, blog, false),
    ] {
        let demand = only(within, absence);
        assert_eq!(demand.holds(context, &target), holds, "{demand:?} {target:?}");
    }
}

#[test]
fn a_glob_matches_whole_names() {
    for (pattern, name, expected) in [
        ("execute_command", "execute_command", true),
        ("execute_command", "execute_command2", false),
        ("secret.sync.*", "secret.sync.github_k8s", true),
        ("secret.sync.*", "secret.syncx", false),
        ("*", "anything", true),
        ("*_command", "run_command", true),
        ("*_command", "run_command_x", false),
        ("a*b*c", "aXbYc", true),
        ("a*b*c", "aXcYb", false),
        ("", "x", false),
    ] {
        assert_eq!(glob(pattern, name), expected, "{pattern} on {name}");
    }
}
