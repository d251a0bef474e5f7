//! How modern clients wait for an approval, and how their users give one: the same call again, with a
//! sealed state.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::{Outcome, Server};
use crate::web::Web;

const LISTED: &str = "approvers: [{name: desk, type: client}]\n";

fn appending() -> Value {
    json!({"command": "echo x >> log && cat log"})
}

fn params(arguments: Value, more: Value) -> Value {
    let mut params = json!({
        "name": "execute_command",
        "arguments": arguments,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        },
    });
    if let (Value::Object(params), Value::Object(more)) = (&mut params, more) {
        params.extend(more);
    }
    params
}

fn accept(content: Value) -> Value {
    json!({"approval": {"action": "accept", "content": content}})
}

/// A modern client on pipes.
struct Modern(Server);

impl Modern {
    fn start(bench: &Bench) -> Self {
        Self(Server::start(bench))
    }

    fn call(&mut self, arguments: Value, more: Value) -> Value {
        let id = self.0.request("tools/call", params(arguments, more));
        self.0.answer(id)
    }

    fn again(&mut self, state: &Value, answers: Value) -> Value {
        self.call(appending(), json!({"requestState": state, "inputResponses": answers}))
    }
}

#[track_caller]
fn state(answer: &Value) -> Value {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    assert!(result["requestState"].is_string(), "{answer}");
    result["requestState"].clone()
}

#[track_caller]
fn refused(answer: &Value) {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(answer["error"]["data"]["errorCode"], "INVALID_PARAMS", "{answer}");
}

fn ran(bench: &Bench) -> i64 {
    bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'")
}

fn decide(bench: &Bench, word: &str) {
    let (question, _) = bench.question();
    let output = bench
        .command()
        .args([word, &question, "--reason", "so it is"])
        .env("USER", "ana")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_user_of_a_modern_client_approves_in_the_next_round_and_the_act_runs_once() {
    let bench = Bench::new().config(LISTED);
    let mut client = Modern::start(&bench);
    let asked = client.call(appending(), json!({}));
    let form = &asked["result"]["inputRequests"]["approval"];
    assert_eq!(form["method"], "elicitation/create");
    let message = form["params"]["message"].as_str().unwrap();
    assert!(message.contains("runs: echo x >> log && cat log"), "{message}");
    let first = state(&asked);
    let done = client.again(&first, accept(json!({"decision": "approve"})));
    assert_eq!(Outcome::read(&done).ok(), "x\n");
    refused(&client.again(&first, accept(json!({"decision": "approve"}))));
    assert_eq!(ran(&bench), 1);
    client.0.end();
    bench.prove();
}

#[test]
fn the_user_of_a_modern_client_denies() {
    for answer in [
        accept(json!({"decision": "deny", "reason": "not here"})),
        json!({"approval": {"action": "decline"}}),
    ] {
        let bench = Bench::new().config(LISTED);
        let mut client = Modern::start(&bench);
        let first = state(&client.call(appending(), json!({})));
        let told = client.again(&first, answer);
        Outcome::read(&told).refused("APPROVAL_DENIED");
        assert_eq!(ran(&bench), 0);
    }
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_again_and_a_closed_form_leaves_it_to_others() {
    let bench = Bench::new().config(&format!("{LISTED}answer_within_ms: 400\n"));
    let mut client = Modern::start(&bench);
    let mut waits = client.call(appending(), json!({}));
    for answers in [json!({}), accept(json!({"decision": "certainly"})), accept(json!({}))] {
        waits = client.again(&state(&waits), answers.clone());
        assert!(waits["result"]["inputRequests"].is_object(), "{answers}: {waits}");
    }
    let closed = client.again(&state(&waits), json!({"approval": {"action": "cancel"}}));
    assert!(closed["result"].get("inputRequests").is_none(), "{closed}");
    let later = client.again(&state(&closed), json!({}));
    assert!(later["result"].get("inputRequests").is_none(), "{later}");
    decide(&bench, "approve");
    let done = client.again(&state(&later), json!({}));
    assert_eq!(Outcome::read(&done).ok(), "x\n");
    assert_eq!(bench.count("SELECT count(*) FROM approvals"), 1, "one question");
}

#[test]
fn a_modern_client_waits_for_others_by_its_state_alone() {
    for word in ["approve", "deny"] {
        let bench = Bench::new().config("answer_within_ms: 300\n");
        let mut client = Modern::start(&bench);
        let first = client.call(appending(), json!({}));
        assert!(first["result"].get("inputRequests").is_none(), "{first}");
        let second = client.again(&state(&first), json!({}));
        decide(&bench, word);
        assert_eq!(ran(&bench), 0, "it runs when it is asked for");
        let told = Outcome::read(&client.again(&state(&second), json!({})));
        match word {
            "approve" => assert_eq!(told.ok(), "x\n"),
            _ => drop(told.refused("APPROVAL_DENIED")),
        }
        assert_eq!(bench.count("SELECT count(*) FROM approvals"), 1, "one question");
    }
}

#[test]
fn a_decision_releases_the_round_that_waits() {
    let bench = Bench::new();
    let mut client = Modern::start(&bench);
    let id = client.0.request("tools/call", params(appending(), json!({})));
    decide(&bench, "approve");
    assert_eq!(Outcome::read(&client.0.answer(id)).ok(), "x\n");
}

#[test]
fn after_many_rounds_the_client_is_told_in_plain_words() {
    let bench = Bench::new().config("answer_within_ms: 20\n");
    let mut client = Modern::start(&bench);
    let mut answer = client.call(appending(), json!({}));
    let mut rounds = 0;
    while answer["result"]["resultType"] == "input_required" {
        rounds += 1;
        assert!(rounds < 10, "the SDKs give up before");
        answer = client.again(&state(&answer), json!({}));
    }
    assert_eq!((Outcome::read(&answer).code(), rounds), ("APPROVAL_PENDING", 8));
    assert_eq!(bench.count("SELECT count(*) FROM approvals"), 1, "one question");
}

#[test]
fn a_state_is_good_for_its_own_call_alone_and_nothing_else_runs_by_it() {
    let bench = Bench::new().config(&format!("{LISTED}answer_within_ms: 300\n"));
    let mut client = Modern::start(&bench);
    let first = state(&client.call(appending(), json!({})));
    let text = first.as_str().unwrap();
    let yes = accept(json!({"decision": "approve"}));
    for changed in [
        text.replacen("\"rounds\":1", "\"rounds\":0", 1),
        format!("{text} "),
        text[1..].to_owned(),
        String::new(),
        "2.1.1.1.00.{}".to_owned(),
    ] {
        refused(&client.again(&json!(changed), yes.clone()));
    }
    let elsewhere = json!({"requestState": first, "inputResponses": yes});
    refused(&client.call(json!({"command": "echo y >> log"}), elsewhere));
    let envelopes = "SELECT count(*) FROM flow_events WHERE event_type = 'request.refused'";
    assert_eq!(bench.count(envelopes), 6, "every refusal is in the record");
    assert_eq!(ran(&bench), 0);
    let done = client.again(&first, yes);
    assert_eq!(Outcome::read(&done).ok(), "x\n");
}

#[test]
fn a_round_whose_act_was_let_go_by_another_call_hears_what_came_of_it() {
    let bench = Bench::new().config("answer_within_ms: 300\n");
    let mut client = Modern::start(&bench);
    let first = state(&client.call(appending(), json!({})));
    decide(&bench, "approve");
    assert_eq!(Outcome::read(&client.call(appending(), json!({}))).ok(), "x\n");
    assert_eq!(Outcome::read(&client.again(&first, json!({}))).ok(), "x\n");
    assert_eq!((ran(&bench), bench.count("SELECT count(*) FROM approvals")), (1, 1));
}

#[test]
fn a_state_outlives_the_server_that_gave_it_out() {
    for config in [LISTED, "answer_within_ms: 300\n"] {
        let bench = Bench::new().config(config);
        let mut client = Modern::start(&bench);
        let asked = client.call(appending(), json!({}));
        let first = state(&asked);
        client.0.kill();
        let mut client = Modern::start(&bench);
        let answers = match asked["result"].get("inputRequests") {
            Some(_) => accept(json!({"decision": "approve"})),
            None => {
                decide(&bench, "approve");
                json!({})
            }
        };
        let done = client.again(&first, answers.clone());
        assert_eq!(Outcome::read(&done).ok(), "x\n", "{config}");
        refused(&client.again(&first, answers));
        assert_eq!(ran(&bench), 1);
        client.0.end();
        bench.prove();
    }
}

#[test]
fn a_client_that_knows_tasks_sees_the_form_first_and_then_waits_by_its_task() {
    let bench = Bench::new().config(LISTED);
    let mut client = Modern::start(&bench);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    });
    let asked = client.call(appending(), json!({"_meta": meta}));
    assert!(asked["result"]["inputRequests"].is_object(), "{asked}");
    let closed = json!({"approval": {"action": "cancel"}});
    let round = json!({"_meta": meta, "requestState": state(&asked), "inputResponses": closed});
    let task = client.call(appending(), round);
    assert_eq!(task["result"]["resultType"], "task", "{task}");
    decide(&bench, "approve");
    let ended = loop {
        let look = json!({"taskId": task["result"]["taskId"], "_meta": meta});
        let id = client.0.request("tasks/get", look);
        let seen = client.0.answer(id)["result"].clone();
        if seen["status"] != "working" {
            break seen;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert_eq!(ended["result"]["structuredContent"]["stdout"], "x\n", "{ended}");
    assert_eq!(ran(&bench), 1);
}

const HEADERS: &str = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: execute_command\r\n";

fn over_http(more: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params(appending(), more)})
}

#[test]
fn over_http_a_state_belongs_to_the_credential_and_outlives_the_server() {
    let bench = Bench::new().config(LISTED);
    let token = |name: &str| {
        let arguments = ["tokens", "create", "--role", "agent", "--name", name, "--json"];
        let made = bench.command().args(arguments).output().unwrap();
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        format!("{HEADERS}Authorization: Bearer {}\r\n", made["token"].as_str().unwrap())
    };
    let (ana, ben) = (token("ana"), token("ben"));
    let mut web = Web::serve(&bench);
    let (status, asked) = web.post("/mcp", &ana, &over_http(json!({})));
    assert_eq!(status, 200, "{asked}");
    let yes = accept(json!({"decision": "approve"}));
    let round = over_http(json!({"requestState": state(&asked), "inputResponses": yes}));
    web.kill();
    let web = Web::serve(&bench);
    for other in [&ben, HEADERS] {
        let (status, told) = web.post("/mcp", other, &round);
        assert_eq!(status, 400);
        refused(&told);
    }
    let (_, done) = web.post("/mcp", &ana, &round);
    assert_eq!(Outcome::read(&done).ok(), "x\n");
    let (_, again) = web.post("/mcp", &ana, &round);
    refused(&again);
    assert_eq!(ran(&bench), 1);
    web.stop();
    bench.prove();
}
