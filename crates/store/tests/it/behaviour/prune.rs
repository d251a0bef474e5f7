//! Old rows go behind a signed checkpoint, and the rest still verifies.

use countersign_gateway::audit::reading::Filter;
use countersign_gateway::clock::Timestamp;
use countersign_store::Store;
use serde_json::json;

use super::super::bench::{Bench, commit, events, fill, noon, verify};

const DAY: i64 = 86_400_000;

fn day(number: i64) -> Timestamp {
    Timestamp::from_millis(noon().as_millis() + number * DAY)
}

/// One row a day.
fn days(bench: &Bench, store: &Store, range: std::ops::Range<i64>) {
    for number in range {
        let draft = bench.draft_at(day(number), &json!({"day": number}));
        commit(store, events(vec![draft])).unwrap();
    }
}

#[test]
fn rows_before_the_moment_go_and_the_rest_verifies() {
    let bench = Bench::new();
    let store = bench.open();
    days(&bench, &store, 0..10);
    let pruned = store.prune(day(4), &bench.ids).unwrap();
    assert_eq!((pruned.up_to, pruned.rows), (4, 4));
    let report = verify(&store).unwrap();
    assert_eq!((report.first_seq, report.last_seq), (5, 11));
    let last = store.tail(10).unwrap().swap_remove(0);
    assert_eq!(last.event_type, "audit.pruned");
    assert_eq!(last.payload, r#"{"before":"2026-11-19T12:00:00.000Z","up_to_seq":4}"#);
}

#[test]
fn a_prune_goes_on_where_the_last_one_ended() {
    let bench = Bench::new();
    let store = bench.open();
    days(&bench, &store, 0..10);
    for (before, rows) in [(2, 2), (2, 0), (5, 3)] {
        assert_eq!(store.prune(day(before), &bench.ids).unwrap().rows, rows);
        verify(&store).unwrap();
    }
}

#[test]
fn retention_counts_in_days() {
    let bench = Bench::new();
    let store = bench.open();
    days(&bench, &store, 0..10);
    let pruned = store.prune_older_than(3, day(9), &bench.ids).unwrap();
    assert_eq!(pruned.rows, 6);
}

#[test]
fn a_row_that_is_old_but_stands_behind_a_young_one_stays() {
    let bench = Bench::new();
    let store = bench.open();
    for number in [0, 5, 1] {
        days(&bench, &store, number..number + 1);
    }
    assert_eq!(store.prune(day(3), &bench.ids).unwrap().rows, 1);
    verify(&store).unwrap();
}

#[test]
fn a_long_record_is_pruned_up_to_its_first_young_row() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 1_300);
    days(&bench, &store, 5..6);
    fill(&bench, &store, 1_300);
    assert_eq!(store.prune(day(3), &bench.ids).unwrap().up_to, 1_300);
    verify(&store).unwrap();
    let pruned = store.prune(day(6), &bench.ids).unwrap();
    assert_eq!(pruned.up_to, 2_602, "and then with what told of it");
    verify(&store).unwrap();
}

#[test]
fn an_open_command_keeps_its_opening() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 3);
    commit(&store, bench.opening("r1", "d1")).unwrap();
    fill(&bench, &store, 3);
    for rows in [3, 0] {
        let pruned = store.prune(day(1), &bench.ids).unwrap();
        assert_eq!((pruned.up_to, pruned.rows, pruned.is_held), (3, rows, true));
    }
    commit(&store, bench.closing("r1", "d1", "ok")).unwrap();
    let pruned = store.prune(day(1), &bench.ids).unwrap();
    assert_eq!((pruned.up_to, pruned.commands, pruned.is_held), (9, 1, false));
    verify(&store).unwrap();
}

#[test]
fn what_an_open_command_keeps_is_still_found_by_its_request_id() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("waits", "d1")).unwrap();
    commit(&store, bench.opening("ended", "d2")).unwrap();
    commit(&store, bench.closing("ended", "d2", "ok")).unwrap();
    assert_eq!(store.prune(day(1), &bench.ids).unwrap().up_to, 0);
    let filter = Filter {
        request_id: Some("ended".to_owned()),
        ..Filter::everything()
    };
    assert_eq!(store.query_events(&filter).unwrap().len(), 2);
    assert_eq!(store.query_commands(&filter).unwrap().len(), 1);
}

#[test]
fn everything_may_go_and_writing_goes_on() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 2_500);
    store.prune(day(1), &bench.ids).unwrap();
    assert_eq!(verify(&store).unwrap().rows, 1);
    fill(&bench, &store, 2_500);
    drop(store);
    assert_eq!(verify(&bench.open()).unwrap().rows, 2_501);
}

#[test]
fn plain_sql_may_delete_at_or_below_the_prune_only() {
    let bench = Bench::new();
    let store = bench.open();
    days(&bench, &store, 0..10);
    store.prune(day(4), &bench.ids).unwrap();
    bench.run("DELETE FROM flow_events WHERE seq <= 4").unwrap();
    bench.run("DELETE FROM flow_events WHERE seq = 5").unwrap_err();
    assert_eq!(store.query_events(&Filter::everything()).unwrap().len(), 7);
}

#[test]
fn what_has_ended_goes_with_its_time_and_what_has_not_stays() {
    let bench = Bench::new();
    let store = bench.open();
    for statement in [
        "INSERT INTO webhook_deliveries VALUES ('old', 2, 'issues', 'c', 'done', NULL, 0, 0, 0),
             ('open', 1, 'issues', 'c', 'pending', '{}', 0, 0, 0)",
        "INSERT INTO delegated_executions VALUES ('old', 2, 'c', 'o', 'b', 't', 0, 1, 'applied', '{}', 1, true, NULL),
             ('open', 1, 'c', 'o', 'b', 't', 0, 1, NULL, NULL, NULL, false, NULL)",
        "INSERT INTO secret_syncs VALUES
             ('old', 2, 'applied', 'p', 'k', 'd', 'r', 'e', 'repository', 's', 'n', 'ks', 'kk', 'random', NULL, true,
                 true, 'a', 'c', NULL, 0, 0),
             ('open', 1, 'left', 'p', 'l', 'd', 'r', 'e', 'repository', 's', 'n', 'ks', 'kk', 'random', NULL, true,
                 false, 'a', 'c', NULL, 0, 0)",
        "INSERT INTO run_messages VALUES ('no run', NULL, 1, 'text', true, 0, 0)",
    ] {
        bench.run(statement).unwrap();
    }
    store.prune(noon(), &bench.ids).unwrap();
    let left = |what: &str| bench.run(&format!("SELECT {what}")).unwrap();
    for (table, id) in [
        ("webhook_deliveries", "delivery_id"),
        ("delegated_executions", "delegation_id"),
        ("secret_syncs", "sync_id"),
    ] {
        assert_eq!(left(&format!("count(*) FROM {table}")), "1", "{table}");
        assert_eq!(left(&format!("{id} FROM {table}")), "open");
    }
    assert_eq!(left("count(*) FROM run_messages"), "0");
}
