//! Who may come in, how much they may say, and how slowly.

use std::time::Duration;

use countersign_gateway::error::ErrorCode;
use countersign_gateway::session::Role;
use countersign_server::http::{Anonymous, HttpLimits, HttpOptions};
use countersign_server::limits::HEAD_PATIENCE;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake::Fake;
use crate::web::{self, Ask, BOTH, Web, call, handshake};

async fn with(change: impl FnOnce(&mut HttpOptions)) -> Web {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    change(&mut options);
    Web::with(fake, options).await
}

fn ping() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
}

#[tokio::test]
async fn a_token_is_in_force_or_refused_and_never_overlooked() {
    let web = Web::start().await;
    web.fake.allow("good", Role::Agent);
    let ask = |value: &str| Ask::post(handshake("2025-11-25")).header("Authorization", value);
    for (value, status) in [
        ("", 200),
        ("Bearer good", 200),
        ("bearer good", 200),
        ("Bearer bad", 401),
        ("Bearer ", 401),
        ("Basic good", 401),
        ("good", 401),
    ] {
        let reply = web.ask(ask(value)).await;
        assert_eq!(reply.status, status, "{value}");
        if status == 401 {
            assert_eq!(reply.error(), (-32001, "UNAUTHENTICATED".to_owned()));
            assert!(reply.headers["www-authenticate"].starts_with("Bearer "));
        }
    }
    web.fake.tokens.lock().unwrap().clear();
    for path in ["/mcp", "/sse", "/messages?sessionId=x"] {
        let reply = web
            .ask(Ask::new("GET", path).token("good").header("Accept", BOTH))
            .await;
        assert_eq!(reply.status, 401, "{path}");
    }
}

#[tokio::test]
async fn nobody_is_anonymous_where_the_operator_says_so() {
    let web = with(|options| options.anonymous = Anonymous::Nobody).await;
    web.fake.allow("good", Role::Agent);
    assert_eq!(web.ask(Ask::post(handshake("2025-11-25"))).await.status, 401);
    assert_eq!(
        web.ask(Ask::post(handshake("2025-11-25")).token("good")).await.status,
        200
    );
    assert_eq!(web.ask(Ask::new("GET", "/healthz")).await.status, 200);
}

#[tokio::test]
async fn a_flood_of_bad_tokens_is_one_line_in_the_record() {
    let web = Web::start().await;
    for _ in 0..50 {
        assert_eq!(web.ask(Ask::post(ping()).token("bad")).await.status, 401);
    }
    let fake = Arc::clone(&web.fake);
    let count = |value: &Option<serde_json::Map<String, Value>>| value.as_ref().unwrap()["count"].as_u64().unwrap();
    let told = |fake: &Fake| -> Vec<u64> {
        let refused = fake.refused.lock().unwrap();
        assert!(
            refused
                .iter()
                .all(|refused| refused.code == ErrorCode::Unauthenticated && refused.caller.is_none())
        );
        refused.iter().map(|refused| count(&refused.params)).collect()
    };
    assert_eq!(told(&fake), [1]);
    assert_eq!(web.gauges.refused(ErrorCode::Unauthenticated), 50);
    web.stop().await;
    assert_eq!(told(&fake), [1, 49]);
}

#[tokio::test]
async fn a_token_that_may_not_call_tools_is_told_so() {
    let web = Web::start().await;
    web.fake.allow("eve", Role::Viewer);
    let session = web.initialize_as("2025-11-25", Some("eve")).await;
    let reply = web
        .ask(
            Ask::post(call(1, "forbidden", json!({})))
                .token("eve")
                .session(&session),
        )
        .await;
    assert_eq!((reply.status, reply.error()), (403, (-32003, "FORBIDDEN".to_owned())));
}

#[tokio::test]
async fn other_names_and_other_sites_get_no_session() {
    let web = Web::start().await;
    let host = format!("127.0.0.1:{}", web.address.port());
    for (name, value, status) in [
        ("Host", "evil.example", 403),
        ("Host", host.as_str(), 200),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", &format!("http://{host}"), 200),
    ] {
        let reply = web.ask(Ask::post(handshake("2025-11-25")).header(name, value)).await;
        assert_eq!(reply.status, status, "{name}: {value}");
        if status == 403 {
            assert_eq!(reply.error(), (-32003, "FORBIDDEN".to_owned()));
        }
    }
    for path in ["/sse", "/messages?sessionId=x"] {
        let reply = web.ask(Ask::new("GET", path).header("Host", "evil.example")).await;
        assert_eq!(reply.status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_body_has_a_limit_and_the_limit_is_exact() {
    let web = with(|options| options.limits.body_bytes = 1_000).await;
    let body = |bytes: usize| {
        let empty = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": ""}})
            .to_string()
            .len();
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "x".repeat(bytes - empty)}})
    };
    let session = web.initialize("2025-11-25").await;
    assert_eq!(web.ask(Ask::post(body(1_000)).session(&session)).await.status, 200);
    let reply = web.ask(Ask::post(body(1_001)).session(&session)).await;
    assert_eq!((reply.status, reply.error().0), (413, -32600));
    assert_eq!(reply.json()["error"]["data"]["details"]["body_bytes_max"], 1_000);
    // Without an announced length the bytes are counted as they come.
    for (bytes, status) in [(1_000, 200), (1_001, 413)] {
        let mut client = web.connect().await;
        let text = body(bytes).to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: {BOTH}\r\nContent-Type: application/json\r\n\
             Mcp-Session-Id: {session}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        client.stream.write_all(head.as_bytes()).await.unwrap();
        for piece in text.as_bytes().chunks(300) {
            client
                .stream
                .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
                .await
                .unwrap();
            client.stream.write_all(piece).await.unwrap();
            client.stream.write_all(b"\r\n").await.unwrap();
        }
        client.stream.write_all(b"0\r\n\r\n").await.unwrap();
        assert_eq!(client.reply().await.status, status, "{bytes}");
    }
}

#[tokio::test]
async fn a_body_of_200_megabytes_is_refused_and_not_kept() {
    const BYTES: usize = 200 << 20;
    let web = Web::start().await;
    let piece = vec![b'x'; 64 << 10];
    let before = web::resident();
    for framing in [
        format!("Content-Length: {BYTES}"),
        "Transfer-Encoding: chunked".to_owned(),
    ] {
        let client = web.connect().await;
        let (reading, mut writing) = client.stream.into_split();
        let head =
            format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{framing}\r\n\r\n");
        writing.write_all(head.as_bytes()).await.unwrap();
        let chunked = framing.starts_with("Transfer");
        let send = async {
            let mut sent = 0;
            while sent < BYTES {
                if chunked
                    && writing
                        .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
                        .await
                        .is_err()
                {
                    break;
                }
                if writing.write_all(&piece).await.is_err() {
                    break;
                }
                if chunked && writing.write_all(b"\r\n").await.is_err() {
                    break;
                }
                sent += piece.len();
            }
        };
        let mut answer = vec![0; 12];
        let mut reading = reading;
        let read = async {
            reading.read_exact(&mut answer).await.unwrap();
        };
        tokio::time::timeout(web::PATIENCE, async { tokio::join!(send, read) })
            .await
            .expect("an answer");
        assert_eq!(answer, b"HTTP/1.1 413");
    }
    let grown = web::resident().saturating_sub(before);
    assert!(grown < 32 << 20, "grew by {grown} bytes");
}

#[tokio::test(start_paused = true)]
async fn half_a_request_is_not_waited_for_for_ever() {
    let web = Web::start().await;
    let ask = Ask::post(handshake("2025-11-25")).bytes();
    let head_ends = ask.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    for (sent, status) in [
        (0, None),
        (20, None),
        (head_ends, Some(408)),
        (ask.len() - 1, Some(408)),
    ] {
        let mut client = web.connect().await;
        client.stream.write_all(&ask[..sent]).await.unwrap();
        let mut answer = String::new();
        let ended = tokio::time::timeout(Duration::from_secs(600), client.stream.read_to_string(&mut answer)).await;
        match status {
            Some(408) => assert!(answer.starts_with("HTTP/1.1 408 "), "{sent}: {answer}"),
            _ => {
                ended.expect("the connection is closed").unwrap();
                assert!(!answer.starts_with("HTTP/1.1 2"), "{sent}: {answer}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_credential_has_its_rate() {
    let limits = HttpLimits {
        requests_per_second: Some(1.0),
        burst: Some(3),
        ..HttpLimits::standard()
    };
    let web = with(|options| options.limits = limits).await;
    web.fake.allow("ana", Role::Agent);
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let reply = web.ask(Ask::post(handshake("2025-11-25")).token("ana")).await;
        if reply.status == 429 {
            assert_eq!(reply.error(), (-32014, "RATE_LIMITED".to_owned()));
            assert_eq!(reply.headers["retry-after"], "1");
        }
        statuses.push(reply.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(web.ask(Ask::post(handshake("2025-11-25"))).await.status, 200);
    assert_eq!(web.gauges.refused(ErrorCode::RateLimited), 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        web.ask(Ask::post(handshake("2025-11-25")).token("ana")).await.status,
        200
    );
}

#[tokio::test]
async fn it_says_what_it_speaks() {
    let web = Web::start().await;
    let reply = web
        .ask(Ask::new("GET", "/.well-known/mcp").header("Host", "localhost:7420"))
        .await;
    assert_eq!(reply.status, 200);
    let told = reply.json();
    assert_eq!(told["name"], "countersign");
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        told["protocolVersions"],
        json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
    );
    assert_eq!(
        told["transports"],
        json!([
            {"type": "streamable-http", "url": "http://localhost:7420/mcp"},
            {"type": "sse", "url": "http://localhost:7420/sse"},
        ])
    );
    assert!(told["capabilities"]["tools"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_bytes_is_cut_off() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let mut client = web.connect().await;
    let ask = Ask::post(call(1, "big", json!({"bytes": 20_000_000}))).session(&session);
    client.send(&ask.header("Accept", "application/json")).await;
    web::until(|| web.fake.calls() == 1).await;
    assert_eq!(web.gauges.connections(), 1);
    tokio::time::sleep(Duration::from_secs(120)).await;
    web::until(|| web.gauges.connections() == 0).await;
}

#[tokio::test]
async fn the_numbers_are_open_on_loopback() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    web.ask(Ask::post(call(1, "echo", json!({}))).session(&session)).await;
    web.ask(Ask::post(call(2, "no such tool", json!({}))).session(&session))
        .await;
    let page = web.ask(Ask::new("GET", "/metrics")).await;
    assert_eq!(page.status, 200);
    for line in [
        r#"countersign_calls_total{tool="echo",status="ok"} 1"#,
        r#"countersign_calls_total{tool="unknown",status="UNKNOWN_TOOL"} 1"#,
        r#"countersign_sessions{state="initialized"} 1"#,
        r#"countersign_sessions{state="closed"} 0"#,
        "countersign_open_calls 0",
    ] {
        assert!(
            page.body.lines().any(|it| it == line),
            "{line} is not in\n{}",
            page.body
        );
    }
    let refused = web.ask(Ask::new("POST", "/metrics").raw("")).await;
    assert_eq!((refused.status, refused.headers["allow"].as_str()), (405, "GET"));
    web.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_the_numbers_keeps_the_connection() {
    let web = Web::start().await;
    let mut client = web.connect().await;
    for _ in 0..4 {
        client.send(&Ask::new("GET", "/metrics")).await;
        assert_eq!(client.reply().await.status, 200);
        tokio::time::sleep(HEAD_PATIENCE * 2 / 3).await;
    }
    web.stop().await;
}

#[tokio::test]
async fn what_is_refused_at_the_door_is_recorded_and_counted() {
    let web = with(|options| options.limits.requests_per_second = Some(0.001)).await;
    let foreign = Ask::post(ping()).header("Origin", "https://evil.example");
    assert_eq!(web.ask(foreign).await.status, 403);
    let statuses = [
        web.ask(Ask::post(ping())).await.status,
        web.ask(Ask::post(ping())).await.status,
    ];
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(
        web.ask(Ask::post(ping()).header("Authorization", "Bearer no"))
            .await
            .status,
        401
    );
    let refused: Vec<ErrorCode> = web.fake.refused.lock().unwrap().iter().map(|it| it.code).collect();
    for code in [ErrorCode::Forbidden, ErrorCode::RateLimited, ErrorCode::Unauthenticated] {
        assert!(refused.contains(&code), "{code:?} is not among {refused:?}");
    }
    let page = web.ask(Ask::new("GET", "/metrics")).await.body;
    for code in ["FORBIDDEN", "RATE_LIMITED", "UNAUTHENTICATED"] {
        assert!(
            page.contains(&format!("countersign_refused_total{{code=\"{code}\"}} 1")),
            "{page}"
        );
    }
    web.stop().await;
}

#[tokio::test]
async fn a_batch_without_a_request_is_accepted_and_not_answered() {
    let web = Web::start().await;
    let session = web.initialize("2025-03-26").await;
    let batch = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"},
                       {"jsonrpc": "2.0", "id": "x", "result": {}}]);
    let reply = web.ask(Ask::post(batch).session(&session)).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, ""));
    web.stop().await;
}

#[tokio::test]
async fn a_wrong_credential_does_not_read_the_numbers_even_on_loopback() {
    let web = Web::start().await;
    web.fake.allow("good", Role::Agent);
    for value in ["Bearer bad", "Bearer ", "Basic good", "good"] {
        let page = web
            .ask(Ask::new("GET", "/metrics").header("Authorization", value))
            .await;
        assert_eq!(page.status, 401, "{value}");
        assert!(!page.body.contains("countersign_"), "{value}");
    }
    let page = web.ask(Ask::new("GET", "/metrics").token("good")).await;
    assert_eq!(page.status, 200);
    web.stop().await;
}

#[tokio::test]
async fn so_many_connections_and_no_more() {
    let web = with(|options| options.limits.connections_max = 2).await;
    let (mut first, mut second) = (web.connect().await, web.connect().await);
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask(Ask::new("GET", "/healthz")).await.status, 200);
    }
    let mut third = web.connect().await;
    let refused = third.reply().await;
    assert_eq!((refused.status, refused.headers["retry-after"].as_str()), (503, "10"));
    // Who is in is served, and who goes makes room.
    assert_eq!(first.ask(Ask::new("GET", "/healthz")).await.status, 200);
    drop(second);
    web::until(|| web.gauges.connections() == 1).await;
    assert_eq!(web.ask(Ask::new("GET", "/healthz")).await.status, 200);
}

#[tokio::test]
async fn headers_that_say_two_things_are_refused() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let other = web.initialize("2025-11-25").await;
    let echo = || Ask::modern(call(1, "echo", json!({})));
    let legacy = |id| Ask::post(call(id, "echo", json!({}))).session(&session);
    for ask in [
        echo().again("Mcp-Name", "wait"),
        echo().again("Mcp-Method", "tools/list"),
        echo().again("MCP-Protocol-Version", "2025-11-25"),
        legacy(1).again("Mcp-Session-Id", &other),
        legacy(1)
            .again("MCP-Protocol-Version", "2025-11-25")
            .again("MCP-Protocol-Version", "2025-06-18"),
    ] {
        let reply = web.ask(ask.clone()).await;
        assert_eq!(
            (reply.status, reply.error()),
            (400, (-32020, "HEADER_MISMATCH".to_owned())),
            "{ask:?}"
        );
    }
    assert_eq!(web.ask(echo().again("Content-Length", "5")).await.status, 400);
    assert_eq!(web.fake.calls(), 0);
    // Said twice is not said differently.
    assert_eq!(web.ask(echo().again("Mcp-Name", " echo ")).await.status, 200);
    assert_eq!(web.ask(legacy(2).again("Mcp-Session-Id", &session)).await.status, 200);
}

#[tokio::test]
async fn pages_of_other_sites_that_name_no_origin_are_refused() {
    let web = Web::start().await;
    let from = |site: &str, mode: &str, path: &str| {
        let ask = Ask::new("GET", path).header("Accept", "*/*");
        ask.header("Sec-Fetch-Site", site).header("Sec-Fetch-Mode", mode)
    };
    for path in ["/sse", "/mcp", "/metrics", "/healthz"] {
        let reply = web.ask(from("cross-site", "no-cors", path)).await;
        assert_eq!(reply.status, 403, "{path}");
    }
    assert_eq!(web.ask(from("cross-site", "navigate", "/sse")).await.status, 403);
    assert!(web.fake.states().is_empty(), "no session began");
    for (site, mode) in [
        ("cross-site", "navigate"),
        ("same-origin", "cors"),
        ("none", "navigate"),
    ] {
        assert_eq!(web.ask(from(site, mode, "/healthz")).await.status, 200, "{site} {mode}");
    }
    // Where `Origin` tells, it decides: a page of this machine may have another name for it.
    let own = from("cross-site", "cors", "/healthz").header("Origin", "http://localhost:3000");
    assert_eq!(web.ask(own).await.status, 200);
}

#[tokio::test]
async fn bodies_that_do_not_end_are_held_up_to_a_bound_however_many_send_them() {
    const BYTES: usize = 4 << 20;
    const CLIENTS: usize = 160;
    let web = Web::start().await;
    let body = Arc::new(vec![b' '; BYTES - 1]);
    let before = web::resident();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, body) = (web.connect().await, Arc::clone(&body));
        clients.spawn(async move {
            let (mut reading, mut writing) = client.stream.into_split();
            let head = format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {BYTES}\r\n\r\n"
            );
            writing.write_all(head.as_bytes()).await.unwrap();
            let send = async {
                // The last byte never comes.
                let _ = writing.write_all(&body).await;
                std::future::pending::<()>().await;
            };
            let mut answer = vec![0; 12];
            tokio::select! {
                () = send => {}
                read = reading.read_exact(&mut answer) => drop(read.unwrap()),
            }
            answer
        });
    }
    // Whoever is answered first was given up; until then all were read as far as they are.
    let first = clients.join_next().await.unwrap().unwrap();
    let grown = web::resident().saturating_sub(before);
    assert!(grown < 400 << 20, "grew by {} MiB", grown >> 20);
    assert!([b"HTTP/1.1 408", b"HTTP/1.1 503"].contains(&first.as_slice().try_into().unwrap()));
    // Room comes back with those who are given up.
    clients.shutdown().await;
    let message = format!("{}{}", " ".repeat(BYTES / 2), handshake("2025-11-25"));
    let reply = web.ask(Ask::post(json!({})).raw(message)).await;
    assert_eq!(reply.status, 200);
}
