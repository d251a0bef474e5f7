//! Questions to the record, and what a state directory looks like.

use std::fs;

use countersign_gateway::audit::event::{ApprovalState, Draft, EventType};
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::clock::Timestamp;
use countersign_store::checkpoint::Checkpoint;
use countersign_store::witness::WitnessAt;
use countersign_store::{Options, Store};
use serde_json::json;

use super::super::bench::{Bench, commit, events, fill, noon};

fn seqs(store: &Store, filter: Filter) -> Vec<u64> {
    let rows = store.query_events(&filter).unwrap();
    rows.iter().map(|row| row.seq).collect()
}

#[test]
fn every_part_of_a_filter_narrows() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("r1", "d1")).unwrap();
    commit(&store, bench.opening("r2", "d2")).unwrap();
    commit(&store, bench.closing("r1", "d1", "ok")).unwrap();
    commit(&store, bench.closing("r2", "d2", "failed")).unwrap();
    let asked = bench.draft(&json!({})).in_state(ApprovalState::Pending);
    commit(&store, events(vec![asked])).unwrap();
    let later = Timestamp::from_millis(noon().as_millis() + 1_000);
    commit(&store, events(vec![bench.draft_at(later, &json!({}))])).unwrap();
    let all = Filter::everything();
    let text = |it: &str| Some(it.to_owned());
    let completed = Some(EventType::CommandCompleted);
    for (filter, expected) in [
        (all.clone(), vec![1, 2, 3, 4, 5, 6]),
        (
            Filter {
                request_id: text("r1"),
                ..all.clone()
            },
            vec![1, 3],
        ),
        (
            Filter {
                request_id: text("r9"),
                ..all.clone()
            },
            vec![],
        ),
        (
            Filter {
                correlation_id: text("call-r2"),
                ..all.clone()
            },
            vec![2, 4],
        ),
        (
            Filter {
                event_type: completed,
                ..all.clone()
            },
            vec![3, 4],
        ),
        (
            Filter {
                status: text("ok"),
                ..all.clone()
            },
            vec![3],
        ),
        (
            Filter {
                status: text("pending"),
                ..all.clone()
            },
            vec![5],
        ),
        (
            Filter {
                from: Some(later),
                ..all.clone()
            },
            vec![6],
        ),
        (
            Filter {
                to: Some(later),
                ..all.clone()
            },
            vec![1, 2, 3, 4, 5],
        ),
        (
            Filter {
                after: Some(4),
                ..all.clone()
            },
            vec![5, 6],
        ),
        (
            Filter {
                limit: 2,
                ..all.clone()
            },
            vec![1, 2],
        ),
        (
            Filter {
                limit: 2,
                pick: Pick::Newest,
                ..all.clone()
            },
            vec![5, 6],
        ),
    ] {
        assert_eq!(seqs(&store, filter.clone()), expected, "{filter:?}");
    }
    let r2 = Filter {
        request_id: text("r2"),
        ..all.clone()
    };
    let failed = json!({"request_id": "r2", "status": "failed"});
    let found: Result<Vec<_>, _> = store.query_commands(&r2).unwrap().into_iter().collect();
    let mut found = found.unwrap();
    assert!(found[0].as_object_mut().unwrap().remove("kept_digest").is_some());
    assert_eq!(found, [failed]);
    assert_eq!(store.query_commands(&all).unwrap().len(), 2);
    let ok = Filter {
        status: text("ok"),
        ..all
    };
    assert_eq!(store.query_commands(&ok).unwrap().len(), 1);
}

/// Whatever the clock did: rows are found by their own moments, not by their neighbours'.
#[test]
fn a_time_range_is_found_in_a_long_record() {
    let bench = Bench::new();
    let store = bench.open();
    let moment = |second: i64| Timestamp::from_millis(noon().as_millis() + second * 1_000);
    // Forward, an hour back, forward again, and one row of long ago among the last.
    let seconds: Vec<i64> = (0..1_100)
        .chain(-3_600..-3_000)
        .chain(1_100..1_300)
        .chain([-9_000, 1_300])
        .collect();
    let drafts: Vec<_> = seconds
        .iter()
        .map(|second| bench.draft_at(moment(*second), &json!({})))
        .collect();
    for chunk in drafts.chunks(100) {
        commit(&store, events(chunk.to_vec())).unwrap();
    }
    for (from, to) in [
        (None, Some(-3_500)),
        (Some(-3_100), Some(10)),
        (Some(-9_000), Some(-8_999)),
        (Some(0), Some(1)),
        (Some(1_099), Some(1_101)),
        (Some(1_299), None),
        (Some(1_400), None),
        (None, Some(-10_000)),
        (Some(5), Some(5)),
    ] {
        let filter = Filter {
            from: from.map(moment),
            to: to.map(moment),
            limit: 10_000,
            ..Filter::everything()
        };
        let is_within = |second: &i64| from.is_none_or(|from| *second >= from) && to.is_none_or(|to| *second < to);
        let expected: Vec<u64> = (1..)
            .zip(&seconds)
            .filter(|(_, second)| is_within(second))
            .map(|(seq, _)| seq)
            .collect();
        assert_eq!(seqs(&store, filter), expected, "{from:?} {to:?}");
    }
    store.prune(moment(600), &bench.ids).unwrap();
    // What the prune notes of itself is of the bench's clock, noon.
    let pruned = Filter {
        event_type: Some(EventType::AuditPruned),
        ..Filter::everything()
    };
    assert_eq!(seqs(&store, pruned).len(), 1);
    assert_eq!(
        seqs(
            &store,
            Filter {
                from: Some(moment(599)),
                to: Some(moment(601)),
                ..Filter::everything()
            }
        ),
        [601]
    );
}

#[test]
fn the_tail_is_what_came_since() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 5);
    assert_eq!(store.tail(3).unwrap().len(), 2);
    assert_eq!(store.tail(5).unwrap(), []);
}

#[test]
fn checkpoints_go_to_the_witness_as_lines() {
    let bench = Bench::new();
    let witness = bench.path().join("witness.jsonl");
    let options = || Options {
        witness: Some(WitnessAt::File(witness.clone())),
        ..bench.options()
    };
    let store = Store::open(bench.path(), options()).unwrap();
    fill(&bench, &store, 2_100);
    let key = store.public_key().to_owned();
    drop(store);
    // Nothing new, nothing to sign.
    drop(Store::open(bench.path(), options()).unwrap());
    let text = fs::read_to_string(&witness).unwrap();
    let seen: Vec<_> = text
        .lines()
        .map(|line| Checkpoint::from_json(&serde_json::from_str(line).unwrap()).unwrap())
        .inspect(|checkpoint| assert!(checkpoint.is_signed_by(&key)))
        .map(|checkpoint| (checkpoint.kind.as_str(), checkpoint.seq))
        .collect();
    assert_eq!(seen, [("periodic", 1_000), ("periodic", 2_000), ("stop", 2_100)]);
}

#[test]
fn every_closing_of_a_request_id_is_found_in_the_chain_also_one_without_a_kept_command() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("r1", "d1")).unwrap();
    commit(&store, bench.closing("r1", "d1", "ok")).unwrap();
    // The same id for something else, and one that was never entered: each is refused and leaves its events only.
    for (id, code) in [("r1", "CONFLICT"), ("r2", "QUEUE_FULL")] {
        let mut received = bench.draft(&json!({"request_id": id}));
        let mut closing = bench.closing(id, "d2", "rejected").events.remove(0);
        closing = Draft::new(
            bench.ids.event(),
            closing.timestamp,
            bench.ids.correlation(),
            closing.actor,
            EventType::CommandCompleted,
            &json!({"request_id": id, "status": "rejected", "error_code": code}),
        );
        received.correlation_id = closing.correlation_id.clone();
        commit(&store, events(vec![received, closing])).unwrap();
    }
    let by = |id: &str| Filter {
        request_id: Some(id.to_owned()),
        ..Filter::everything()
    };
    let statuses = |id: &str| {
        let found = store.query_commands(&by(id)).unwrap().into_iter();
        found
            .map(|it| it.unwrap()["status"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses("r1"), ["ok", "rejected"]);
    assert_eq!(statuses("r2"), ["rejected"]);
    assert_eq!(seqs(&store, by("r1")), [1, 2, 3, 4]);
    assert_eq!(seqs(&store, by("r2")), [5, 6]);
    // What stands beside the chain has no say in it.
    bench.force("DELETE FROM commands");
    assert_eq!(statuses("r1"), ["ok", "rejected"]);
    assert_eq!(seqs(&store, by("r1")), [1, 2, 3, 4]);
}
