//! Questions to the record, and what a state directory looks like.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use countersign_gateway::audit::event::{ApprovalState, EventType};
use countersign_gateway::clock::Timestamp;
use countersign_store::checkpoint::Checkpoint;
use countersign_store::sqlite::query::{Filter, Pick};
use countersign_store::sqlite::site::OpenError;
use countersign_store::{Options, SqliteStore};
use serde_json::json;

use crate::bench::{Bench, commit, events, fill, noon};

fn seqs(store: &SqliteStore, filter: Filter) -> Vec<u64> {
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
    assert_eq!(store.query_commands(&r2).unwrap(), [failed]);
    assert_eq!(store.query_commands(&all).unwrap().len(), 2);
    let ok = Filter {
        status: text("ok"),
        ..all
    };
    assert_eq!(store.query_commands(&ok).unwrap().len(), 1);
}

#[test]
fn a_request_id_is_found_by_its_index() {
    let bench = Bench::new();
    drop(bench.open());
    let plan: Vec<String> = bench
        .sql()
        .prepare(
            "EXPLAIN QUERY PLAN SELECT seq FROM flow_events WHERE seq > 0
             AND payload ->> '$.request_id' = 'r' AND event_type = 'command.completed' ORDER BY seq",
        )
        .unwrap()
        .query_map([], |row| row.get(3))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(plan.concat().contains("flow_events_by_request_id"), "{plan:?}");
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
        witness: Some(witness.clone()),
        ..Bench::options()
    };
    let store = SqliteStore::open(bench.path(), options()).unwrap();
    fill(&bench, &store, 2_100);
    let key = store.public_key().to_owned();
    drop(store);
    // Nothing new, nothing to sign.
    drop(SqliteStore::open(bench.path(), options()).unwrap());
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
fn the_state_directory_and_its_files_are_their_owners_alone() {
    let bench = Bench::new();
    let path = bench.path().join("state/nested");
    let store = SqliteStore::open(&path, Bench::options()).unwrap();
    commit(&store, bench.note(1)).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let mut names: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .inspect(|entry| assert_eq!(mode(&entry.path()), 0o600, "{entry:?}"))
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["record-key", "record.db", "record.db-shm", "record.db-wal"]);
}

#[test]
fn an_open_directory_is_closed_if_ours_and_refused_if_not() {
    let bench = Bench::new();
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        SqliteStore::open(path, Bench::options())
    };
    drop(open(bench.path()).unwrap());
    drop(open(bench.path()).unwrap());
    let mode = fs::metadata(bench.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let other = Bench::new();
    fs::write(other.path().join("letter"), "").unwrap();
    let refused = open(other.path());
    assert!(matches!(refused, Err(OpenError::Exposed { .. })));
}

#[test]
fn a_database_of_a_newer_program_is_refused() {
    let bench = Bench::new();
    drop(bench.open());
    bench.sql().pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteStore::open(bench.path(), Bench::options()).err().unwrap();
    let sentence = "the database has version 99, this program knows 3: it was written by a newer program";
    assert_eq!(refused.to_string(), sentence);
}
