//! Proving: what is sound is said to be, what was damaged is found and named, and looking changes
//! nothing.

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use serde_json::json;

use crate::stage::Stage;

fn database(stage: &Stage) -> Connection {
    Connection::open(stage.state().join("record.db")).unwrap()
}

/// Changes the record behind its own back.
fn damage(stage: &Stage, sql: &str) {
    let connection = database(stage);
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)
        .unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn a_sound_record_is_said_to_be_sound() {
    let stage = Stage::with_record();
    let proved = stage.json(&["audit", "verify", "--json"]);
    let (key, hash) = (
        proved["public_key"].as_str().unwrap(),
        proved["last_hash"].as_str().unwrap(),
    );
    assert_eq!((key.len(), hash.len()), (64, 64));
    let expected = json!({
        "ok": true, "chain": "main", "rows": 5, "first_seq": 1, "last_seq": 5, "last_hash": hash,
        "checkpoints": 2, "rows_behind_checkpoint": 0, "end": "seal", "public_key": key,
    });
    assert_eq!(proved, expected);

    let ran = stage.run(&["audit", "verify"]);
    let sentence = ran.stdout.trim_end();
    assert!(
        sentence.starts_with("the record is sound: 5 rows and 2 checkpoints proved ("),
        "{ran:?}"
    );
    assert!(sentence.ends_with(&format!(" rows/s), signed by {key}")), "{ran:?}");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn a_file_that_cannot_be_read_is_said_to_be_damaged_once() {
    let stage = Stage::with_record();
    let path = stage.state().join("record.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    for command in [&["db", "status"][..], &["audit", "query"], &["audit", "verify"]] {
        let ran = stage.run(command);
        assert_eq!(ran.code, 1, "{command:?}: {}", ran.stderr);
        let told = |word: &str| ran.stderr.matches(word).count();
        assert_eq!(
            (told("damaged"), told("malformed")),
            (1, 1),
            "{command:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn the_first_bad_row_is_named() {
    for (sql, row, problem) in [
        (
            "UPDATE flow_events SET payload = replace(payload, 'one', 'eno') WHERE seq = 2",
            2,
            "changed",
        ),
        (
            "UPDATE flow_events SET actor_id = 'eve' WHERE seq IN (3, 4)",
            3,
            "changed",
        ),
        ("DELETE FROM flow_events WHERE seq = 4", 4, "missing"),
        (
            "DELETE FROM flow_events WHERE seq = 5",
            5,
            "truncated, the record should reach row 5",
        ),
    ] {
        let stage = Stage::with_record();
        damage(&stage, sql);
        stage.run(&["audit", "verify"]).failed(
            1,
            &format!("countersign: the record is not sound: row {row}: {problem}\n"),
        );
        let ran = stage.run(&["audit", "verify", "--json"]);
        let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            (ran.code, said),
            (1, json!({"ok": false, "row": row, "problem": problem}))
        );
    }
}

#[test]
fn a_lost_key_is_not_quietly_replaced() {
    let stage = Stage::with_record();
    let key = stage.state().join("record-key");
    std::fs::remove_file(&key).unwrap();
    stage.run(&["audit", "verify"]).failed(
        1,
        &format!(
            "countersign: the signing key `{}` is gone; put it back, for without it the record cannot be proved\n",
            key.display()
        ),
    );
    assert!(!key.exists());
    let told = stage.run(&["doctor"]).stdout;
    assert!(
        told.contains("the key that it was written with, `record-key`, is gone"),
        "{told}"
    );
    assert!(!key.exists());
}

/// A server that was killed leaves rows that no checkpoint covers; only a server may sign them.
#[test]
fn whoever_only_reads_signs_nothing() {
    let stage = Stage::with_record();
    damage(
        &stage,
        "DELETE FROM checkpoints WHERE seq = 5; UPDATE chain_heads SET checkpointed = 3;",
    );
    let signed = || {
        database(&stage)
            .query_row("SELECT count(*) FROM checkpoints", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(signed(), 1);
    for args in [
        &["audit", "query"][..],
        &["audit", "tail", "--no-follow"],
        &["audit", "verify"],
        &["audit", "export"],
    ] {
        assert_eq!(stage.run(args).code, 0, "{args:?}");
        assert_eq!(signed(), 1, "{args:?}");
    }
}
