//! How long runs and what belongs to them are kept, and what is still learned of a run that has ended.

use std::time::Duration;

use countersign_gateway::run::keeping::{Link, LinkEnd, LinkKind, LinkType, RunChange, RunFilter, Runs as _};
use countersign_gateway::run::lifecycle::RunStep;
use countersign_gateway::run::state::Run;
use countersign_store::Store;
use serde_json::Map;

use super::super::bench::{Bench, block_on, commit, noon, verify};
use super::runs::{enqueue, run, step};

fn link(source: (LinkKind, &str), target: (LinkKind, &str)) -> Link {
    let end = |(kind, id): (LinkKind, &str)| LinkEnd {
        kind,
        id: id.to_owned(),
    };
    Link {
        source: end(source),
        target: end(target),
        link_type: LinkType::References,
        metadata: Map::new(),
        created_at: noon(),
    }
}

fn ended(bench: &Bench, store: &Store, name: &str, issue: u64) -> Run {
    let it = run(name, "run:dev", Some(issue));
    enqueue(bench, store, &it).unwrap();
    let it = step(bench, store, &it, RunStep::Start).unwrap();
    step(bench, store, &it, RunStep::Succeed).unwrap()
}

#[test]
fn ended_runs_are_pruned_with_what_they_alone_are_linked_with_and_open_ones_stay() {
    let bench = Bench::new();
    let store = bench.open();
    ended(&bench, &store, "old", 7);
    let open = run("open", "run:dev", Some(8));
    enqueue(&bench, &store, &open).unwrap();
    let pull = |id: &'static str| (LinkKind::PullRequest, id);
    let mut change = bench.note(1);
    change.links = vec![
        link((LinkKind::Run, "old"), pull("acme/shop#17")),
        link(pull("acme/shop#17"), (LinkKind::Issue, "acme/shop#7")),
        link((LinkKind::Run, "open"), pull("acme/shop#18")),
        link(pull("acme/shop#18"), (LinkKind::Issue, "acme/shop#8")),
    ];
    commit(&store, change).unwrap();
    bench
        .run(
            "INSERT INTO agent_sessions (run_id, correlation_id, trigger_kind, agent_key, status, session_json,
                 snapshot_version, timeout_guard_disabled, created_at_ms, updated_at_ms)
             VALUES ('old', 'c-old', 'label', 'dev', 'succeeded', '{}', 1, FALSE, 1, 1),
                 ('open', 'c-open', 'label', 'dev', 'running', '{}', 1, FALSE, 1, 1)",
        )
        .unwrap();
    let kept = |table: &str| bench.run(&format!("SELECT count(*) FROM {table}")).unwrap();
    let kept = || ["runs", "agent_sessions", "links"].map(kept).join(" ");
    store.prune(noon(), &bench.ids).unwrap();
    assert_eq!(kept(), "2 2 4");
    let later = noon().after(Duration::from_secs(86_400 * 400));
    store.prune(later, &bench.ids).unwrap();
    assert_eq!(kept(), "1 1 2");
    assert!(block_on(store.find_run(&open.id)).unwrap().is_some());
    verify(&store).unwrap();
}

#[test]
fn the_pull_request_of_a_run_that_has_ended_is_learned_once_and_nothing_else() {
    let bench = Bench::new();
    let store = bench.open();
    let it = ended(&bench, &store, "r1", 7);
    let write = |it: &Run, change: fn(&mut Run)| {
        let mut next = it.changed(noon());
        change(&mut next);
        let mut writing = bench.note(1);
        writing.runs.push(RunChange::over(it.version, next.clone()));
        commit(&store, writing).map(|_| next)
    };
    assert!(write(&it, |next| next.reported_status = Some("late".to_owned())).is_err());
    let named = write(&it, |next| next.pull_request_number = Some(8)).unwrap();
    assert!(
        write(&it, |next| next.pull_request_number = Some(9)).is_err(),
        "it has moved"
    );
    assert!(
        write(&named, |next| next.pull_request_number = Some(9)).is_err(),
        "it has one"
    );
    let of = RunFilter {
        repository: Some("acme/shop".to_owned()),
        pull_request_number: Some(8),
        limit: 9,
        ..RunFilter::default()
    };
    let found = block_on(store.list_runs(of)).unwrap();
    assert_eq!((found.len(), found[0].status), (1, it.status));
}
