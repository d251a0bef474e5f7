//! `serve` from its start to its end, with a client that speaks plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::stage::Stage;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

struct Serving {
    server: Child,
    address: String,
}

impl Serving {
    fn start(stage: &Stage) -> Self {
        let mut server = stage
            .command(&["serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(server.stderr.take().unwrap()).lines();
        let address = said.map_while(Result::ok).find_map(|line| {
            Some(
                line.strip_prefix("serving on http://")?
                    .trim_end_matches('/')
                    .to_owned(),
            )
        });
        let address = address.expect("it says where it listens");
        Self { server, address }
    }

    /// The whole answer to a message.
    fn post(&self, headers: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n{headers}\
             Content-Length: {length}\r\n\r\n",
            self.address
        );
        connection.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Ends as the operator would end it.
    fn stop(mut self) {
        let pid = self.server.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.server.wait().unwrap().code(), Some(0));
    }
}

/// Nothing is left of a server whose test failed.
impl Drop for Serving {
    fn drop(&mut self) {
        // One that was stopped has been waited for already; then both do nothing.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_client_is_led_to_where_the_server_runs() {
    let stage = Stage::new();
    stage.operator("listen: 127.0.0.1:9000\n");
    let url = || stage.json(&["connect", "codex", "--http", "--json"])["entry"]["url"].take();
    assert_eq!(url(), "http://127.0.0.1:9000/mcp");
    let serving = Serving::start(&stage);
    assert_eq!(url(), format!("http://{}/mcp", serving.address));
    serving.stop();
    assert_eq!(url(), "http://127.0.0.1:9000/mcp");
}

#[test]
fn sessions_and_tokens_hold_over_a_restart() {
    let stage = Stage::new();
    let token = stage.json(&["tokens", "create", "--role", "agent", "--name", "a", "--json"]);
    let bearer = format!("Authorization: Bearer {}\r\n", token["token"].as_str().unwrap());
    let serving = Serving::start(&stage);
    let begun = serving.post(&bearer, INITIALIZE);
    assert!(begun.starts_with("HTTP/1.1 200 "), "{begun}");
    let session = begun
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .unwrap();
    let session = format!("Mcp-Session-Id: {session}\r\n");
    serving.stop();
    let serving = Serving::start(&stage);
    let mine = serving.post(&(session.clone() + &bearer), PING);
    assert!(
        mine.starts_with("HTTP/1.1 200 ") && mine.ends_with(r#""result":{}}"#),
        "{mine}"
    );
    let anonymous = serving.post(&session, PING);
    assert!(
        anonymous.starts_with("HTTP/1.1 404 ") && anonymous.contains("SESSION_NOT_FOUND"),
        "{anonymous}"
    );
    let bad = serving.post("Authorization: Bearer cs_agent_00\r\n", PING);
    assert!(
        bad.starts_with("HTTP/1.1 401 ") && bad.contains("UNAUTHENTICATED"),
        "{bad}"
    );
    serving.stop();
    let events = stage.run(&["audit", "query", "--kind", "event", "--json"]).stdout;
    assert!(
        events.contains("auth.refused") && events.contains("session.initialized"),
        "{events}"
    );
    let refused = stage.json(&["audit", "query", "--kind", "envelope", "--status", "refused", "--json"]);
    let unknown = refused.as_array().unwrap().iter();
    let unknown: Vec<_> = unknown.filter(|it| it["error_code"] == "UNAUTHENTICATED").collect();
    assert_eq!(unknown.len(), 1, "{refused}");
    assert_eq!(unknown[0]["transport"], "streamable-http");
    assert_eq!(unknown[0]["params"]["count"], 1);
    let listed = stage.json(&["sessions", "list", "--json"]);
    assert_eq!(listed[0]["state"], "initialized");
}

/// A call that needs a person, under an id that a client may well use again.
const NAP: &str = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"execute_process","arguments":{"file":"sleep","args":["0"]}}}"#;

impl Serving {
    /// The header of a new session.
    fn session(&self) -> String {
        let begun = self.post("", INITIALIZE);
        let session = begun.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        format!("Mcp-Session-Id: {}\r\n", session.expect("a session"))
    }
}

#[test]
fn what_waits_over_http_is_decided_on_the_terminal_and_goes_on_after_a_restart() {
    let stage = Stage::new();
    stage.operator("answer_within_ms: 300\n");
    let serving = Serving::start(&stage);
    let session = serving.session();
    for _ in 0..2 {
        let told = serving.post(&session, NAP);
        assert!(told.contains("APPROVAL_PENDING"), "{told}");
    }
    serving.stop();
    let open = stage.json(&["approvals", "list", "--json"]);
    assert_eq!(open.as_array().map(Vec::len), Some(1), "one question: {open}");
    assert_eq!(stage.run(&["approve", open[0]["requestId"].as_str().unwrap()]).code, 0);
    // The session knows its request again, also in the life after the one in which it ended.
    for _ in 0..2 {
        let serving = Serving::start(&stage);
        for _ in 0..2 {
            let done = serving.post(&session, NAP);
            assert!(done.contains(r#""status":"ok""#), "{done}");
        }
        serving.stop();
    }
    let events = stage.run(&["audit", "query", "--kind", "event", "--json"]).stdout;
    assert_eq!(events.matches("command.dispatched").count(), 1, "{events}");
}

#[test]
fn what_nobody_answers_over_http_expires() {
    let stage = Stage::new();
    stage.operator("approval_policy: {timeout_ms: 300}\n");
    let serving = Serving::start(&stage);
    let refused = serving.post(&serving.session(), NAP);
    assert!(refused.contains("APPROVAL_EXPIRED"), "{refused}");
    serving.stop();
    let events = stage.run(&["audit", "query", "--kind", "event", "--json"]).stdout;
    assert!(!events.contains("command.dispatched"), "{events}");
}

#[test]
fn other_machines_are_not_served_without_tokens() {
    let stage = Stage::new();
    let serve = ["serve", "--listen", "0.0.0.0:0"];
    let open = stage.run(&serve);
    assert_eq!(open.code, 2, "{open:?}");
    assert!(
        open.stderr.contains("set `auth: {anonymous_agents: false}`"),
        "{open:?}"
    );
    stage.operator("auth: {anonymous_agents: false}\n");
    let nobody = stage.run(&serve);
    assert_eq!(nobody.code, 2, "{nobody:?}");
    assert!(nobody.stderr.contains("there is no token yet"), "{nobody:?}");
}

#[test]
fn a_certificate_that_cannot_be_read_stops_the_start() {
    let stage = Stage::new();
    stage.operator("tls: {cert: /nowhere/cert.pem, key: /nowhere/key.pem}\n");
    let ran = stage.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("cannot read `/nowhere/cert.pem`"), "{ran:?}");
}

#[test]
fn a_certificate_that_went_bad_is_told_on_hangup_and_the_server_goes_on() {
    let stage = Stage::new();
    let there = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/data");
    let (cert, key) = (there.path().join("cert.pem"), there.path().join("key.pem"));
    std::fs::copy(shipped.join("cert.pem"), &cert).unwrap();
    std::fs::copy(shipped.join("key.pem"), &key).unwrap();
    stage.operator(&format!("tls: {{cert: {}, key: {}}}\n", cert.display(), key.display()));
    let mut server = stage
        .command(&["serve", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
    let serving = Serving {
        server,
        address: String::new(),
    };
    let mut hears = |words: &str| said.any(|line| line.unwrap().contains(words));
    assert!(hears("serving on https://"));
    std::fs::write(&cert, "").unwrap();
    let pid = serving.server.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    assert!(hears("the old one stays"));
    serving.stop();
}
