//! The data model of safe commands: every field and rule of its four entities, and the states a
//! request passes through, as they stand in the record.

use std::path::Path;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::record::WHOLE_WAY;

#[test]
fn every_field_of_a_request_is_read_and_recorded() {
    let bench = Bench::allowing("echo");
    let mut server = Server::start(&bench);
    let outcome = server.call(
        "run_command",
        json!({
            "request_id": "mine-1", "command": "echo", "args": ["a", "b"], "working_directory": bench.work(),
            "requested_timeout_seconds": 5, "requested_at": "2026-11-15T10:00:00Z", "caller_id": "builder",
        }),
    );
    assert_eq!((outcome.ok(), outcome.id()), ("a b\n", "mine-1"));
    let record = bench.recorded(&outcome);
    assert_eq!(record["caller_id"], "builder");
    assert_eq!(
        (&record["command"], &record["arguments"]),
        (&json!("echo"), &json!(["a", "b"]))
    );
    let [received] = &payloads(&bench, "command.received")[..] else {
        panic!("one request");
    };
    assert_eq!(received["timeout_ms"], 5_000, "{received}");
    let requested_at = received["requested_at"].as_str().unwrap();
    assert!(requested_at.starts_with("2026-11-15T10:00:00"), "{received}");
    // What was asked for is what it got.
    assert_eq!(payloads(&bench, "command.dispatched")[0]["timeout_ms"], 5_000);
}

/// What the events of a kind say, oldest first.
fn payloads(bench: &Bench, kind: &str) -> Vec<Value> {
    let database = bench.database();
    let query = "SELECT payload FROM flow_events WHERE event_type = ?1 ORDER BY seq";
    let mut statement = database.prepare(query).unwrap();
    let rows = statement.query_map([kind], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|payload| serde_json::from_str(&payload.unwrap()).unwrap())
        .collect()
}

#[test]
fn request_id_and_requested_at_are_filled_in() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    let ids: Vec<String> = (0..2)
        .map(|_| {
            server
                .call("run_command", json!({"command": "true", "working_directory": "."}))
                .id()
                .to_owned()
        })
        .collect();
    assert!(
        ids.iter()
            .all(|id| id.len() == 26 && id.chars().all(|c| c.is_ascii_alphanumeric())),
        "{ids:?}"
    );
    assert_ne!(ids[0], ids[1]);
    let received = payloads(&bench, "command.received");
    let times: Vec<&str> = received
        .iter()
        .map(|received| received["requested_at"].as_str().expect("filled in"))
        .collect();
    assert_eq!(times.len(), 2);
    for time in &times {
        assert!(countersign_gateway::clock::Timestamp::parse(time).is_ok(), "{time}");
    }
    assert!(times[0] <= times[1], "{times:?}");
}

#[test]
fn a_command_must_be_named_and_on_the_list() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    let mut run = |command: Value| server.call("run_command", json!({"command": command, "working_directory": "."}));
    run(json!("")).refused("INVALID_ARGUMENTS");
    run(Value::Null).refused("INVALID_ARGUMENTS");
    run(json!("false")).refused("COMMAND_NOT_ALLOWED");
    run(json!("true ")).refused("COMMAND_NOT_ALLOWED");
    run(json!("true")).ok();
}

#[test]
fn a_call_that_cannot_be_read_is_answered_and_found_under_its_own_request_id() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    for (id, arguments) in [
        (
            "mine-1",
            json!({"command": "true", "timeout_ms": 0, "request_id": "mine-1"}),
        ),
        (
            "mine-2",
            json!({"command": "true", "unknown": 1, "request_id": "mine-2"}),
        ),
    ] {
        let refused = server.call("execute_command", arguments);
        refused.refused("INVALID_ARGUMENTS");
        assert_eq!(refused.id(), id);
    }
    // An id that is none itself is not taken over.
    let refused = server.call("execute_command", json!({"command": "true", "request_id": "a b"}));
    refused.refused("INVALID_ARGUMENTS");
    assert_ne!(refused.id(), "a b");
    // It may be used for what was meant.
    let again = server.call("execute_command", json!({"command": "true", "request_id": "mine-1"}));
    again.ok();
    assert_eq!(again.id(), "mine-1");
    for (id, statuses) in [("mine-1", vec!["rejected", "ok"]), ("mine-2", vec!["rejected"])] {
        let output = bench
            .command()
            .args(["audit", "query", "--json", "--request-id", id])
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let told: Vec<_> = found.as_array().unwrap().iter().map(|it| &it["status"]).collect();
        assert_eq!(told, statuses, "{id}");
    }
}

#[test]
fn a_working_directory_is_inside_the_workspace_once_normalised() {
    let bench = Bench::configured("\"true\"", "");
    bench.dir("inside/deep");
    let mut server = Server::start(&bench);
    let mut run = |place: &str| server.call("run_command", json!({"command": "true", "working_directory": place}));
    for place in [".", "inside/deep", "inside/../inside", "inside/deep/../.."] {
        run(place).ok();
    }
    for place in ["..", "/", "inside/../..", "inside/deep/../../../outside"] {
        run(place).refused("WORKSPACE_ISOLATION_VIOLATION");
    }
    let missing = server.call("run_command", json!({"command": "true"}));
    missing.refused("INVALID_ARGUMENTS");
    assert!(missing.message().contains("working_directory"));
}

#[test]
fn a_requested_timeout_is_positive_and_within_the_policys_limit() {
    let bench = Bench::configured("\"true\"", "  timeout_seconds_max: 60\n");
    let mut server = Server::start(&bench);
    let mut run = |seconds: Value| {
        server.call(
            "run_command",
            json!({"command": "true", "working_directory": ".", "requested_timeout_seconds": seconds}),
        )
    };
    for seconds in [json!(1), json!(60), Value::Null] {
        run(seconds).ok();
    }
    for seconds in [json!(0), json!(-1), json!(1.5), json!("5")] {
        run(seconds).refused("INVALID_ARGUMENTS");
    }
    for seconds in [json!(61), json!(u64::MAX)] {
        run(seconds).refused("LIMIT_EXCEEDED");
    }
}

/// Starts with a configuration that must not be accepted; what is said about it.
fn complaint(yaml: &str) -> String {
    let bench = Bench::new().config(yaml);
    let output = bench
        .command()
        .arg("stdio")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{yaml}");
    assert!(output.stdout.is_empty(), "standard output is for the protocol");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_policy_that_breaks_a_rule_is_not_started_with() {
    for (rule, field) in [
        ("allowlist: [git, \"\"]", "allowlist"),
        ("allowlist: [git, git]", "allowlist"),
        ("timeout_seconds: 0", "timeout_seconds"),
        ("timeout_seconds: -3", "timeout_seconds"),
        ("audit_retention_days: 0", "audit_retention_days"),
        ("cpu_limit: fast", "cpu_limit"),
        ("memory_limit: much", "memory_limit"),
        ("run_as_non_root: perhaps", "run_as_non_root"),
        ("unknown: 1", "unknown"),
    ] {
        let said = complaint(&format!("command_policy:\n  {rule}\n"));
        assert!(said.contains(field) && said.contains("line 2"), "{rule}: {said}");
    }
}

#[test]
fn all_problems_of_a_policy_are_reported_at_once() {
    let said = complaint("command_policy:\n  timeout_seconds: 0\n  audit_retention_days: 0\n");
    assert!(
        said.contains("timeout_seconds") && said.contains("audit_retention_days"),
        "{said}"
    );
}

#[test]
fn every_terminal_state_has_a_record_with_the_same_status() {
    let bench = Bench::configured("\"true\", \"false\", sleep", "answer_within_ms: 60000\n");
    let mut server = Server::start(&bench);
    let cases = [
        ("execute_process", json!({"file": "true", "args": []}), "ok"),
        ("execute_process", json!({"file": "false", "args": []}), "failed"),
        (
            "execute_process",
            json!({"file": "sleep", "args": ["600"], "timeout_ms": 50}),
            "timeout",
        ),
        ("execute_process", json!({"file": "id", "args": []}), "rejected"),
        ("execute_command", json!({"command": "true", "cwd": ".."}), "rejected"),
        (
            "execute_command",
            json!({"command": "true", "timeout_ms": 999_999_999}),
            "rejected",
        ),
        ("execute_command", json!({"command": 7}), "rejected"),
    ];
    for (tool, arguments, status) in cases {
        let outcome = server.call(tool, arguments);
        assert_eq!(outcome.status(), status, "{}", outcome.text);
        let record = bench.recorded(&outcome);
        for field in [
            "audit_id",
            "request_id",
            "timestamp",
            "command",
            "working_directory",
            "status",
        ] {
            assert!(record[field].is_string(), "`{field}` of {record}");
        }
        assert!(
            record["arguments"].is_array() && record.get("error_code").is_some(),
            "{record}"
        );
        assert!(record["audit_id"] == outcome.structured["audit_id"]);
    }
}

#[test]
fn the_record_of_a_line_names_its_programs() {
    let bench = Bench::allowing("ls,cat,true");
    let mut server = Server::start(&bench);
    let file = |name: &str| {
        let found = ["/usr/bin", "/bin"].map(|directory| Path::new(directory).join(name).canonicalize());
        let found = found.into_iter().flatten().next();
        json!(found.expect("every machine has it"))
    };
    let (bash, ls, cat, id) = (file("bash"), file("ls"), file("cat"), file("id"));
    for (line, expected) in [
        ("ls | cat && ls", json!([ls, cat])),
        ("for i in 1 2; do ls; done", json!([bash, ls])),
        ("if ls; then cat /dev/null; fi | cat", json!([bash, ls, cat])),
    ] {
        let outcome = server.line(line);
        outcome.ok();
        assert_eq!(bench.recorded(&outcome)["arguments"], expected, "{line}");
        let dispatched = payloads(&bench, "command.dispatched");
        assert_eq!(dispatched.last().unwrap()["programs"], expected, "{line}");
    }
    // What is refused says what it was about as well.
    for (line, expected) in [
        ("ls | id; ls", json!([ls, id])),
        ("for i in 1 2; do id; done", json!([id])),
        ("ls (", json!([])),
    ] {
        let outcome = server.line(line);
        outcome.refused("COMMAND_NOT_ALLOWED");
        assert_eq!(bench.recorded(&outcome)["arguments"], expected, "{line}");
    }
}

#[test]
fn the_record_of_a_refusal_has_the_whole_path_of_its_directory() {
    let bench = Bench::allowing("true");
    bench.dir("sub");
    let bench = bench.env("ALLOWED_CWD_ROOTS", ".");
    let mut server = Server::start(&bench);
    let work = bench.work().canonicalize().unwrap();
    for (arguments, code, expected) in [
        (json!({"command": "id"}), "COMMAND_NOT_ALLOWED", work.clone()),
        (
            json!({"command": "id", "cwd": "sub/../sub"}),
            "COMMAND_NOT_ALLOWED",
            work.join("sub"),
        ),
        (
            json!({"command": "true", "timeout_ms": 999_999_999}),
            "LIMIT_EXCEEDED",
            work.clone(),
        ),
        (
            json!({"command": "true", "cwd": "gone"}),
            "CWD_NOT_FOUND",
            work.join("gone"),
        ),
        (
            json!({"command": "true", "cwd": "/usr"}),
            "CWD_NOT_ALLOWED",
            "/usr".into(),
        ),
        (
            json!({"command": "true", "cwd": "sub", "nothing": 1}),
            "INVALID_ARGUMENTS",
            work.join("sub"),
        ),
        (json!({"command": "true", "cwd": 5}), "INVALID_ARGUMENTS", work.clone()),
    ] {
        let outcome = server.call("execute_command", arguments.clone());
        outcome.refused(code);
        let record = bench.recorded(&outcome);
        assert_eq!(record["working_directory"], json!(expected), "{arguments}");
    }
}

#[test]
fn what_can_be_read_of_refused_arguments_is_recorded_without_its_secrets() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    for (tool, arguments, command, expected) in [
        (
            "execute_command",
            json!({"command": "nothing --password hunter2x", "timeout_ms": 0}),
            "nothing --password [redacted]",
            json!(["nothing"]),
        ),
        (
            "execute_process",
            json!({"file": "mysql", "args": ["--password", "hunter2x", "db"], "timeout_ms": 0}),
            "mysql",
            json!(["--password", "[redacted]", "db"]),
        ),
        (
            "run_command",
            json!({"command": "touch", "args": ["a", 5], "working_directory": "."}),
            "touch",
            json!(["a"]),
        ),
        ("execute_command", json!({"command": 7}), "", json!([])),
    ] {
        let outcome = server.call(tool, arguments.clone());
        outcome.refused("INVALID_ARGUMENTS");
        let record = bench.recorded(&outcome);
        assert_eq!(
            (&record["command"], &record["arguments"]),
            (&json!(command), &expected),
            "{arguments}"
        );
    }
    let payloads: i64 = bench.count("SELECT count(*) FROM flow_events WHERE payload LIKE '%hunter2x%'");
    assert_eq!(payloads, 0);
}

#[test]
fn the_policy_snapshot_of_a_record_has_every_field_of_the_policy() {
    let bench = Bench::configured("\"true\"", "");
    let mut server = Server::start(&bench);
    let outcome = server.process("true", &[]);
    let snapshot = &bench.recorded(&outcome)["policy_snapshot"];
    let command = snapshot.get("command_policy").unwrap_or(snapshot);
    for field in [
        "allowlist",
        "timeout_seconds",
        "cpu_limit",
        "memory_limit",
        "run_as_non_root",
        "audit_retention_days",
    ] {
        assert!(command.get(field).is_some(), "`{field}` of {snapshot}");
    }
    assert!(snapshot.to_string().contains("workspace_root"), "{snapshot}");
    assert_eq!(command["allowlist"], json!(["true"]));
}

#[test]
fn a_request_goes_from_received_to_completed() {
    Bench::each(|bench| {
        let bench = bench.configure("\"true\", \"false\"", "");
        let mut server = Server::start(&bench);
        for program in ["true", "false"] {
            let outcome = server.process(program, &[]);
            assert_eq!(bench.states(outcome.id()), WHOLE_WAY);
        }
        // What was never validated was never dispatched.
        let refused = server.process("id", &[]);
        assert_eq!(bench.states(refused.id()), ["command.received", "command.completed"]);
        server.end();
        bench.prove();
    });
}

#[test]
fn times_and_durations_of_a_result_are_filled_in() {
    let bench = Bench::allowing("true");
    let outcome = Server::start(&bench).process("true", &[]);
    let times: Vec<_> = ["started_at", "finished_at"]
        .map(|name| outcome.structured[name].as_str().unwrap().to_owned())
        .to_vec();
    for time in &times {
        assert!(countersign_gateway::clock::Timestamp::parse(time).is_ok(), "{time}");
    }
    assert!(times[0] <= times[1] && outcome.structured["duration_ms"].is_u64());
}
