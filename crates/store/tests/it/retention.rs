//! How long runs and what belongs to them are kept, what is still learned of a run that has ended, and what
//! becomes of the leases of a process that is gone.

use std::time::Duration;

use countersign_gateway::audit::Change;
use countersign_gateway::lease::LeaseChange;
use countersign_gateway::run::keeping::{Link, LinkEnd, LinkKind, LinkType, RunChange, RunFilter, Runs as _};
use countersign_gateway::run::lifecycle::RunStep;
use countersign_gateway::run::state::Run;
use countersign_store::Store;
use serde_json::Map;

use crate::bench::{block_on, commit, noon, verify};
use crate::on_sqlite::bench::Bench;
use crate::runs::{enqueue, run, step};

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
        .sql()
        .execute_batch(
            "INSERT INTO agent_sessions (run_id, correlation_id, trigger_kind, agent_key, status, session_json,
                 snapshot_version, timeout_guard_disabled, created_at_ms, updated_at_ms)
             VALUES ('old', 'c-old', 'label', 'dev', 'succeeded', '{}', 1, 0, 1, 1),
                 ('open', 'c-open', 'label', 'dev', 'running', '{}', 1, 0, 1, 1)",
        )
        .unwrap();
    let kept = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        bench.sql().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    store.prune(noon(), &bench.ids).unwrap();
    assert_eq!((kept("runs"), kept("agent_sessions"), kept("links")), (2, 2, 4));
    let later = noon().after(Duration::from_secs(86_400 * 400));
    store.prune(later, &bench.ids).unwrap();
    assert_eq!((kept("runs"), kept("agent_sessions"), kept("links")), (1, 1, 2));
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

#[test]
fn a_lease_of_a_process_that_is_gone_is_nobodys() {
    let bench = Bench::new();
    let store = bench.open();
    let take = |holder: &str| Change {
        leases: vec![LeaseChange::Take {
            name: "delivery:d-1".to_owned(),
            holder: holder.to_owned(),
            now: noon(),
            time: Duration::from_secs(20),
        }],
        ..bench.note(1)
    };
    commit(&store, take("one")).unwrap();
    assert!(commit(&store, take("two")).is_err(), "its process lives");
    let gone = "UPDATE leases SET holder = 'another-boot/1/1 one'";
    bench.sql().execute(gone, []).unwrap();
    commit(&store, take("two")).unwrap();
    assert!(commit(&store, take("one")).is_err());
}
