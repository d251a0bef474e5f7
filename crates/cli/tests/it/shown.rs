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
fn what_runs_out_of_a_variable_is_in_the_question_and_in_the_record() {
    let bench = Bench::new();
    let mut server = Server::start(&bench);
    let script = format!("mkdir -p Q1 && cd Q1; {}echo finished", "touch made; ".repeat(20));
    let code = "import os\nfor i in range(3): os.makedirs('made%d' % i)";
    let argv = |file: &str, args: &[&str], name: &str, value: &str| {
        let arguments = json!({"file": file, "args": args, "env": {name: value}});
        ("execute_process", arguments, name.to_owned(), value.to_owned())
    };
    let line = |line: &str, name: &str, value: &str| {
        let arguments = json!({"command": line, "env": {name: value}});
        ("execute_command", arguments, name.to_owned(), value.to_owned())
    };
    for (tool, arguments, name, value) in [
        argv(
            "bash",
            &["-c", "$0 -c \"$DB_PASSWORD\"", "bash"],
            "DB_PASSWORD",
            &script,
        ),
        argv("bash", &["-c", "eval \"$SESSION_TOKEN\""], "SESSION_TOKEN", &script),
        argv(
            "python3",
            &["-c", "import os;exec(os.environ[\"API_KEY\"])"],
            "API_KEY",
            code,
        ),
        argv("git", &["-c", "alias.x=!$MY_SECRET", "x"], "MY_SECRET", "mkdir made"),
        argv("bash", &["-c", "$DB_PASSWORD"], "DB_PASSWORD", "./make-it"),
        line("eval \"$SESSION_TOKEN\"", "SESSION_TOKEN", &script),
        line("bash -c \"$API_TOKEN\"", "API_TOKEN", "mkdir made"),
    ] {
        let details = asked(&bench, &mut server, tool, &arguments);
        assert_eq!(details["env"][&name], json!(value), "{details}");
        let risks = details["risks"].to_string();
        assert!(
            !risks.contains("withheld") && !risks.contains("only the first"),
            "{risks}"
        );
        let quoted = value.replace('\'', "''");
        let recorded = format!(
            "SELECT count(*) FROM flow_events WHERE event_type = 'command.received' \
             AND payload ->> '$.env_run.{name}' = '{quoted}'"
        );
        assert!(bench.count(&recorded) >= 1, "{arguments}");
    }
    let hidden = json!({"file": "touch", "args": ["a"], "env": {"DB_PASSWORD": "correct pony battery"}});
    let details = asked(&bench, &mut server, "execute_process", &hidden);
    assert_eq!(details["env"]["DB_PASSWORD"], "[redacted]");
    let hidden = json!({"file": "bash", "args": ["-c", "echo $DB_PASSWORD"], "env": {"DB_PASSWORD": "hunter2x"}});
    let details = asked(&bench, &mut server, "execute_process", &hidden);
    assert_eq!(details["env"]["DB_PASSWORD"], "[redacted]");
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE payload LIKE '%pony%' OR payload LIKE '%hunter2x%'"),
        0
    );
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
