//! The guide to backups, followed to the letter.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::postgres::cluster;
use crate::stage::Stage;

/// The shell blocks of a part of the guide, in order.
fn blocks(heading: &str) -> Vec<String> {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/backup.md")).unwrap();
    let part = guide.split("\n## ").find(|part| part.starts_with(heading)).unwrap();
    let blocks = part.split("```sh\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

fn follow(stage: &Stage, block: &str, names: &[(&str, &str)]) {
    let programs = Path::new(env!("CARGO_BIN_EXE_countersign")).parent().unwrap();
    let mut places = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect::<Vec<_>>();
    places.insert(0, programs.to_owned());
    let mut given: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    places.append(&mut given);
    let done = Command::new("sh")
        .args(["-eu", "-c", block])
        .env("HOME", stage.home())
        .env("PATH", std::env::join_paths(places).unwrap())
        .envs(names.iter().copied())
        .current_dir(stage.work())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{block}\n{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn the_guide_to_backups_works_as_it_is_written() {
    let stage = Stage::with_record();
    let place = tempfile::tempdir().unwrap();
    let (backup, restored) = (place.path().join("backup"), place.path().join("restored"));
    fs::create_dir(&backup).unwrap();
    let state = stage.state();
    let names = [
        ("STATE", state.to_str().unwrap()),
        ("BACKUP", backup.to_str().unwrap()),
        ("RESTORED", restored.to_str().unwrap()),
    ];
    let [make, restore] = blocks("A record in a file").try_into().unwrap();
    let before = stage.json(&["audit", "verify", "--json"]);
    follow(&stage, &make, &names);
    // What came later is not in it.
    assert_eq!(stage.listing("ls").run(&["exec", "--", "rm", "three"]).code, 126);
    follow(&stage, &restore, &names);
    let at = ["--state-dir", restored.to_str().unwrap()];
    let verify = ["audit", "verify", "--json"];
    assert_eq!(
        stage.json(&[&at[..], &verify[..]].concat())["last_hash"],
        before["last_hash"]
    );
    let went_on = stage
        .listing("ls")
        .run(&[&at[..], &["exec", "--", "rm", "four"]].concat());
    assert_eq!(went_on.code, 126, "{went_on:?}");
    let after = stage.json(&[&at[..], &verify[..]].concat());
    assert!(after["last_seq"].as_u64() > before["last_seq"].as_u64(), "{after}");
}

#[test]
fn what_is_to_be_kept_with_a_backup_is_there() {
    let stage = Stage::with_record();
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("copy.db");
    let told = stage.run(&["db", "backup", "--output", copy.to_str().unwrap()]).stdout;
    let (_, keep) = told.split_once("\nKeep ").expect("what to keep");
    let names: Vec<&str> = keep.split('`').skip(1).step_by(2).collect();
    assert!(!names.is_empty(), "{told}");
    for name in names {
        assert!(stage.state().join(name).exists(), "{told}");
    }
}

#[test]
fn a_dump_of_a_database_is_restored_proved_and_gone_on_with() {
    let Some(cluster) = cluster() else { return };
    let (database, new) = (cluster.database().socket_url, cluster.database().socket_url);
    let stage = Stage::new();
    let refused = |at: &[&str], word: &str| {
        let ran = stage.listing("ls").run(&[at, &["exec", "--", "rm", word]].concat());
        assert_eq!(ran.code, 126, "{ran:?}");
    };
    refused(&["--database", &database], "one");
    let place = tempfile::tempdir().unwrap();
    let (backup, restored) = (place.path().join("backup"), place.path().join("restored"));
    fs::create_dir(&backup).unwrap();
    let state = stage.state();
    let names = [
        ("STATE", state.to_str().unwrap()),
        ("BACKUP", backup.to_str().unwrap()),
        ("RESTORED", restored.to_str().unwrap()),
        ("DATABASE", database.as_str()),
        ("NEW", new.as_str()),
    ];
    let [make, restore] = blocks("PostgreSQL").try_into().unwrap();
    follow(&stage, &make, &names);
    let before = stage.json(&["--database", &database, "audit", "verify", "--json"]);
    follow(&stage, &restore, &names);
    let at = ["--state-dir", restored.to_str().unwrap(), "--database", &new];
    refused(&at, "two");
    let after = stage.json(&[&at[..], &["audit", "verify", "--json"]].concat());
    assert_eq!((&after["ok"], &after["chain"]), (&true.into(), &before["chain"]));
    assert!(after["last_seq"].as_u64() > before["last_seq"].as_u64(), "{after}");
}
