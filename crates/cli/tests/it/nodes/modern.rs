//! The revision without sessions: each request may come to another node, and what a client carries between two rounds
//! leads to one act wherever it comes back.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::field::{A, B, C, Field};
use crate::bench::Bench;
use crate::client::eventually;

const LISTED: &str = "approvers: [{name: desk, type: client}]\n";

fn message(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn ask(field: &Field, node: usize, method: &str, params: Value) -> (u16, Value) {
    let name = ["name", "taskId"].into_iter().find_map(|name| params[name].as_str());
    let name = name.map_or_else(String::new, |name| format!("Mcp-Name: {name}\r\n"));
    let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}");
    field.web(node).post("/mcp", &headers, &message(method, params))
}

fn line(text: &str) -> Value {
    json!({"name": "execute_command", "arguments": {"command": text}})
}

fn lines(field: &Field, name: &str) -> usize {
    let text = fs::read_to_string(field.bench.work().join(name)).unwrap_or_default();
    text.lines().count()
}

#[test]
fn requests_without_a_session_come_to_any_node() {
    let Some(field) = Field::of(3, Bench::configured("echo", "")) else {
        return;
    };
    for node in [A, B, C, B, A] {
        let (status, listed) = ask(&field, node, "tools/list", json!({}));
        assert_eq!(status, 200, "{listed}");
        let (_, said) = ask(&field, node, "tools/call", line(&format!("echo node-{node}")));
        assert_eq!(
            said["result"]["structuredContent"]["stdout"],
            format!("node-{node}\n"),
            "{said}"
        );
    }
    field.prove();
}

#[test]
fn a_state_that_one_node_gave_out_is_answered_at_another_and_leads_to_one_act() {
    let Some(field) = Field::of(3, Bench::new().config(LISTED)) else {
        return;
    };
    let asked = ask(&field, A, "tools/call", line("echo x >> log && cat log")).1;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let mut round = line("echo x >> log && cat log");
    round["requestState"] = asked["result"]["requestState"].clone();
    round["inputResponses"] = json!({"approval": {"action": "accept", "content": {"decision": "approve"}}});
    // Another call does not go by it.
    let mut other = line("echo y >> log");
    other["requestState"] = round["requestState"].clone();
    other["inputResponses"] = round["inputResponses"].clone();
    let (status, refused) = ask(&field, B, "tools/call", other);
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32602)), "{refused}");
    let done = ask(&field, B, "tools/call", round.clone()).1;
    assert_eq!(done["result"]["structuredContent"]["stdout"], "x\n", "{done}");
    // Sent once more it is refused where it came before; elsewhere it tells what came of it at most.
    let again = ask(&field, B, "tools/call", round.clone());
    assert_eq!(again.0, 400, "{}", again.1);
    for node in [A, C] {
        let (_, told) = ask(&field, node, "tools/call", round.clone());
        let facts = &told["result"]["structuredContent"];
        assert!(told["error"].is_object() || facts["stdout"] == "x\n", "{told}");
    }
    assert_eq!((lines(&field, "log"), field.count(DISPATCHED)), (1, 1));
    field.prove();
}

const DISPATCHED: &str = "SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'";

#[test]
fn an_answer_that_comes_to_all_nodes_at_once_leads_to_one_act() {
    let Some(field) = Field::of(3, Bench::new().config(LISTED)) else {
        return;
    };
    for turn in 1..=3 {
        let text = format!("echo {turn} >> log");
        let asked = ask(&field, A, "tools/call", line(&text)).1;
        let mut round = line(&text);
        round["requestState"] = asked["result"]["requestState"].clone();
        round["inputResponses"] = json!({"approval": {"action": "accept", "content": {"decision": "approve"}}});
        assert!(round["requestState"].is_string(), "{asked}");
        thread::scope(|scope| {
            for node in [A, B, C] {
                let (field, round) = (&field, round.clone());
                scope.spawn(move || ask(field, node, "tools/call", round));
            }
        });
        eventually("the act is done", || lines(&field, "log") >= turn);
        assert_eq!(lines(&field, "log"), turn);
    }
    assert_eq!(field.count(DISPATCHED), 3);
    field.prove();
}

#[test]
fn a_task_that_one_node_began_is_polled_and_cancelled_at_another() {
    let Some(field) = Field::of(2, Bench::configured("sh, sleep", "")) else {
        return;
    };
    let begin = |text: &str| {
        let call = json!({"name": "execute_process", "arguments": {"file": "sh", "args": ["-c", text]}});
        let (_, begun) = ask(&field, A, "tools/call", call);
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
        begun["result"]["taskId"].clone()
    };
    let (ends, hangs) = thread::scope(|scope| {
        let ends = scope.spawn(|| begin("sleep 7; echo done"));
        let hangs = scope.spawn(|| begin("sleep 300; echo late >> acts"));
        (ends.join().unwrap(), hangs.join().unwrap())
    });
    let look = |task: &Value| ask(&field, B, "tasks/get", json!({"taskId": task})).1["result"].clone();
    assert_eq!(look(&hangs)["status"], "working");
    let mut seen = look(&ends);
    eventually("the task is over", || {
        seen = look(&ends);
        seen["status"] != "working"
    });
    assert_eq!(seen["result"]["structuredContent"]["stdout"], "done\n", "{seen}");
    let (_, cancelled) = ask(&field, B, "tasks/cancel", json!({"taskId": hangs}));
    assert!(cancelled["result"].is_object(), "{cancelled}");
    eventually("the other is cancelled", || look(&hangs)["status"] == "cancelled");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(lines(&field, "acts"), 0);
    field.prove();
}
