//! `db`: the database told of, brought up to date, and moved, as an operator does it.

use serde_json::Value;

use crate::postgres::cluster;
use crate::stage::Stage;

#[test]
fn an_operator_moves_a_record_to_postgresql_and_goes_on() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database().url;
    let stage = Stage::with_record();
    let before = stage.json(&["audit", "verify", "--json"]);
    let status = stage.json(&["db", "status", "--json"]);
    assert_eq!(status["engine"], "sqlite");
    assert_eq!(status["chains"][0]["last_seq"], before["last_seq"]);
    assert_eq!(
        (&status["pending"], &status["moved"]),
        (&Value::Array(Vec::new()), &Value::Null)
    );

    let migrated = stage.json(&["--database", &url, "db", "migrate", "--json"]);
    assert_eq!(migrated["from"], 0);
    let copied = stage.json(&["db", "copy", "--to", &url, "--json"]);
    for field in ["last_seq", "last_hash", "public_key"] {
        assert_eq!(copied[field], before[field], "{field}");
    }
    // The file is no longer gone on with, and says where the record is.
    let refused = stage.listing("ls").run(&["exec", "--", "ls"]);
    assert_ne!(refused.code, 0);
    assert!(
        refused.stderr.contains("moved to") && refused.stderr.contains("--database"),
        "{refused:?}"
    );

    let ran = stage
        .listing("ls")
        .run(&["--database", &url, "exec", "--", "rm", "one"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    let after = stage.json(&["--database", &url, "audit", "verify", "--json"]);
    assert_eq!((&after["ok"], &after["chain"]), (&true.into(), &"main".into()));
    assert!(after["last_seq"].as_u64() > before["last_seq"].as_u64(), "{after}");
    let status = stage.json(&["--database", &url, "db", "status", "--json"]);
    assert_eq!(
        (&status["engine"], &status["nodes"][0]["node"]),
        (&"postgresql".into(), &"main".into())
    );
    let told = stage.run(&["--database", &url, "db", "status"]);
    assert!(
        told.stdout.contains("up to date") && told.stdout.contains("node main"),
        "{told:?}"
    );
    let again = stage.run(&["--database", &url, "db", "migrate"]);
    assert!(again.stdout.contains("already"), "{again:?}");
}

#[test]
fn a_database_that_cannot_hold_every_text_is_refused_before_anything_is_in_it() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let latin = format!("{}_latin", database.name);
    let made = format!("CREATE DATABASE {latin} ENCODING 'LATIN1' TEMPLATE template0");
    cluster.run(&database, &made).unwrap();
    let (server, _) = database.url.rsplit_once('/').unwrap();
    let url = format!("{server}/{latin}");
    let stage = Stage::new();
    let refused = stage.run(&["--database", &url, "exec", "--", "ls"]);
    assert!(
        refused.code == 126 && refused.stderr.contains("keeps text as LATIN1") && refused.stderr.contains("'UTF8'"),
        "{refused:?}"
    );
    assert_eq!(
        stage.json(&["--database", &url, "db", "status", "--json"])["version"],
        0
    );
}

#[test]
fn an_address_that_is_not_one_of_postgresql_is_refused_before_anything_happens() {
    let stage = Stage::with_record();
    for (args, expected) in [
        (
            &["--database", "mysql://u:hush@h/d", "exec", "--", "ls"][..],
            "`--database`: the address of a database begins",
        ),
        (
            &["--database", "record.db", "audit", "verify"],
            "`postgres://USER@HOST/NAME`",
        ),
        (
            &["--database", "postgres://u:hush@h/d?sslmode=sometimes", "db", "status"],
            "`sslmode` is one of",
        ),
        (
            &["db", "copy", "--to", "mysql://u:hush@h/d"],
            "--to: the address of a database begins",
        ),
        (&["db", "copy"], "where to?"),
    ] {
        let ran = stage.run(args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(expected) && !ran.stderr.contains("hush"), "{ran:?}");
    }
    let mut command = stage.command(&["tokens", "list"]);
    command.env("COUNTERSIGN_DATABASE", "sqlite:///tmp/x");
    let ran = crate::stage::ran(command);
    assert!(ran.code == 2 && ran.stderr.contains("COUNTERSIGN_DATABASE"), "{ran:?}");
}
