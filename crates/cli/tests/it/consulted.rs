//! The client's own user as approver, on connections that carry questions: asked beside everybody else,
//! heard where policy lists the client, and never more than one voice.

use std::process::Output;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::{Outcome, Server};
use crate::web::{Web, legacy};

const LISTED: &str = "approvers: [{name: desk, type: client}]\n";

fn bench(more: &str) -> Bench {
    Bench::new().config(&format!("{LISTED}{more}"))
}

fn touch(name: &str) -> Value {
    json!({"file": "touch", "args": [name]})
}

fn able(bench: &Bench) -> Server {
    Server::start_able(bench, json!({"elicitation": {}}))
}

fn made(bench: &Bench) -> bool {
    bench.work().join("made").exists()
}

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

fn run(bench: &Bench, user: &str, arguments: &[&str]) -> Output {
    bench.command().args(arguments).env("USER", user).output().unwrap()
}

#[track_caller]
fn decide(bench: &Bench, arguments: &[&str]) {
    let output = run(bench, "ana", arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[test]
fn the_clients_user_approves_where_policy_lists_the_client() {
    let bench = bench("");
    let mut server = able(&bench);
    let call = server.call_later("execute_process", touch("made"));
    let asked = server.told("elicitation/create");
    let message = asked["params"]["message"].as_str().unwrap();
    let (question, details) = bench.question();
    for part in ["runs: touch made", "in: /", "rule: ", "note: ", &question] {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(message.contains(details["cwd"].as_str().unwrap()), "{message}");
    assert!(!made(&bench) && !server.has_answered(call));
    server.reply(&asked, &accept(json!({"decision": "approve", "reason": "go on"})));
    server.result(call).ok();
    assert!(made(&bench));
    // The record calls it the client, not a person, and says that it approved its own request.
    let who = "SELECT count(*) FROM flow_events WHERE event_type = 'approval.approved' AND actor_type = 'agent' \
               AND actor_id = 'client:local' AND payload ->> '$.self_approved' = 1 AND payload ->> '$.reason' = 'go on'";
    assert_eq!(bench.count(who), 1);
    let policy = "SELECT count(*) FROM flow_events WHERE event_type = 'policy.changed' \
                  AND payload ->> '$.content.client_decides' = 1";
    assert_eq!(bench.count(policy), 1);
    server.end();
    bench.prove();
}

#[test]
fn a_denial_of_the_clients_user_reaches_the_call_with_its_reason() {
    for (answer, reason) in [
        (accept(json!({"decision": "deny", "reason": "not here"})), "not here"),
        (json!({"action": "decline"}), "the client's user declined"),
    ] {
        let bench = bench("");
        let mut server = able(&bench);
        let call = server.call_later("execute_process", touch("made"));
        let asked = server.told("elicitation/create");
        server.reply(&asked, &answer);
        let outcome = server.result(call);
        outcome.refused("APPROVAL_DENIED");
        assert!(outcome.message().contains(reason), "{}", outcome.message());
        assert!(!made(&bench));
    }
}

#[test]
fn who_closes_the_form_or_answers_nonsense_leaves_the_question_to_others() {
    for answer in [
        json!({"action": "cancel"}),
        accept(json!({"decision": "certainly"})),
        accept(json!({})),
        json!({"action": "approve"}),
        json!(7),
    ] {
        let bench = bench("");
        let mut server = able(&bench);
        let call = server.call_later("execute_process", touch("made"));
        let asked = server.told("elicitation/create");
        server.reply(&asked, &answer);
        server.ping();
        let (question, _) = bench.question();
        assert!(!made(&bench) && !server.has_answered(call), "{answer}");
        decide(&bench, &["approve", &question]);
        server.result(call).ok();
        assert!(made(&bench));
    }
}

#[test]
fn a_form_is_taken_back_when_somebody_else_decides_and_a_late_answer_counts_for_nothing() {
    let bench = bench("");
    let mut server = able(&bench);
    let call = server.call_later("execute_process", touch("made"));
    let asked = server.told("elicitation/create");
    let (question, _) = bench.question();
    decide(&bench, &["deny", &question, "--reason", "no"]);
    let taken_back = server.told("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    server.reply(&asked, &accept(json!({"decision": "approve"})));
    server.result(call).refused("APPROVAL_DENIED");
    server.ping();
    assert!(!made(&bench));
    assert_eq!(bench.approval_state(&question), "denied");
    let client = "SELECT count(*) FROM flow_events WHERE actor_id = 'client:local'";
    assert_eq!(bench.count(client), 0);
}

#[test]
fn a_form_is_taken_back_at_once_also_while_the_act_runs() {
    let bench = bench("");
    let mut server = able(&bench);
    let call = server.call_later("execute_process", json!({"file": "sleep", "args": ["3"]}));
    let asked = server.told("elicitation/create");
    let (question, _) = bench.question();
    decide(&bench, &["approve", &question]);
    let taken_back = server.told("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    assert!(!server.has_answered(call), "it still runs");
    server.reply(&asked, &accept(json!({"decision": "deny"})));
    server.result(call).ok();
    assert_eq!(bench.approval_state(&question), "applied");
}

#[test]
fn nobody_is_asked_whom_policy_does_not_list_or_who_cannot_be_asked() {
    for (config, capabilities) in [
        ("", json!({"elicitation": {}})),
        (LISTED, json!({})),
        (LISTED, json!({"elicitation": {"url": {}}})),
    ] {
        let bench = Bench::new().config(&format!("{config}answer_within_ms: 400\n"));
        let mut server = Server::start_able(&bench, capabilities.clone());
        let outcome = server.call("execute_process", touch("made"));
        assert_eq!(outcome.status(), "pending");
        let asked = server.notes.iter().any(|note| note["method"] == "elicitation/create");
        assert!(!asked, "{config} {capabilities}");
    }
}

#[test]
fn a_form_ends_with_its_call_and_the_repeated_call_asks_again() {
    let bench = bench("answer_within_ms: 400\n");
    let mut server = able(&bench);
    assert_eq!(server.call("execute_process", touch("made")).status(), "pending");
    let first = server.told("elicitation/create");
    let taken_back = server.told("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], first["id"]);
    let call = server.call_later("execute_process", touch("made"));
    let second = server.told("elicitation/create");
    server.reply(&second, &accept(json!({"decision": "approve"})));
    server.result(call).ok();
    assert_eq!(bench.count("SELECT count(*) FROM approvals"), 1, "one question");
}

#[test]
fn a_client_is_one_voice_of_a_quorum_however_often_it_speaks() {
    let bench = bench("answer_within_ms: 500\nquorum: 2\n");
    for _ in 0..2 {
        let mut server = able(&bench);
        let call = server.call_later("execute_process", touch("made"));
        let asked = server.told("elicitation/create");
        server.reply(&asked, &accept(json!({"decision": "approve"})));
        assert_eq!(server.result(call).status(), "pending");
    }
    let (question, _) = bench.question();
    assert!(!made(&bench));
    decide(&bench, &["approve", &question]);
    able(&bench).call("execute_process", touch("made")).ok();
    assert!(made(&bench));
}

#[test]
fn over_http_the_form_comes_on_the_stream_of_the_call() {
    let bench = bench("");
    let web = Web::serve(&bench);
    let session = web.session(json!({"elicitation": {}}));
    let call = legacy(
        5,
        "tools/call",
        json!({"name": "execute_process", "arguments": touch("made")}),
    );
    let mut stream = web.stream("POST", "/mcp", &session, &call);
    let asked = stream.until(|message| message["method"] == "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": accept(json!({"decision": "approve"}))});
    assert_eq!(web.post("/mcp", &session, &answer).0, 202);
    Outcome::read(&stream.until(|message| message["id"] == 5)).ok();
    assert!(made(&bench));
    web.stop();
    bench.prove();
}

#[test]
fn the_older_transport_carries_the_form_too() {
    let bench = bench("");
    let web = Web::serve(&bench);
    let mut stream = web.stream("GET", "/sse", "", &Value::Null);
    let endpoint = stream.endpoint();
    let say = |message: &Value| assert_eq!(web.post(&endpoint, "", message).0, 202);
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "t", "version": "1"}});
    say(&legacy(1, "initialize", hello));
    stream.until(|message| message["id"] == 1);
    say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    say(&legacy(
        2,
        "tools/call",
        json!({"name": "execute_process", "arguments": touch("made")}),
    ));
    let asked = stream.until(|message| message["method"] == "elicitation/create");
    say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": accept(json!({"decision": "approve"}))}));
    Outcome::read(&stream.until(|message| message["id"] == 2)).ok();
    assert!(made(&bench));
    drop(stream);
    web.stop();
}

#[test]
fn a_client_that_reads_no_stream_is_not_asked() {
    let bench = bench("answer_within_ms: 400\n");
    let web = Web::serve(&bench);
    let session = web.session(json!({"elicitation": {}}));
    let call = legacy(
        5,
        "tools/call",
        json!({"name": "execute_process", "arguments": touch("made")}),
    );
    let headers = format!("{session}Accept: application/json\r\n");
    let (_, answer) = web.post("/mcp", &headers, &call);
    assert_eq!(Outcome::read(&answer).status(), "pending");
    let (question, _) = bench.question();
    decide(&bench, &["approve", &question]);
    let (_, answer) = web.post("/mcp", &headers, &legacy(6, "tools/call", call["params"].clone()));
    Outcome::read(&answer).ok();
    web.stop();
}
