//! Trouble with the disk or with others is said in a sentence, and passes when its cause does.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use countersign_gateway::audit::{Record, RecordError};
use countersign_store::sqlite::site;
use countersign_store::{Durability, OpenError, Options, Store};
use serde_json::json;

use crate::bench::{block_on, commit, events, verify};
use crate::on_sqlite::behaviour::crash::child;
use crate::on_sqlite::bench::Bench;

fn refusal(store: &Store, bench: &Bench) -> String {
    match commit(store, bench.note(0)) {
        Err(RecordError::Unavailable(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

fn impatient(bench: &Bench) -> Options {
    Options {
        busy_timeout: Duration::from_millis(50),
        ..bench.options()
    }
}

#[test]
fn a_lock_held_too_long_is_said_and_passes() {
    let bench = Bench::new();
    let store = Store::open(bench.path(), impatient(&bench)).unwrap();
    commit(&store, bench.note(1)).unwrap();
    let other = bench.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sentence = refusal(&store, &bench);
    assert!(
        sentence.starts_with("another process keeps the database locked"),
        "{sentence}"
    );
    // Reading goes on meanwhile.
    assert_eq!(store.tail(0).unwrap().len(), 1);
    other.execute_batch("ROLLBACK").unwrap();
    commit(&store, bench.note(2)).unwrap();
    assert_eq!(verify(&store).unwrap().rows, 2);
}

#[test]
fn a_record_that_cannot_be_written_is_not_ready_until_it_can() {
    let bench = Bench::new();
    let store = Store::open(bench.path(), impatient(&bench)).unwrap();
    store.ready().unwrap();
    let other = bench.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Nobody has tried to write yet.
    let told = store.ready().unwrap_err().to_string();
    assert!(told.contains("another process keeps the database locked"), "{told}");
    refusal(&store, &bench);
    other.execute_batch("ROLLBACK").unwrap();
    // The last writer met trouble, and the next one does not.
    assert!(store.ready().is_err());
    commit(&store, bench.note(1)).unwrap();
    store.ready().unwrap();
    assert_eq!(verify(&store).unwrap().rows, 1, "asking writes nothing");
}

#[test]
fn the_end_does_not_wait_for_others_beyond_its_time() {
    let bench = Bench::new();
    let patient = Options {
        busy_timeout: Duration::from_secs(300),
        ..bench.options()
    };
    let store = Store::open(bench.path(), patient).unwrap();
    commit(&store, bench.note(1)).unwrap();
    let other = bench.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // It waits already when the end is called.
    let waiting = store.commit(bench.note(2));
    let start = Instant::now();
    store.stop_within(Duration::from_millis(200));
    assert!(block_on(waiting).is_err());
    drop(store);
    assert!(start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
    other.execute_batch("ROLLBACK").unwrap();
    let store = Store::open(bench.path(), impatient(&bench)).unwrap();
    assert_eq!(verify(&store).unwrap().rows, 1);
}

#[test]
fn all_that_wait_are_refused_together() {
    let bench = Bench::new();
    let store = Store::open(bench.path(), impatient(&bench)).unwrap();
    let other = bench.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let pending: Vec<_> = (0..500).map(|it| store.commit(bench.note(it))).collect();
    for outcome in pending {
        assert!(block_on(outcome).is_err());
    }
    other.execute_batch("ROLLBACK").unwrap();
    commit(&store, bench.note(1)).unwrap();
}

#[test]
fn more_than_the_queue_holds_is_refused_at_once() {
    let bench = Bench::new();
    let store = bench.open();
    let other = bench.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut pending: Vec<_> = (0..1_100).map(|it| store.commit(bench.note(it))).collect();
    let last = block_on(pending.pop().unwrap()).unwrap_err();
    let sentence = "the record is unavailable: too many changes wait to be written";
    assert_eq!(last.to_string(), sentence);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(block_on(pending.swap_remove(0)).is_ok());
}

/// A file system of its own, small enough to fill. Needs root.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(directory.path())
            .output()
            .is_ok_and(|it| it.status.success())
            .then_some(Self(directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_said_and_passes() {
    let Some(small) = Small::mount() else {
        println!("left out: a small file system needs the right to mount");
        return;
    };
    let bench = Bench::new();
    let store = Store::open(small.0.path(), bench.options()).unwrap();
    commit(&store, bench.note(1)).unwrap();
    let ballast = small.0.path().join("ballast");
    fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    let mut accepted = 1;
    let big = || events(vec![bench.draft(&json!({"text": "x".repeat(10_000)}))]);
    let sentence = loop {
        match commit(&store, big()) {
            Ok(_) => accepted += 1,
            Err(error) => break error.to_string(),
        }
        assert!(accepted < 1_000, "the disk never filled");
    };
    let expected = "the record is unavailable: the disk is full";
    assert!(sentence.starts_with(expected), "{sentence}");
    assert!(commit(&store, big()).is_err());
    fs::remove_file(&ballast).unwrap();
    commit(&store, bench.note(2)).unwrap();
    assert_eq!(verify(&store).unwrap().rows, accepted + 1);
}

#[test]
fn a_file_taken_away_is_said_and_its_return_noticed() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.note(1)).unwrap();
    drop(store);
    let store = bench.open();
    commit(&store, bench.note(2)).unwrap();
    let aside = bench.path().join("aside");
    fs::create_dir(&aside).unwrap();
    let names = ["record.db", "record.db-wal", "record.db-shm"];
    for name in names {
        fs::rename(bench.path().join(name), aside.join(name)).unwrap();
    }
    let sentence = refusal(&store, &bench);
    assert!(sentence.contains("moved or deleted"), "{sentence}");
    // No empty record takes its place.
    let sentence = refusal(&store, &bench);
    assert!(sentence.contains("cannot be opened"), "{sentence}");
    for name in names {
        fs::rename(aside.join(name), bench.path().join(name)).unwrap();
    }
    commit(&store, bench.note(3)).unwrap();
    assert_eq!(verify(&store).unwrap().rows, 3);
}

#[test]
fn a_log_taken_away_stops_the_record_and_takes_no_row_with_it() {
    for names in [
        &["record.db-wal", "record.db-shm"][..],
        &["record.db-wal"],
        &["record.db-shm"],
    ] {
        let bench = Bench::new();
        let store = bench.open();
        for number in 0..5 {
            commit(&store, bench.note(number)).unwrap();
        }
        for name in names {
            fs::remove_file(bench.path().join(name)).unwrap();
        }
        for _ in 0..2 {
            let sentence = refusal(&store, &bench);
            assert!(sentence.contains("start them anew"), "{names:?}: {sentence}");
        }
        // As after a kill: nothing is left but the files.
        std::mem::forget(store);
        let store = bench.open();
        commit(&store, bench.note(6)).unwrap();
        assert_eq!(verify(&store).unwrap().rows, 6, "{names:?}");
    }
}

#[test]
fn a_log_cut_short_in_its_place_stops_the_record_before_it_is_damaged() {
    for kept in [0, 40, 5_000] {
        let bench = Bench::new();
        let store = bench.open();
        for number in 0..5 {
            commit(&store, bench.note(number)).unwrap();
        }
        let beside = bench.open();
        assert_eq!(beside.tail(0).unwrap().len(), 5);
        let log = OpenOptions::new().write(true).open(bench.path().join("record.db-wal"));
        log.unwrap().set_len(kept).unwrap();
        for _ in 0..2 {
            let sentence = refusal(&store, &bench);
            assert!(sentence.contains("start them anew"), "{kept}: {sentence}");
        }
        // One that has not written yet finds it too, and one that comes while others have it open.
        refusal(&beside, &bench);
        if let Ok(coming) = Store::open(bench.path(), bench.options()) {
            refusal(&coming, &bench);
        }
        drop(beside);
        drop(store);
        let store = bench.open();
        commit(&store, bench.note(6)).unwrap();
        verify(&store).unwrap();
    }
}

#[test]
fn a_log_that_others_begin_anew_is_not_taken_for_lost() {
    for durability in [Durability::Process, Durability::Power] {
        let bench = Bench::new();
        let options = Options {
            durability,
            ..bench.options()
        };
        let store = Store::open(bench.path(), options).unwrap();
        for number in 0..20 {
            for _ in 0..5 {
                commit(&store, bench.note(number)).unwrap();
            }
            let other = bench.sql();
            let how = ["TRUNCATE", "RESTART"][usize::from(number % 3 == 0)];
            other
                .query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()))
                .unwrap();
            // Shorter than it was, or with little in it.
            if number % 2 == 0 {
                other.execute_batch("CREATE TABLE other (x); DROP TABLE other").unwrap();
            }
        }
        assert_eq!(verify(&store).unwrap().rows, 100);
    }
}

#[test]
fn processes_that_come_and_go_under_load_do_not_take_the_log_for_lost() {
    let bench = Bench::new();
    let store = bench.open();
    let mut steady = child(&bench, 400);
    let mut rows = 800;
    for _ in 0..6 {
        let mut passing = [child(&bench, 15), child(&bench, 1)];
        rows += 2 * 16;
        while passing.iter_mut().any(|it| it.try_wait().unwrap().is_none()) {
            commit(&store, bench.note(0)).unwrap();
            rows += 1;
        }
        for mut child in passing {
            assert!(child.wait().unwrap().success());
        }
    }
    assert!(steady.wait().unwrap().success());
    assert_eq!(verify(&store).unwrap().rows, rows);
}

#[test]
fn a_damaged_file_is_said_and_its_repair_noticed() {
    let bench = Bench::new();
    drop(bench.open());
    let good = fs::read(bench.database()).unwrap();
    let store = bench.open();
    commit(&store, bench.note(1)).unwrap();
    drop(store);
    fs::write(bench.database(), b"this is no database, whatever it says it is").unwrap();
    let refused = Store::open(bench.path(), bench.options());
    assert!(matches!(
        refused,
        Err(OpenError::Sqlite(site::OpenError::Connect { .. }))
    ));
    fs::write(bench.database(), good).unwrap();
    let store = bench.open();
    commit(&store, bench.note(1)).unwrap();
    verify(&store).unwrap();
}

#[test]
fn pages_damaged_under_a_running_store_are_said() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.note(1)).unwrap();
    drop(store);
    let store = bench.open();
    let good = fs::read(bench.database()).unwrap();
    let mut bad = good.clone();
    bad[4096..].fill(0xa5);
    fs::write(bench.database(), bad).unwrap();
    let sentence = refusal(&store, &bench);
    assert!(sentence.starts_with("the database file is damaged"), "{sentence}");
    fs::write(bench.database(), good).unwrap();
    commit(&store, bench.note(2)).unwrap();
    assert_eq!(verify(&store).unwrap().rows, 2);
}

/// Says whether file modes bind this process at all; they do not bind root.
fn modes_bind(bench: &Bench) -> bool {
    let probe = bench.path().join("probe");
    fs::write(&probe, "").unwrap();
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o400)).unwrap();
    fs::OpenOptions::new().write(true).open(&probe).is_err()
}

#[test]
fn a_read_only_place_is_refused_and_noticed_when_it_opens() {
    let bench = Bench::new();
    drop(bench.open());
    if modes_bind(&bench) {
        fs::set_permissions(bench.database(), fs::Permissions::from_mode(0o400)).unwrap();
        assert!(Store::open(bench.path(), bench.options()).is_err());
        fs::set_permissions(bench.database(), fs::Permissions::from_mode(0o600)).unwrap();
        drop(bench.open());
        return;
    }
    let Some(small) = Small::mount() else {
        println!("left out: a read-only file system needs the right to mount");
        return;
    };
    let remount = |how: &str| {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{how}")]).arg(small.0.path());
        assert!(mount.status().unwrap().success());
    };
    drop(Store::open(small.0.path(), bench.options()).unwrap());
    remount("ro");
    assert!(Store::open(small.0.path(), bench.options()).is_err());
    remount("rw");
    let store = Store::open(small.0.path(), bench.options()).unwrap();
    commit(&store, bench.note(1)).unwrap();
}

#[test]
fn a_missing_head_row_is_said() {
    let bench = Bench::new();
    drop(bench.open());
    bench.force("DELETE FROM chain_heads");
    let store = bench.open();
    assert!(refusal(&store, &bench).contains("no rows"));
}

#[test]
fn a_record_that_another_took_the_place_of_is_not_written_into() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.note(1)).unwrap();
    for entry in fs::read_dir(bench.path()).unwrap().flatten() {
        let path = entry.path();
        let removed = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        removed.unwrap();
    }
    let other = bench.open();
    commit(&other, bench.note(2)).unwrap();
    refusal(&store, &bench);
    let sentence = refusal(&store, &bench);
    assert!(sentence.contains("start the server anew"), "{sentence}");
    drop(store);
    assert_eq!(verify(&other).unwrap().rows, 1);
}
