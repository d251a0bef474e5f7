//! What the server says about itself besides its answers: traces for a collector, logs for programs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;

/// Takes one delivery of spans and gives the whole request.
fn collector() -> (String, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let taking = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let count = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..count]);
            if count == 0 || is_whole(&request) {
                break;
            }
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        request
    });
    (format!("http://{address}"), taking)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.parse::<usize>().unwrap());
    request.len() >= head.len() + 4 + length
}

#[test]
fn every_station_of_a_call_is_a_span_for_the_collector() {
    let (endpoint, taking) = collector();
    let bench = Bench::new().config(&format!(
        "command_policy: {{allowlist: [echo]}}\napproval_policy: {{mode: never}}\ntelemetry: {{otlp_endpoint: \"{endpoint}\"}}\n"
    ));
    let mut server = Server::start(&bench);
    server.process("echo", &["a secret of the output"]).ok();
    assert!(server.end().success());
    let request = taking.join().unwrap();
    let request = String::from_utf8_lossy(&request);
    assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
    let correlation: String = bench
        .database()
        .query_row(
            "SELECT correlation_id FROM flow_events WHERE event_type = 'command.received'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    for word in ["call", "policy", "execution", "record", "execute_process", &correlation] {
        assert!(request.contains(word), "{word} is not among the spans: {request}");
    }
    assert!(!request.contains("a secret"), "arguments and output are not traced");
}

#[test]
fn a_collector_that_is_not_there_costs_no_call() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bench = Bench::new().config(&format!(
        "command_policy: {{allowlist: [echo]}}\napproval_policy: {{mode: never}}\ntelemetry: {{otlp_endpoint: \"http://{closed}\"}}\n"
    ));
    let mut server = Server::start(&bench);
    server.process("echo", &["hi"]).ok();
    assert!(server.end().success());
}

#[test]
fn logs_are_json_when_asked_for() {
    let bench = Bench::allowing("echo")
        .env("COUNTERSIGN_LOG", "debug")
        .env("COUNTERSIGN_LOG_FORMAT", "json");
    let mut server = Server::start(&bench);
    let id = server.request("no/such/method", json!({}));
    assert_eq!(server.answer(id)["error"]["code"], -32601);
    assert!(server.end().success());
    let logs = server.stderr();
    let lines: Vec<Value> = logs
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect();
    let refused = lines.iter().find(|line| line["message"] == "refused");
    assert_eq!(refused.unwrap()["code"], "METHOD_NOT_FOUND", "{logs}");
}

/// Each secret is planted where only its name gives it away.
#[test]
fn no_secret_is_logged_however_much_is_asked_for() {
    for wanted in [
        "trace",
        "debug,parse=trace,tokenize=trace,expansion=trace,arithmetic=trace",
    ] {
        let bench = Bench::allowing("echo").env("COUNTERSIGN_LOG", wanted);
        let mut server = Server::start(&bench);
        let call = |tool: &str, command: &str| json!({"name": tool, "arguments": {"command": command}});
        for (method, params) in [
            ("tools/call", call("execute_command", "echo --password=plantedLine1")),
            (
                "tools/call",
                call("execute_command", "echo $((1 + token)) --token plantedLine2; ("),
            ),
            ("tools/call", call("deploy_token=plantedTool3", "echo")),
            ("prompts/get", json!({"name": "password=plantedPrompt4"})),
            ("resources/read", json!({"uri": "https://ann:plantedUri5@host/"})),
            ("secret=plantedMethod6", json!({})),
        ] {
            let id = server.request(method, params);
            server.answer(id);
        }
        let reason = json!({"requestId": "token=plantedId7", "reason": "password=plantedReason8"});
        server.notify("notifications/cancelled", reason);
        assert!(server.end().success());
        let logs = server.stderr();
        assert!(!logs.contains("planted"), "{logs}");
        for told in ["the client cancelled a request", "refused", "password=[redacted]"] {
            assert!(logs.contains(told), "{told}: {logs}");
        }
    }
}
