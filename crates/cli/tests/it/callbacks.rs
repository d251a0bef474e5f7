//! Callbacks to the real server: who may call back, what is understood, and that whoever decides, and
//! however many do, each question has one outcome.

use std::sync::Arc;

use countersign_gateway::approval::Alone;
use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::board::{Board, BoardParts};
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::{ApprovalId, IdSource};
use countersign_store::{Durability, Options, SqliteStore};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::outside::{Serving, send, until};

const APPROVER: &str = "/api/v1/mcp/approver/callback";
const EXECUTOR: &str = "/api/v1/mcp/executor/callback";
const TOKEN: &str = "X-Codex-MCP-Token: callback-s3cret\r\n";
const BEARER: &str = "Authorization: Bearer callback-s3cret\r\n";

fn bench() -> Bench {
    Bench::new().config("listen: 127.0.0.1:0\ncallbacks: {token: callback-s3cret}\nanswer_within_ms: 300\n")
}

/// Asks a question that nobody waits for; gives its id and its correlation id.
fn ask(bench: &Bench, server: &mut Server, name: &str) -> (String, String) {
    let pending = server.call("execute_process", json!({"file": "touch", "args": [name]}));
    assert_eq!(pending.status(), "pending", "{}", pending.text);
    let id = pending.structured["approval_id"].as_str().unwrap().to_owned();
    let query = "SELECT correlation_id FROM approvals WHERE approval_id = ?1";
    let correlation = bench.database().query_row(query, [&id], |row| row.get(0)).unwrap();
    (id, correlation)
}

fn received(bench: &Bench) -> i64 {
    bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'callback.received'")
}

#[test]
fn a_callback_decides_once_in_either_vocabulary_and_the_repeated_one_is_told_the_same() {
    let bench = bench();
    let serving = Serving::start(&bench);
    let mut server = Server::start(&bench);
    let mut sent = 0;
    for (number, (word, state)) in [
        ("approve", "approved"),
        ("approved", "approved"),
        ("deny", "denied"),
        ("denied", "denied"),
        ("error", "denied"),
        ("failed", "denied"),
        ("expired", "denied"),
    ]
    .into_iter()
    .enumerate()
    {
        let (id, correlation) = ask(&bench, &mut server, &format!("made-{number}"));
        let by_id = json!({"approval_request_id": id, "decision": word, "actor_id": "ana"});
        let by_call = json!({
            "correlation_id": correlation, "decision": word, "tool": "execute_process", "metadata": {"chat": 7},
        });
        let (path, headers) = if number % 2 == 0 {
            (APPROVER, TOKEN)
        } else {
            (EXECUTOR, BEARER)
        };
        let first = serving.post(path, headers, &by_id);
        let expected = json!({
            "id": id, "correlation_id": correlation, "tool_name": "execute_process", "action": "exec-command",
            "approval_state": state,
        });
        assert_eq!(first, (200, expected), "{word}");
        assert_eq!(serving.post(path, headers, &by_id), first, "{word}");
        assert_eq!(serving.post(path, headers, &by_call), first, "{word}");
        let other = json!({"approval_request_id": id, "decision": if state == "denied" { "approve" } else { "deny" }});
        assert_eq!(serving.post(path, headers, &other), first, "the first stands: {word}");
        sent += 4;
    }
    assert_eq!(received(&bench), sent);
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type IN ('approval.approved', 'approval.denied')"),
        7
    );
    assert_eq!(
        bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'"),
        0,
        "a callback runs nothing"
    );
    server.end();
    serving.stop();
    bench.prove();
}

#[test]
fn a_callback_without_the_token_is_refused_and_recorded() {
    let bench = bench();
    let token = bench
        .command()
        .args(["tokens", "create", "--role", "operator", "--name", "o", "--json"])
        .output()
        .unwrap();
    let token: Value = serde_json::from_slice(&token.stdout).unwrap();
    let operator = format!("Authorization: Bearer {}\r\n", token["token"].as_str().unwrap());
    let serving = Serving::start(&bench);
    let mut server = Server::start(&bench);
    let (id, _) = ask(&bench, &mut server, "made");
    let body = json!({"approval_request_id": id, "decision": "approve"});
    for headers in [
        "",
        "X-Codex-MCP-Token: callback-s3cre\r\n",
        "X-Codex-MCP-Token: callback-s3cret2\r\n",
        "X-Codex-MCP-Token: \r\n",
        "Authorization: Bearer wrong\r\n",
        // Other credentials of ours open other doors.
        operator.as_str(),
    ] {
        for path in [APPROVER, EXECUTOR] {
            let (status, answer) = serving.post(path, headers, &body);
            assert_eq!(status, 401, "{headers}");
            assert_eq!(answer["error"]["errorCode"], "UNAUTHENTICATED");
        }
    }
    assert_eq!(bench.approval_state(&id), "pending");
    // The callback token opens nothing else.
    let (status, _) = send(&serving.address, "GET", "/api/v1/approvals", BEARER, "");
    assert_eq!(status, 401);
    serving.stop();
    let refused = "SELECT sum(payload ->> '$.params.count') FROM flow_events WHERE event_type = 'auth.refused'";
    assert_eq!(bench.count(refused), 13);
    assert_eq!(received(&bench), 0);
}

#[test]
fn without_a_callback_token_there_is_nothing_to_call() {
    let bench = Bench::new().config("listen: 127.0.0.1:0\nanswer_within_ms: 300\n");
    let serving = Serving::start(&bench);
    let mut server = Server::start(&bench);
    let (id, _) = ask(&bench, &mut server, "made");
    let body = json!({"approval_request_id": id, "decision": "approve"});
    for headers in ["", TOKEN, BEARER, "X-Codex-MCP-Token: \r\n"] {
        for path in [APPROVER, EXECUTOR] {
            assert_eq!(serving.post(path, headers, &body).0, 404, "{headers}");
        }
    }
    assert_eq!(bench.approval_state(&id), "pending");
}

#[test]
fn an_empty_callback_token_stops_the_start() {
    for (config, variable) in [
        ("quorum: 1\n", Some("")),
        ("callbacks: {token: ''}\n", None),
        ("callbacks: {token_file: empty}\n", None),
        ("callbacks: {token_env: NOWHERE}\n", None),
    ] {
        let mut bench = Bench::new().config(config);
        std::fs::write(bench.path("config/countersign/empty"), "\n").unwrap();
        if let Some(value) = variable {
            bench = bench.env("COUNTERSIGN_CALLBACK_TOKEN", value);
        }
        let ran = bench
            .command()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(2), "{config}: {ran:?}");
    }
}

#[test]
fn what_a_callback_gets_wrong_decides_nothing_and_is_recorded() {
    let bench = bench();
    let serving = Serving::start(&bench);
    let mut server = Server::start(&bench);
    let (id, correlation) = ask(&bench, &mut server, "made");
    let wrong = [
        (404, json!({"approval_request_id": "nothing", "decision": "approve"})),
        (404, json!({"approval_request_id": id[..8], "decision": "approve"})),
        (404, json!({"correlation_id": "nothing", "decision": "approve"})),
        (400, json!({"approval_request_id": 7, "decision": "approve"})),
        (400, json!({"approval_request_id": id, "decision": "pending"})),
        (400, json!({"approval_request_id": id, "decision": "yes"})),
        (400, json!({"approval_request_id": id})),
        (400, json!({"decision": "approve"})),
        (
            400,
            json!({"approval_request_id": id, "decision": "approve", "extra": 1}),
        ),
        (
            400,
            json!({"approval_request_id": id, "correlation_id": "nothing", "decision": "approve"}),
        ),
        (
            400,
            json!({"correlation_id": correlation, "tool": "execute_command", "decision": "approve"}),
        ),
        (400, json!("approve")),
        (409, json!({"approval_request_id": id, "decision": "applied"})),
    ];
    for (status, body) in &wrong {
        let (said, answer) = serving.post(APPROVER, TOKEN, body);
        assert_eq!(said, *status, "{body}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    let done = json!({"correlation_id": correlation, "status": "success", "result": {"ok": true}});
    assert_eq!(serving.post(EXECUTOR, TOKEN, &done).0, 409);
    assert_eq!(send(&serving.address, "GET", APPROVER, TOKEN, "").0, 405);
    let long = json!({"approval_request_id": id, "decision": "approve", "reason": "x".repeat(300 << 10)});
    assert_eq!(serving.post(APPROVER, TOKEN, &long).0, 413);
    assert_eq!(bench.approval_state(&id), "pending");
    let twice = format!("{APPROVER}?approval_request_id={id}&approval_request_id={id}");
    let (said, answer) = serving.post(&twice, TOKEN, &json!({"decision": "approve"}));
    assert_eq!(said, 400, "{answer}");
    assert!(answer["error"]["message"].is_string(), "{answer}");
    assert_eq!(bench.approval_state(&id), "pending");
    assert_eq!(received(&bench), i64::try_from(wrong.len()).unwrap() + 3);
    serving.stop();
}

#[test]
fn a_thousand_racing_decisions_through_every_door_give_each_question_one_outcome() {
    const QUESTIONS: usize = 125;
    let bench = Bench::new().config("listen: 127.0.0.1:0\ncallbacks: {token: callback-s3cret}\n");
    let token = bench
        .command()
        .args(["tokens", "create", "--role", "approver", "--name", "a", "--json"])
        .output()
        .unwrap();
    let token: Value = serde_json::from_slice(&token.stdout).unwrap();
    let person = format!("Authorization: Bearer {}\r\n", token["token"].as_str().unwrap());
    let serving = Serving::start(&bench);
    let mut server = Server::start(&bench);
    let line = |number| json!({"command": format!("echo x >> log-{number}")});
    let calls: Vec<i64> = (0..QUESTIONS)
        .map(|number| server.call_later("execute_command", line(number)))
        .collect();
    let open = "SELECT count(*) FROM approvals WHERE state = 'pending'";
    let asked = i64::try_from(QUESTIONS).unwrap();
    until("not all are asked", || {
        bench.state().join("record.db").exists() && bench.count(open) == asked
    });
    let database = bench.database();
    let mut statement = database
        .prepare("SELECT approval_id, correlation_id FROM approvals")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let questions: Vec<(String, String)> = rows.map(Result::unwrap).collect();

    // Eight deciders, each of all questions: two by REST, three by callbacks, three at the terminal's door.
    let rest = |decision: &'static str| {
        let (serving, person) = (&serving, &person);
        move |(id, _): &(String, String)| {
            let path = format!("/api/v1/approvals/{id}/decision");
            let (status, _) = serving.post(&path, person, &json!({"decision": decision, "reason": "r"}));
            assert_eq!(status, 200);
        }
    };
    let callback = |decision: &'static str, by_call: bool| {
        let serving = &serving;
        move |(id, correlation): &(String, String)| {
            let body = match by_call {
                true => json!({"correlation_id": correlation, "decision": decision}),
                false => json!({"approval_request_id": id, "decision": decision}),
            };
            assert_eq!(serving.post(APPROVER, TOKEN, &body).0, 200);
        }
    };
    std::thread::scope(|scope| {
        let questions = &questions;
        for decision in ["approve", "deny"] {
            let door = rest(decision);
            scope.spawn(move || questions.iter().for_each(door));
        }
        for (decision, by_call) in [("approve", false), ("denied", false), ("approved", true)] {
            let door = callback(decision, by_call);
            scope.spawn(move || questions.iter().for_each(door));
        }
        for (name, choice) in [("ana", Choice::Allow), ("ben", Choice::Deny), ("cleo", Choice::Allow)] {
            let state = bench.state();
            scope.spawn(move || terminal(&state, name, choice, questions));
        }
    });

    let outcomes: Vec<_> = calls.into_iter().map(|call| server.result(call)).collect();
    let (mut yes, mut no) = (0, 0);
    for (number, outcome) in outcomes.iter().enumerate() {
        let log = std::fs::read_to_string(bench.work().join(format!("log-{number}"))).unwrap_or_default();
        match outcome.status() {
            "ok" => {
                yes += 1;
                assert_eq!(log, "x\n", "it ran once");
            }
            _ => {
                no += 1;
                outcome.refused("APPROVAL_DENIED");
                assert_eq!(log, "", "it did not run");
            }
        }
    }
    let count = |kind: &str| bench.count(&format!("SELECT count(*) FROM flow_events WHERE event_type = '{kind}'"));
    assert_eq!((count("approval.approved"), count("approval.denied")), (yes, no));
    assert_eq!((count("command.dispatched"), count("mcp.tool.applied")), (yes, yes));
    assert_eq!(count("callback.received"), 3 * asked, "every callback is recorded");
    server.end();
    serving.stop();
    bench.prove();
}

/// Decides as `countersign approve` and `deny` do, without a process for each.
fn terminal(state: &std::path::Path, name: &str, choice: Choice, questions: &[(String, String)]) {
    let store = SqliteStore::open(state, Options::new(Durability::Process, Clock::system())).unwrap();
    let store = Arc::new(store);
    let board = Board::new(BoardParts {
        record: store.clone(),
        approvals: store,
        bell: Arc::new(Alone),
        approvers: Vec::new(),
        redactor: Redactor::new(Config {
            patterns: Vec::new(),
            secret_values: Vec::new(),
        }),
        clock: Clock::system(),
        ids: IdSource::random(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for (id, _) in questions {
        let ballot = Ballot {
            choice,
            by: Decider::person(name, OwnRequests::Refused),
            reason: name.to_owned(),
            answer: None,
        };
        let id = ApprovalId::trusted(id);
        runtime.block_on(board.decide(&id, ballot)).unwrap();
    }
}
