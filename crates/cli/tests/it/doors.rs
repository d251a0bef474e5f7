//! What comes in by HTTP to the real server, from people who mean it ill: nobody is waited for for ever, and what
//! can be read in two ways is not read at all.

use std::io::{Read, Write};
use std::net::TcpStream;

use countersign_doubles::github::{GitHub, TOKEN};

use crate::bench::Bench;
use crate::client::PATIENCE;
use crate::outside::Serving;

const WEBHOOKS: &str = "/api/v1/webhooks/github";
const CALLBACK: &str = "/api/v1/mcp/approver/callback";

/// A bench with every door open.
fn bench(github: &GitHub) -> Bench {
    Bench::new().config(&format!(
        "listen: 127.0.0.1:0\ncallbacks: {{token: callback-s3cret}}\n\
         github: {{api_url: '{}', token: {TOKEN}, webhook_secret: webhook-s3cret}}\n",
        github.url()
    ))
}

/// Sends this much and no more; what is answered until the server hangs up.
fn half(address: &str, path: &str, headers: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: 100\r\n\r\n{{\"");
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection
        .read_to_string(&mut answer)
        .unwrap_or_else(|error| panic!("{path} waits for ever: {error}"));
    answer
}

#[test]
fn nobody_who_sends_half_a_body_is_waited_for_for_ever_at_any_door() {
    let github = GitHub::start();
    let bench = bench(&github);
    let serving = Serving::start(&bench);
    let address = serving.address.as_str();
    let form = format!("Origin: http://{address}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
    let token = "X-Codex-MCP-Token: callback-s3cret\r\n".to_owned();
    let json = "Content-Type: application/json\r\n".to_owned();
    std::thread::scope(|scope| {
        for (path, headers) in [
            ("/login", &form),
            (WEBHOOKS, &json),
            (CALLBACK, &token),
            ("/api/v1/commands", &json),
            ("/mcp", &json),
        ] {
            scope.spawn(move || {
                let answer = half(address, path, headers);
                assert!(answer.starts_with("HTTP/1.1 408 "), "{path}: {answer}");
            });
        }
    });
    let told = |kind: &str| bench.count(&format!("SELECT count(*) FROM flow_events WHERE event_type = '{kind}'"));
    assert_eq!((told("webhook.refused"), told("callback.received")), (1, 1));
}
