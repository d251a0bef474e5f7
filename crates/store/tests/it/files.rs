//! What only a record in a file can show: its pages, its modes, its place.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::session::Role;
use countersign_store::OpenError;
use countersign_store::prove::{Fault, Flaw};
use countersign_store::sqlite::site;
use countersign_store::sqlite::verify::VerifyError;

use crate::bench::{commit, fill, later, open_at, verify};
use crate::on_sqlite::behaviour::tokens::{comes_to_be, make};
use crate::on_sqlite::bench::Bench;

const ROWS: u64 = 20;

#[test]
fn a_change_on_the_raw_pages_is_found() {
    let bench = Bench::new();
    fill(&bench, &bench.open(), ROWS);
    let mut bytes = std::fs::read(bench.database()).unwrap();
    let needle = br#"{"number":13}"#;
    // Also on pages that were split: an old copy may stand there, unused.
    for place in 0..bytes.len() - needle.len() {
        if bytes[place..].starts_with(needle) {
            bytes[place + 11] = b'9';
        }
    }
    std::fs::write(bench.database(), bytes).unwrap();
    let flaw = flaw(&bench);
    assert_eq!(flaw.fault, Fault::Changed);
    assert_eq!(flaw.to_string(), "row 13: changed");
}

#[test]
fn a_record_rewritten_and_linked_again_breaks_on_its_checkpoint() {
    // Everything an editor without the key can do: new rows, links, head, and the old signature.
    let bench = Bench::new();
    fill(&bench, &bench.open(), ROWS);
    let other = Bench::new();
    fill(&other, &other.open(), ROWS);
    let path = other.database().display().to_string();
    bench.force(&format!(
        "ATTACH '{path}' AS other; DELETE FROM flow_events;
         INSERT INTO flow_events SELECT * FROM other.flow_events;
         UPDATE chain_heads SET hash = (SELECT hash FROM other.chain_heads);"
    ));
    let mismatch = Fault::CheckpointMismatch;
    let flaw = flaw(&bench);
    assert_eq!((flaw.seq, flaw.fault), (ROWS, mismatch));
}

#[test]
fn no_key_is_made_beside_a_record_that_has_rows_whatever_else_is_gone() {
    let without_key = |rows: u64| {
        let bench = Bench::new();
        fill(&bench, &bench.open(), rows);
        for name in ["record-key", "record-sealed"] {
            fs::remove_file(bench.path().join(name)).unwrap();
        }
        let opened = open_at(bench.path()).map(drop);
        (opened, bench.path().join("record-key").exists())
    };
    let (refused, is_made) = without_key(1);
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("is gone") && told.contains("put it back"), "{told}");
    assert!(!is_made);
    let (opened, is_made) = without_key(0);
    opened.unwrap();
    assert!(is_made);
}

#[test]
fn nothing_of_pruned_rows_is_left_in_the_files() {
    let marks = |bench: &Bench| {
        let files = ["record.db", "record.db-wal"].map(|name| fs::read(bench.path().join(name)).unwrap());
        files.map(|bytes| bytes.windows(8).filter(|it| it == b"leaked-1").count())
    };
    let bench = Bench::new();
    let store = bench.open();
    for number in 0..200 {
        // In rows, in keys, and in values that take several pages.
        let name = format!("leaked-1-{number}");
        commit(&store, bench.opening(&name, &name)).unwrap();
        let mut closing = bench.closing(&name, &name, "ok");
        let close = closing.close.as_mut().unwrap();
        close.stdout = Arc::new(name.repeat(number * 5).into_bytes());
        commit(&store, closing).unwrap();
    }
    commit(&store, bench.opening("stays", "d")).unwrap();
    assert!(marks(&bench).iter().sum::<usize>() > 1_000);
    let pruned = store.prune(later(), &bench.ids).unwrap();
    assert_eq!((pruned.rows, pruned.commands), (400, 200));
    assert_eq!(marks(&bench), [0, 0]);
    verify(&store).unwrap();
    drop(store);
    assert_eq!(marks(&bench), [0, 0]);
}

#[test]
fn the_state_directory_and_its_files_are_their_owners_alone() {
    let bench = Bench::new();
    let path = bench.path().join("state/nested");
    let store = open_at(&path).unwrap();
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
    assert_eq!(
        names,
        [
            "record-key",
            "record-sealed",
            "record.db",
            "record.db-shm",
            "record.db-wal"
        ]
    );
}

#[test]
fn an_open_directory_is_closed_if_ours_and_refused_if_not() {
    let bench = Bench::new();
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        open_at(path)
    };
    drop(open(bench.path()).unwrap());
    drop(open(bench.path()).unwrap());
    let mode = fs::metadata(bench.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let other = Bench::new();
    fs::write(other.path().join("letter"), "").unwrap();
    let refused = open(other.path());
    assert!(matches!(
        refused,
        Err(OpenError::Sqlite(site::OpenError::Exposed { .. }))
    ));
}

#[test]
fn a_database_of_a_newer_program_is_refused() {
    let bench = Bench::new();
    drop(bench.open());
    let known: i64 = bench
        .sql()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    bench.sql().pragma_update(None, "user_version", 99).unwrap();
    let refused = open_at(bench.path()).err().unwrap();
    let sentence =
        format!("the database has version 99, this program knows {known}: it was written by a newer program");
    assert_eq!(refused.to_string(), sentence);
}

#[test]
fn a_token_that_another_process_has_just_made_is_not_refused() {
    let bench = Bench::new();
    let (serving, beside) = (bench.open(), bench.open());
    let credentials = serving.credentials();
    for name in ["one", "two", "three"] {
        assert_eq!(credentials.authenticate("cs_agent_nobody"), None);
        let made = make(&beside, Role::Agent, name);
        // A little longer than whoever guesses is made to wait, and shorter than the next look.
        std::thread::sleep(Duration::from_millis(10));
        assert!(credentials.authenticate(&made.token).is_some(), "{name}");
    }
}

#[test]
fn a_store_that_cannot_be_read_lets_nobody_new_in() {
    let bench = Bench::new();
    let serving = bench.open();
    let known = make(&serving, Role::Agent, "known");
    let newer = make(&serving, Role::Agent, "new");
    let credentials = serving.credentials();
    let untouched = serving.credentials();
    assert!(credentials.authenticate(&known.token).is_some());
    let database = bench.database();
    let away = database.with_extension("away");
    std::fs::rename(&database, &away).unwrap();
    assert_eq!(untouched.authenticate(&newer.token), None);
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        credentials.authenticate(&known.token).is_some(),
        "whoever was known stays known"
    );
    std::fs::rename(&away, &database).unwrap();
    comes_to_be(|| untouched.authenticate(&newer.token).is_some());
}

fn flaw(bench: &Bench) -> Flaw {
    match verify(&bench.open()) {
        Err(VerifyError::Flawed(flaw)) => flaw,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rare_kind_is_found_by_its_index() {
    let bench = Bench::new();
    drop(bench.open());
    let plan: Vec<String> = bench
        .sql()
        .prepare(
            "EXPLAIN QUERY PLAN SELECT seq FROM flow_events WHERE seq > 0 AND event_type = 'audit.pruned'
             AND event_type <> 'command.received' AND event_type <> 'command.validated'
             AND event_type <> 'command.dispatched' AND event_type <> 'command.completed' ORDER BY seq",
        )
        .unwrap()
        .query_map([], |row| row.get(3))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(plan.concat().contains("flow_events_by_rare_type"), "{plan:?}");
}
