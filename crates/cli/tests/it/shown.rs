//! What is hidden as a secret and what is not, where a person decides by it.

use std::fs;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::{Outcome, Server};

/// What a person is asked about when this is called.
fn asked(bench: &Bench, server: &mut Server, tool: &str, arguments: &Value) -> Value {
    let call = server.call_later(tool, arguments.clone());
    let (question, details) = bench.question();
    let denied = bench
        .command()
        .args(["deny", &question, "--reason", "seen"])
        .output()
        .unwrap();
    assert!(denied.status.success(), "{denied:?}");
    server.result(call).refused("APPROVAL_DENIED");
    details
}

#[test]
fn nobody_is_asked_about_a_command_that_is_hidden_as_a_secret() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let line = |line: &str| ("execute_command", json!({"command": line}));
    let argv = |file: &str, args: &[&str]| ("execute_process", json!({"file": file, "args": args}));
    for (tool, arguments) in [
        line("PASSWORD=\"$(touch made)\" true"),
        line("true --token `touch made`"),
        line(": '-----BEGIN PRIVATE KEY-----'; touch made"),
        line("sh -c 'echo cookie: x; touch made'"),
        line("sh -c 'echo Authorization: Basic x; touch made'"),
        line("git -c credential.helper='!touch made' fetch"),
        argv("sh", &["-c", "true --token \"$(touch made)\""]),
        argv("sh", &["-c", "TOKEN=x; touch made"]),
        argv("make", &["TOKEN=$(shell touch made)"]),
        (
            "execute_process",
            json!({"file": "sh", "args": [], "input": "PASSWORD=\"$(touch made)\""}),
        ),
    ] {
        let details = asked(&bench, &mut server, tool, &arguments);
        let shown = [&details["command"], &details["input"]];
        let is_shown = |text: &&Value| text.as_str().is_some_and(|text| text.contains("touch made"));
        assert!(shown.iter().any(is_shown), "{arguments}: {details}");
    }
}

#[test]
fn a_secret_is_not_recorded_as_the_id_of_a_request() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    let refused = server.call(
        "execute_process",
        json!({"file": "true", "args": [], "request_id": "token=hunter2x"}),
    );
    refused.refused("INVALID_ARGUMENTS");
    server.end();
    for entry in fs::read_dir(bench.state()).unwrap() {
        let path = entry.unwrap().path();
        let holds = path.is_file() && String::from_utf8_lossy(&fs::read(&path).unwrap()).contains("hunter2x");
        assert!(!holds, "{path:?}");
    }
}

#[test]
fn secrets_that_programs_take_in_their_own_way_do_not_reach_the_record() {
    let bench = Bench::allowing("sh,true,mysql,sshpass,docker,redis-cli,curl");
    let mut server = Server::start(&bench);
    let line = |line: &str| ("execute_command", json!({"command": line}));
    let argv = |file: &str, args: &[&str]| ("execute_process", json!({"file": file, "args": args}));
    let calls = [
        argv("mysql", &["-uroot", "-phunter2x", "app"]),
        argv("sshpass", &["-p", "hunter2x", "true"]),
        argv("docker", &["login", "-u", "ann", "-p", "hunter2x"]),
        argv("redis-cli", &["-a", "hunter2x", "ping"]),
        argv("curl", &["-sSu", "ann:hunter2x", "http://localhost"]),
        argv("curl", &["-H", "Cookie: a=1; b=hunter2x"]),
        argv("sh", &["-c", "echo \"$1\"", "sh", "-token", "hunter2x"]),
        line("mysql -phunter2x app"),
        line("sh -c 'mysql -phunter2x app'"),
        line("true --password $'hunter2x'"),
        line("true --password 'hun'ter2x"),
        line("DB_PASS=hunter2x; export DB_PASS; sh -c 'echo $DB_PASS'"),
        (
            "run_command",
            json!({"command": "mysql", "args": ["-phunter2x"], "working_directory": "."}),
        ),
        (
            "execute_process",
            json!({"file": "sh", "args": ["-c", "echo $STRIPE_KEY"], "env": {"STRIPE_KEY": "hunter2x"}}),
        ),
        (
            "execute_process",
            json!({"file": "mysql", "args": ["-phunter2x"], "cwd": 5}),
        ),
    ];
    for (tool, arguments) in calls {
        server.call(tool, arguments.clone());
        let kept: Vec<_> = fs::read_dir(bench.state())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .filter(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).contains("ter2x"))
            .collect();
        assert!(kept.is_empty(), "{arguments}: {kept:?}");
    }
}

#[test]
fn what_is_hidden_cannot_be_found_by_trying_out_a_digest() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    let has_digest = |outcome: &Outcome| {
        let received = format!(
            "SELECT count(*) FROM flow_events WHERE event_type = 'command.received' AND payload ->> '$.request_id' = '{}'",
            outcome.id()
        );
        assert_eq!(bench.count(&received), 1);
        bench.count(&format!("{received} AND payload ->> '$.digest' IS NOT NULL")) == 1
    };
    let plain = server.process("true", &["x"]);
    assert!(has_digest(&plain));
    let named = server.process("true", &["--password", "hunter2"]);
    let shaped = server.line("true --password hunter2");
    let given = server.call(
        "execute_process",
        json!({"file": "true", "args": [], "env": {"A": "b"}}),
    );
    let input = server.call("execute_process", json!({"file": "true", "args": [], "input": "b"}));
    for outcome in [named, shaped, given, input] {
        assert!(!has_digest(&outcome), "{}", outcome.text);
    }
}
