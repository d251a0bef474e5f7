//! The record: read, exported, pruned.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use countersign_gateway::clock::Clock;
use serde_json::{Value, json};

use crate::stage::{Ran, Stage, ran};

const COLUMNS: [&str; 11] = [
    "chain",
    "seq",
    "event_id",
    "timestamp",
    "correlation_id",
    "actor_type",
    "actor_id",
    "event_type",
    "payload",
    "prev_hash",
    "hash",
];

#[test]
fn where_there_is_no_record_nothing_is_made() {
    let stage = Stage::new();
    let expected = format!(
        "countersign: there is no record in `{}`; `countersign exec` or a server starts one, `--state-dir` names another place\n",
        stage.state().display()
    );
    for args in [
        &["audit", "query"][..],
        &["audit", "tail"],
        &["audit", "verify"],
        &["audit", "export"],
        &["audit", "prune", "--before", "2026-11-15T10:00:00Z"],
    ] {
        stage.run(args).failed(1, &expected);
        assert!(!stage.state().exists(), "{args:?}");
    }
}

#[test]
fn events_have_the_columns_of_the_table_and_nothing_else() {
    let stage = Stage::with_record();
    let events = stage.json(&["audit", "query", "--kind", "event", "--json"]);
    let events = events.as_array().unwrap();
    for (index, event) in events.iter().enumerate() {
        let names: Vec<_> = event.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, COLUMNS);
        assert_eq!(event["seq"], index + 1);
        assert!(event["payload"].is_object());
    }
    let kinds: Vec<_> = events
        .iter()
        .map(|event| event["event_type"].as_str().unwrap())
        .collect();
    let each = ["command.received", "command.completed"];
    assert_eq!(kinds, ["policy.changed", each[0], each[1], each[0], each[1]]);
}

#[test]
fn the_policy_is_recorded_once_for_each_change() {
    let stage = Stage::with_record();
    let policies = || -> Vec<Value> {
        let events = stage.json(&["audit", "query", "--kind", "event", "--json"]);
        let changed = events
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["event_type"] == "policy.changed")
            .cloned();
        changed.collect()
    };
    let first = policies();
    assert_eq!(first.len(), 1, "two runs under one policy");
    assert_eq!(
        (&first[0]["actor_type"], &first[0]["actor_id"]),
        (&json!("system"), &json!("policy"))
    );
    let shown = stage
        .listing("ls")
        .run(&["policy", "show", "--effective", "--json"])
        .json();
    assert_eq!(first[0]["payload"], shown);

    stage.listing("ls,cat").run(&["exec", "--", "rm", "three"]);
    stage.listing("ls").run(&["exec", "--", "rm", "four"]);
    let later = policies();
    assert_eq!(later.len(), 3, "another one, and the first again");
    assert_eq!(later[2]["payload"], first[0]["payload"]);
    assert_ne!(later[1]["payload"]["digest"], first[0]["payload"]["digest"]);
}

#[test]
fn a_command_record_holds_what_was_asked_and_what_came_of_it() {
    let stage = Stage::with_record();
    let commands = stage.json(&["audit", "query", "--json"]);
    let mut first = commands[0].clone();
    for volatile in ["audit_id", "timestamp", "request_id", "duration_ms", "kept_digest"] {
        assert!(!first[volatile].take().is_null(), "{volatile}");
    }
    assert!(first["policy_snapshot"].take().is_object());
    let expected = json!({
        "arguments": ["one"],
        "audit_id": null,
        "command": "rm",
        "duration_ms": null,
        "error_code": "COMMAND_NOT_ALLOWED",
        "error_message": "`rm` is not on the allowlist; on it: `ls`",
        "exit_code": null,
        "kept_digest": null,
        "policy_snapshot": null,
        "request_id": null,
        "rule": "allowlist",
        "sandbox": [],
        "source": "environment ALLOWED_COMMANDS",
        "status": "rejected",
        "timestamp": null,
        "tool": "execute_process",
        "working_directory": stage.work().canonicalize().unwrap(),
    });
    assert_eq!(first, expected);
    assert_eq!(commands.as_array().unwrap().len(), 2);
}

#[test]
fn a_query_narrows_by_what_is_remembered() {
    let stage = Stage::with_record();
    let commands = stage.json(&["audit", "query", "--json"]);
    let find = |args: &[&str]| stage.json(&[&["audit", "query", "--json"], args].concat());
    assert_eq!(find(&["--limit", "1"]), json!([commands[1]]), "the latest");
    assert_eq!(find(&["--limit", "0"]), json!([]));
    assert_eq!(find(&["--status", "rejected"]), commands);
    assert_eq!(find(&["--status", "ok"]), json!([]));
    let request = commands[0]["request_id"].as_str().unwrap();
    assert_eq!(find(&["--request-id", request]), json!([commands[0]]));
    let events = find(&["--kind", "event", "--request-id", request]);
    assert_eq!(events.as_array().unwrap().len(), 2);
    let correlation = events[0]["correlation_id"].as_str().unwrap();
    assert_eq!(find(&["--correlation-id", correlation]), json!([commands[0]]));

    stage.run(&["audit", "query", "--status", "fine"]).failed(
        2,
        "countersign: `--status fine` is not a status; use one of `failed`, `ok`, `rejected`, `timeout`\n",
    );
    let unknown = stage.run(&["audit", "query", "--limit", "many"]);
    assert!(
        unknown.code == 2 && unknown.stderr.starts_with("countersign: invalid value 'many'"),
        "{unknown:?}"
    );
}

#[test]
fn a_query_may_name_a_period() {
    let stage = Stage::with_record();
    for kind in ["event", "command", "invocation", "envelope"] {
        let found = |period: &[&str]| {
            let asked = ["audit", "query", "--json", "--kind", kind];
            stage.json(&[&asked[..], period].concat()).as_array().unwrap().len()
        };
        let all = found(&[]);
        assert_eq!(found(&["--from", "1h"]), all, "{kind}");
        assert_eq!(found(&["--to", "1h"]), 0, "{kind}");
        assert_eq!(found(&["--from", "2h", "--to", "1h"]), 0, "{kind}");
    }
}

#[test]
fn what_cannot_be_is_not_answered_as_if_there_were_nothing() {
    let stage = Stage::with_record();
    for asked in [&["metrics"][..], &["audit", "query"]] {
        let backwards = stage.run(&[asked, &["--from", "1h", "--to", "2h"]].concat());
        assert!(
            backwards.code == 2 && backwards.stderr.contains("before it begins"),
            "{backwards:?}"
        );
        stage
            .run(&[asked, &["--from", "2100-01-01T00:00:00Z"]].concat())
            .failed(
                2,
                "countersign: the period begins at 2100-01-01T00:00:00.000Z, which is still to come; name a time that has \
                 passed\n",
            );
    }
    // 1 would say that a record was looked at and is not sound.
    for arguments in [&["nowhere.jsonl"][..], &["--witness", "nowhere.jsonl"]] {
        let ran = stage.run(&[&["audit", "verify"], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains("`nowhere.jsonl`"), "{ran:?}");
    }
}

#[test]
fn that_nothing_was_found_is_said_to_people_and_not_to_programs() {
    let stage = Stage::with_record();
    for list in [
        &["sessions", "list"][..],
        &["tokens", "list"],
        &["jobs", "list"],
        &["runs", "list"],
        &["audit", "query", "--status", "timeout"],
        &["audit", "query", "--kind", "invocation"],
    ] {
        let people = stage.run(list);
        assert_eq!(
            (people.code, people.stdout.as_str(), people.stderr.as_str()),
            (0, "", "there are none\n"),
            "{list:?}"
        );
        let programs = stage.run(&[list, &["--json"]].concat());
        assert_eq!(
            (programs.stdout.as_str(), programs.stderr.as_str()),
            ("[]\n", ""),
            "{list:?}"
        );
    }
}

#[test]
fn people_get_aligned_columns() {
    let stage = Stage::with_record();
    let table = stage.run(&["audit", "query"]).stdout;
    let lines: Vec<_> = table.lines().collect();
    assert!(
        lines[0].ends_with("  rm one") && lines[1].ends_with("  rm two"),
        "{table}"
    );
    assert!(lines[0].contains("Z  rejected  COMMAND_NOT_ALLOWED  "), "{table}");
    let events = stage.run(&["audit", "query", "--kind", "event"]).stdout;
    let second = events.lines().nth(1).unwrap();
    assert!(
        second.contains("  command.received   human:ada      ") && second.ends_with("  rm one"),
        "{events}"
    );
}

#[test]
fn an_export_is_private_stays_and_proves_itself() {
    let stage = Stage::with_record();
    let file = stage.work().join("record.jsonl");
    let name = file.to_str().unwrap();
    let ran = stage.run(&["audit", "export", "--output", name]);
    assert_eq!(
        ran.stdout,
        format!("wrote `{name}`; `countersign audit verify {name}` proves it without a server\n")
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(stage.run(&["audit", "export"]).stdout, text);
    assert_eq!(stage.run(&["audit", "export", "--output", "-"]).stdout, text);
    assert!(!stage.work().join("-").exists());

    stage.run(&["audit", "export", "--output", name]).failed(
        1,
        &format!("countersign: `{name}` exists and is not written over; name a new file or remove it\n"),
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    let elsewhere = Stage::new();
    let proved = elsewhere.json(&["audit", "verify", "--json", name]);
    let mut live = stage.json(&["audit", "verify", "--json"]);
    assert_eq!(live["end"], "seal");
    (live["end"], live["key"]) = ("signature".into(), "not compared".into());
    assert_eq!(proved, live);
    assert!(!elsewhere.state().exists());
    fs::write(&file, text.replacen("\"one\"", "\"eno\"", 1)).unwrap();
    elsewhere
        .run(&["audit", "verify", name])
        .failed(1, &format!("countersign: `{name}` is not sound: row 2: changed\n"));
}

#[test]
fn a_file_is_held_against_the_key_that_must_have_signed_it() {
    let stage = Stage::with_record();
    let file = stage.work().join("record.jsonl");
    let name = file.to_str().unwrap();
    stage.run(&["audit", "export", "--output", name]);
    let key = stage.json(&["audit", "verify", "--json"])["public_key"].clone();
    let (key, other) = (key.as_str().unwrap(), "0".repeat(64));

    let own = stage.json(&["audit", "verify", "--json", name]);
    assert_eq!(own["key"], "own");
    let ran = stage.run(&["audit", "verify", name]);
    assert!(ran.stdout.ends_with(&format!(
        "its end signed by {key}\nthe key is that of this state directory\n"
    )));
    // Another installation has another key, and one that has none can compare nothing.
    let another = Stage::with_record();
    assert_eq!(another.json(&["audit", "verify", "--json", name])["key"], "another");
    let ran = another.run(&["audit", "verify", name]);
    assert_eq!(ran.code, 0);
    assert!(
        ran.stderr
            .contains("the key is another than that of this state directory"),
        "{ran:?}"
    );
    let ran = Stage::new().run(&["audit", "verify", name]);
    assert!(ran.stderr.contains("the key was compared with none"), "{ran:?}");

    let named = another.json(&["audit", "verify", "--json", "--key", key, name]);
    assert_eq!((&named["ok"], &named["key"]), (&true.into(), &"named".into()));
    another.run(&["audit", "verify", "--key", &other, name]).failed(
        1,
        &format!("countersign: `{name}` is not sound: it is signed by key `{key}`, expected `{other}`\n"),
    );
    // The same of the live record.
    assert_eq!(stage.run(&["audit", "verify", "--key", key]).code, 0);
    stage.run(&["audit", "verify", "--key", &other]).failed(
        1,
        &format!("countersign: the record is not sound: it is signed by key `{key}`, expected `{other}`\n"),
    );
    assert_eq!(stage.run(&["audit", "verify", "--key", "zz", name]).code, 2);
}

#[test]
fn a_witness_that_was_told_nothing_is_said_to_prove_nothing() {
    let stage = Stage::with_record();
    let empty = stage.work().join("empty.jsonl");
    fs::write(&empty, "").unwrap();
    let name = empty.to_str().unwrap();
    let ran = stage.run(&["audit", "verify", "--witness", name]);
    assert!(ran.stdout.contains("the witness proves nothing"), "{ran:?}");
    assert_eq!(
        stage.json(&["audit", "verify", "--json", "--witness", name])["witnessed"],
        0
    );
}

#[test]
fn a_pruned_record_still_verifies() {
    let stage = Stage::with_record();
    let prune = |before: &str| stage.run(&["audit", "prune", "--before", before]);
    prune("yesterday").failed(
        2,
        "countersign: `--before`: `yesterday` is not an RFC 3339 time such as `2026-11-15T10:00:00Z`\n",
    );
    assert_eq!(
        prune("2020-01-01T00:00:00Z").stdout,
        "nothing to remove: no row is older than 2020-01-01T00:00:00.000Z\n"
    );
    let now = Clock::system().now().to_string();
    let pruned = stage.json(&["audit", "prune", "--json", "--before", &now]);
    assert_eq!(
        pruned,
        json!({"before": now, "up_to_seq": 5, "rows": 5, "commands": 2, "held": false})
    );
    let proved = stage.json(&["audit", "verify", "--json"]);
    assert_eq!((&proved["first_seq"], &proved["rows"]), (&json!(6), &json!(1)));
}

#[test]
fn a_day_to_come_empties_no_record() {
    let stage = Stage::with_record();
    stage
        .run(&["audit", "prune", "--before", "2100-01-01T00:00:00Z"])
        .failed(
            2,
            "countersign: `--before`: 2100-01-01T00:00:00.000Z is still to come, and every row is older; name a time that \
             has passed\n",
        );
    let proved = stage.json(&["audit", "verify", "--json"]);
    assert_eq!((&proved["first_seq"], &proved["rows"]), (&json!(1), &json!(5)));
}

/// Runs it where the state directory is mounted read-only; none where nobody may mount.
fn read_only(stage: &Stage, words: &str) -> Option<Ran> {
    let (inner, state) = (stage.command(&[]), stage.state());
    let mut alone = Command::new("unshare");
    let (state, program) = (state.display(), inner.get_program().to_str().unwrap());
    let line = format!("mount --bind {state} {state} && mount -o remount,bind,ro {state} && exec {program} {words}");
    alone
        .args(["--map-root-user", "--mount", "sh", "-c", &line])
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir(stage.work());
    let ran = ran(alone);
    let can = !ran.stderr.contains("unshare") && !ran.stderr.contains("mount:");
    can.then_some(ran)
}

#[test]
fn a_record_that_cannot_be_written_is_read_all_the_same() {
    let stage = Stage::with_record();
    let words = [
        "audit verify --json",
        "audit query --json",
        "audit export",
        "tokens list --json",
    ];
    let read = |words: &str| stage.run(&words.split(' ').collect::<Vec<_>>()).stdout;
    let told = words.map(read);
    for (words, told) in words.iter().zip(&told) {
        let Some(ran) = read_only(&stage, words) else {
            eprintln!("skipped: no mounts of one's own here");
            return;
        };
        assert_eq!((ran.code, &ran.stdout, ran.stderr.as_str()), (0, told, ""), "{words}");
    }
    // One file, as a backup is.
    let log = stage.state().join("record.db-wal");
    let alone = |version: u32| {
        let database = rusqlite::Connection::open(stage.state().join("record.db")).unwrap();
        database.pragma_update(None, "user_version", version).unwrap();
        let copied = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        copied.unwrap();
        drop(database);
        for beside in [log.clone(), stage.state().join("record.db-shm")] {
            let _ = fs::remove_file(beside);
        }
    };
    let version = stage.json(&["db", "status", "--json"])["version"].as_u64().unwrap();
    let version = u32::try_from(version).unwrap();
    // One that would have to be brought up to date.
    alone(version - 1);
    let ran = read_only(&stage, "audit verify").unwrap();
    let told_version = format!("the database has version {}, this program reads {version}", version - 1);
    assert!(ran.code == 1 && ran.stderr.contains(&told_version), "{ran:?}");
    alone(version);
    for (words, told) in words.iter().zip(&told) {
        let ran = read_only(&stage, words).unwrap();
        assert_eq!((ran.code, &ran.stdout, ran.stderr.as_str()), (0, told, ""), "{words}");
    }
    // What only a writer could put in order is not passed over.
    fs::write(&log, "torn").unwrap();
    let ran = read_only(&stage, "audit verify").unwrap();
    assert!(
        ran.code == 1 && ran.stderr.contains("copy it to where it can be written"),
        "{ran:?}"
    );
    let ran = read_only(&stage, "audit prune --before 2020-01-01T00:00:00Z").unwrap();
    assert!(ran.code == 1 && ran.stderr.contains("read-only"), "{ran:?}");
}

#[test]
fn commands_of_the_terminal_are_no_invocations() {
    let stage = Stage::with_record();
    for kind in ["invocation", "envelope"] {
        assert_eq!(
            stage.json(&["audit", "query", "--kind", kind, "--json"]),
            json!([]),
            "{kind}"
        );
        assert_eq!(stage.run(&["audit", "query", "--kind", kind]).stdout, "", "{kind}");
    }
    stage
        .run(&["audit", "query", "--kind", "invocation", "--status", "rejected"])
        .failed(
            2,
            "countersign: `--status rejected` is not a status; use one of `error`, `ok`\n",
        );
    stage
        .run(&["audit", "query", "--kind", "envelope", "--status", "ok"])
        .failed(
            2,
            "countersign: `--status ok` is not a status; use one of `accepted`, `refused`\n",
        );
    let commands = stage.json(&["audit", "query", "--json"]);
    assert_eq!(commands.as_array().map(Vec::len), Some(2), "{commands}");
}

#[test]
fn a_witness_that_cannot_be_told_is_named() {
    let stage = Stage::new();
    stage.operator("audit: {witness: /nowhere/witness.jsonl}\n");
    let ran = stage.run(&["exec", "--", "ls"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr
            .contains("`/nowhere/witness.jsonl`: No such file or directory"),
        "{ran:?}"
    );
}

/// Elsewhere it would be where commands can write it.
#[test]
fn a_witness_is_where_the_configuration_says_wherever_the_command_runs() {
    let stage = Stage::new();
    let file = stage.operator("audit: {witness: told.jsonl}\n");
    assert_eq!(stage.run(&["exec", "--", "ls"]).code, 0);
    assert!(file.with_file_name("told.jsonl").exists() && !stage.work().join("told.jsonl").exists());
    stage.operator("audit: {witness: ~/told.jsonl}\n");
    assert_eq!(stage.run(&["exec", "--", "ls"]).code, 0);
    assert!(stage.home().join("told.jsonl").exists());
}
