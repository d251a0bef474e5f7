//! Every call and every refused message, as `audit query` tells of them afterwards.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;

impl Bench {
    /// What `audit query` tells, oldest first.
    fn told(&self, kind: &str, more: &[&str]) -> Vec<Value> {
        self.listed(&[&["audit", "query", "--kind", kind, "--json"], more].concat())
    }

    fn listed(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.command().args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The one invocation of a request.
#[track_caller]
fn of(calls: &[Value], id: i64) -> Value {
    let found: Vec<_> = calls.iter().filter(|call| call["requestId"] == id).collect();
    assert_eq!(found.len(), 1, "of {id}: {calls:?}");
    found[0].clone()
}

/// Holds an invocation against S2's rules.
#[track_caller]
fn keeps_the_contract(call: &Value) {
    for field in [
        "invocationId",
        "sessionId",
        "toolName",
        "startedAt",
        "finishedAt",
        "correlation_id",
    ] {
        assert!(call[field].is_string(), "`{field}` of {call}");
    }
    assert!(
        call.get("requestId").is_some() && call["arguments"].is_object(),
        "{call}"
    );
    assert!(call["durationMs"].as_u64().is_some(), "{call}");
    match call["status"].as_str() {
        Some("ok") => assert!(call["result"].is_object() && call.get("error").is_none(), "{call}"),
        Some("error") => {
            assert!(
                call["error"]["code"].is_i64() && call["error"]["message"].is_string(),
                "{call}"
            );
            assert!(
                call["error"]["data"]["errorCode"].is_string() && call.get("result").is_none(),
                "{call}"
            );
        }
        _ => panic!("no status: {call}"),
    }
}

#[test]
fn every_call_is_told_with_all_its_fields() {
    let bench = Bench::configured("echo, sleep, sh", "answer_within_ms: 3000\n");
    let mut server = Server::start(&bench);
    let ok = server.call_later(
        "execute_process",
        json!({"file": "echo", "args": ["hi"], "request_id": "mine"}),
    );
    let outcome = server.result(ok);
    let repeated = server.call_later(
        "execute_process",
        json!({"file": "echo", "args": ["hi"], "request_id": "mine"}),
    );
    server.result(repeated).ok();
    let failed = server.call_later("execute_command", json!({"command": "sh -c 'exit 3'"}));
    server.result(failed).failed("COMMAND_EXIT_NON_ZERO");
    let refused = server.call_later(
        "run_command",
        json!({"command": "rm", "args": ["x"], "working_directory": "."}),
    );
    server.result(refused).refused("COMMAND_NOT_ALLOWED");
    let unreadable = server.call_later(
        "execute_command",
        json!({"comand": "ls", "env": {"A": "unreadablesecret"}}),
    );
    server.result(unreadable).refused("INVALID_ARGUMENTS");
    let unknown = server.call_later("no_such_tool", json!({"password": "unknownsecret1"}));
    assert_eq!(server.answer(unknown)["error"]["code"], -32602);
    let running = server.call_later("execute_process", json!({"file": "sleep", "args": ["60"]}));
    let outlived = server.result(running);
    assert_eq!(outlived.status(), "running");
    let status = server.call_later("command_status", json!({"request_id": outlived.id()}));
    server.result(status);
    let cancel = server.call_later("command_cancel", json!({"request_id": outlived.id()}));
    server.result(cancel).failed("CANCELLED");
    let lost = server.call_later("command_status", json!({"request_id": "never"}));
    server.result(lost).refused("NOT_FOUND");
    let misread = server.call_later("command_cancel", json!({"request_id": 7}));
    server.result(misread).refused("INVALID_ARGUMENTS");

    let calls = bench.told("invocation", &[]);
    assert_eq!(calls.len(), 11, "{calls:#?}");
    calls.iter().for_each(keeps_the_contract);
    let [session] = &bench.listed(&["sessions", "list", "--json"])[..] else {
        panic!("one session");
    };
    assert!(
        calls.iter().all(|call| call["sessionId"] == session["sessionId"]),
        "{session}"
    );

    let call = of(&calls, ok);
    assert_eq!(call["result"], outcome.structured, "the result is the answer");
    let arguments = json!({"file": "echo", "args": ["hi"], "request_id": "mine"});
    assert_eq!(
        (&call["toolName"], &call["arguments"]),
        (&json!("execute_process"), &arguments)
    );
    assert_eq!(of(&calls, repeated)["result"]["request_id"], "mine");
    let codes = [
        (failed, -32008, "COMMAND_EXIT_NON_ZERO"),
        (refused, -32005, "COMMAND_NOT_ALLOWED"),
        (unreadable, -32602, "INVALID_ARGUMENTS"),
        (unknown, -32602, "UNKNOWN_TOOL"),
        (cancel, -32008, "CANCELLED"),
        (lost, -32004, "NOT_FOUND"),
        (misread, -32602, "INVALID_ARGUMENTS"),
    ];
    for (id, code, name) in codes {
        let call = of(&calls, id);
        assert_eq!(
            (&call["error"]["code"], &call["error"]["data"]["errorCode"]),
            (&json!(code), &json!(name))
        );
    }
    assert_eq!(of(&calls, running)["result"]["status"], "running");
    assert_eq!(of(&calls, status)["result"]["status"], "running");
    let refused = of(&calls, refused);
    let arguments = &refused["arguments"];
    assert_eq!(
        (&arguments["command"], &arguments["args"]),
        (&json!("rm"), &json!(["x"]))
    );
    assert_eq!(arguments["working_directory"], ".");

    // Filters.
    let ids = |more: &[&str]| -> Vec<Value> {
        let calls = bench.told("invocation", more);
        calls.iter().map(|call| call["requestId"].clone()).collect()
    };
    assert_eq!(
        ids(&["--status", "ok"]),
        [ok, repeated, running, status].map(Value::from)
    );
    assert_eq!(ids(&["--status", "error"]).len(), 7);
    assert_eq!(ids(&["--request-id", "mine"]), [ok, repeated].map(Value::from));
    assert_eq!(ids(&["--request-id", &unknown.to_string()]), [unknown].map(Value::from));
    assert_eq!(ids(&["--limit", "2"]), [lost, misread].map(Value::from));
    let correlation = call["correlation_id"].as_str().unwrap();
    assert_eq!(ids(&["--correlation-id", correlation]), [ok].map(Value::from));

    server.end();
    assert_eq!(
        bench.told("invocation", &[]),
        calls,
        "the end of a session changes none of its calls"
    );
    bench.prove();
}

#[test]
fn every_kind_of_bad_message_is_recorded_with_its_code() {
    let bench = Bench::allowing("echo");
    let mut server = Server::start(&bench);
    let bad: [(&str, &str, Value); 8] = [
        ("{not json", "PARSE_ERROR", Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":101,"method":""}"#,
            "INVALID_REQUEST",
            json!(101),
        ),
        (
            r#"{"jsonrpc":"1.0","id":102,"method":"ping"}"#,
            "INVALID_REQUEST",
            json!(102),
        ),
        (
            r#"{"jsonrpc":"2.0","id":103,"method":"tools/call","params":{}}"#,
            "INVALID_PARAMS",
            json!(103),
        ),
        (
            r#"{"jsonrpc":"2.0","id":104,"method":"tools/call","params":{"name":"execute_command","arguments":[1]}}"#,
            "INVALID_PARAMS",
            json!(104),
        ),
        (
            r#"{"jsonrpc":"2.0","id":105,"method":"no/such"}"#,
            "METHOD_NOT_FOUND",
            json!(105),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}"#,
            "DUPLICATE_REQUEST",
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":106,"method":"tools/call","params":{"arguments":{"password":"envelopesecret1"}}}"#,
            "INVALID_PARAMS",
            json!(106),
        ),
    ];
    for (line, _, _) in &bad {
        server.raw(format!("{line}\n").as_bytes());
    }
    server.ping();
    server.process("echo", &["hi"]).ok();
    server.end();

    let refused = bench.told("envelope", &["--status", "refused"]);
    let told: Vec<_> = refused
        .iter()
        .map(|it| (it["error_code"].clone(), it["requestId"].clone()))
        .collect();
    let sent: Vec<_> = bad.iter().map(|(_, code, id)| (json!(code), id.clone())).collect();
    assert_eq!(told, sent, "{refused:#?}");
    let [session] = &bench.listed(&["sessions", "list", "--json"])[..] else {
        panic!("one session");
    };
    for envelope in &refused {
        assert_eq!(
            (&envelope["transport"], &envelope["sessionId"]),
            (&json!("stdio"), &session["sessionId"])
        );
        assert!(
            envelope["receivedAt"].is_string() && envelope["method"].is_string(),
            "{envelope}"
        );
        assert!(envelope["correlation_id"].is_string(), "{envelope}");
    }
    let accepted = bench.told("envelope", &["--status", "accepted"]);
    let methods: Vec<_> = accepted.iter().map(|it| it["method"].as_str().unwrap()).collect();
    assert_eq!(
        methods,
        ["initialize", "tools/call"],
        "requests that only look leave nothing"
    );
    assert_eq!(
        accepted[0]["params"]["clientInfo"],
        json!({"name": "test", "version": "1"})
    );
    assert_eq!(accepted[1]["params"]["name"], "execute_process");
    assert_eq!(bench.told("envelope", &["--request-id", "104"]).len(), 1);
    assert_eq!(
        bench.told("invocation", &[]).len(),
        1,
        "what was refused called nothing"
    );
}

#[test]
fn no_view_of_the_record_tells_a_secret_or_opens_a_session() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    let token = format!("cs_agent_{}", "ab".repeat(32));
    let arguments = json!({"command": format!("true --password secretone1 {token}"), "input": "secrettwo22",
                           "env": {"X": "secretthree3"}});
    server.call("execute_command", arguments.clone());
    server.call("command_status", json!({"request_id": "x", "token": "secretfour4"}));
    let id = server.call_later("no_such_tool", arguments);
    server.answer(id);
    server.raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"Bearer secretfive5\",\"method\":\"x\",\"params\":{\"api_key\":\"secretsix66\"}}\n");
    server.ping();
    server.end();
    let session = bench.listed(&["sessions", "list", "--json"])[0]["sessionId"].clone();
    let mut shown = String::new();
    for kind in ["invocation", "envelope", "event", "command"] {
        shown += &serde_json::to_string(&bench.told(kind, &[])).unwrap();
    }
    for secret in ["one1", "two22", "three3", "four4", "five5", "six66"] {
        assert!(!shown.contains(&format!("secret{secret}")), "{secret}: {shown}");
    }
    assert!(!shown.contains(&token), "{shown}");
    let export = bench.command().args(["audit", "export"]).output().unwrap();
    let export = String::from_utf8(export.stdout).unwrap();
    assert!(
        export.contains("session.closed") && export.contains("\"session_id\":\"sha256:"),
        "{export}"
    );
    assert!(
        !export.contains(session.as_str().unwrap()),
        "an export names no session by its id"
    );
}

#[test]
fn a_session_over_stdio_is_there_while_it_lasts_and_closed_after() {
    let bench = Bench::allowing("true");
    let mut server = Server::start(&bench);
    server.process("true", &[]).ok();
    let list = |bench: &Bench| bench.listed(&["sessions", "list", "--json"]);
    let [session] = &list(&bench)[..] else {
        panic!("one session");
    };
    let told: Vec<_> = [
        "transport",
        "state",
        "clientName",
        "clientVersion",
        "credential",
        "protocolVersion",
    ]
    .iter()
    .map(|name| session[name].as_str().unwrap())
    .collect();
    assert_eq!(told, ["stdio", "initialized", "test", "1", "local", "2025-11-25"]);
    assert!(
        session["createdAt"].as_str() <= session["lastActivityAt"].as_str(),
        "{session}"
    );
    server.end();
    assert_eq!(list(&bench)[0]["state"], "closed");
    // One that is killed is closed by whoever comes next.
    let mut killed = Server::start(&bench);
    killed.process("true", &[]).ok();
    killed.kill();
    Server::start(&bench).process("true", &[]).ok();
    let states: Vec<_> = list(&bench).iter().map(|session| session["state"].clone()).collect();
    assert_eq!(states[..2], ["closed", "closed"], "{states:?}");
    let open = bench.listed(&["sessions", "list", "--json", "--state", "expired"]);
    assert_eq!(open, Vec::<Value>::new());
}
