//! Streamable HTTP with sessions: what each request leads to.

use std::sync::atomic::Ordering;

use countersign_gateway::session::Role;
use countersign_gateway::session::lifetime::SessionState;
use serde_json::{Value, json};

use crate::web::{Ask, BOTH, Reply, Web, call, handshake, until};

fn ping(id: impl Into<Value>) -> Value {
    let id = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

#[tokio::test]
async fn a_handshake_begins_a_session_that_requests_name() {
    let web = Web::start().await;
    let reply = web.ask(Ask::post(handshake("2025-06-18"))).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.json()["result"]["protocolVersion"], "2025-06-18");
    let session = &reply.headers["mcp-session-id"];
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let reply = web.ask(Ask::post(initialized).session(session)).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, ""));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let reply = web.ask(Ask::post(list).session(session)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["result"]["tools"][0]["name"], "echo");
    assert!(!reply.headers.contains_key("mcp-session-id"));
    let reply = web
        .ask(Ask::post(call(2, "echo", json!({"a": 1}))).session(session))
        .await;
    assert_eq!(reply.json()["result"]["structuredContent"]["said"], json!({"a": 1}));
    let answer = json!({"jsonrpc": "2.0", "id": 9, "result": {}});
    assert_eq!(web.ask(Ask::post(answer).session(session)).await.status, 202);
}

#[tokio::test]
async fn a_session_is_neither_guessed_nor_taken_over() {
    let web = Web::start().await;
    web.fake.allow("ana", Role::Agent);
    web.fake.allow("bob", Role::Agent);
    let session = web.initialize_as("2025-11-25", Some("ana")).await;
    let ask = |method: &str| match method {
        "POST" => Ask::post(ping(1)),
        method => Ask::new(method, "/mcp").header("Accept", BOTH),
    };
    let missing = (400, (-32002, "SESSION_NOT_INITIALIZED".to_owned()));
    let not_found = (404, (-32004, "SESSION_NOT_FOUND".to_owned()));
    let said = |reply: Reply| (reply.status, reply.error());
    for method in ["POST", "GET", "DELETE"] {
        assert_eq!(said(web.ask(ask(method).token("ana")).await), missing, "{method}");
        for (id, token) in [("unknown", "ana"), (session.as_str(), "bob"), ("", "bob")] {
            let id = if id.is_empty() {
                "x".repeat(4_000)
            } else {
                id.to_owned()
            };
            let reply = web.ask(ask(method).token(token).session(&id)).await;
            assert_eq!(said(reply), not_found, "{method} {id} {token}");
        }
        let anonymous = web.ask(ask(method).session(&session)).await;
        assert_eq!(said(anonymous), not_found, "{method}");
    }
    assert_eq!(web.ask(ask("POST").token("ana").session(&session)).await.status, 200);
    let told = web.fake.refused.lock().unwrap();
    assert!(told.iter().all(|refused| refused.caller.is_some()));
    assert_eq!(told.len(), 15);
}

#[tokio::test]
async fn a_handshake_with_a_stale_session_begins_a_new_one() {
    let web = Web::start().await;
    let reply = web.ask(Ask::post(handshake("2025-11-25")).session("stale")).await;
    assert_eq!(reply.status, 200);
    let session = reply.headers["mcp-session-id"].clone();
    assert_ne!(session, "stale");
    let again = web.ask(Ask::post(handshake("2025-11-25")).session(&session)).await;
    assert_eq!(
        (again.status, again.error()),
        (400, (-32600, "INVALID_REQUEST".to_owned()))
    );
    assert!(!again.headers.contains_key("mcp-session-id"));
    assert_eq!(web.fake.states(), [SessionState::Initialized]);
}

#[tokio::test]
async fn a_handshake_that_fails_begins_nothing() {
    let web = Web::start().await;
    let bad = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}});
    let reply = web.ask(Ask::post(bad)).await;
    assert_eq!(reply.error().0, -32602);
    assert!(!reply.headers.contains_key("mcp-session-id"));
    assert!(web.fake.states().is_empty());
    assert_eq!(web.gauges.sessions_open(), 0);
}

#[tokio::test]
async fn what_cannot_be_read_is_told_so_and_recorded() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let post = |body: &[u8]| {
        let ask = Ask::new("POST", "/mcp").header("Accept", BOTH).session(&session);
        ask.header("Content-Type", "application/json").raw(body)
    };
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (body, code) in [
        (&b"{"[..], -32700),
        (b"", -32700),
        (b"\xff\xfe", -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}",
            -32700,
        ),
        (deep.as_bytes(), -32700),
        (b"[]", -32600),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (b"7", -32600),
        (br#"{"jsonrpc":"2.0","method":""}"#, -32600),
    ] {
        let reply = web.ask(post(body)).await;
        let shown = String::from_utf8_lossy(body).into_owned();
        assert_eq!((reply.status, reply.error().0), (400, code), "{shown}");
        assert_eq!(reply.json()["id"], Value::Null, "{shown}");
    }
    assert_eq!(web.fake.refused.lock().unwrap().len(), 11);
    let reply = web.ask(post(br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#)).await;
    assert_eq!((reply.status, reply.json()["id"].clone()), (400, json!(7)));
}

#[tokio::test]
async fn kinds_of_content_are_checked_where_that_matters() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let ask = |name: &str, value: &str| Ask::post(ping(1)).session(&session).header(name, value);
    for (name, value, status) in [
        ("Content-Type", "", 415),
        ("Content-Type", "text/plain", 415),
        ("Content-Type", "application/json; charset=utf-8", 200),
        ("Content-Type", "Application/JSON", 200),
        ("Accept", "", 200),
        ("Accept", "*/*", 200),
        ("Accept", "application/json", 200),
        ("Accept", "text/event-stream", 200),
        ("Accept", "text/html", 406),
    ] {
        let reply = web.ask(ask(name, value)).await;
        assert_eq!(reply.status, status, "{name}: {value}");
        if status == 200 {
            assert_eq!(reply.is_stream(), value == "text/event-stream");
            assert_eq!(reply.json(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        } else {
            assert_eq!(reply.error().0, -32600);
        }
    }
    let other = web.ask(Ask::new("PUT", "/mcp")).await;
    assert_eq!(
        (other.status, other.headers["allow"].as_str()),
        (405, "POST, GET, DELETE")
    );
}

#[tokio::test]
async fn the_version_header_may_be_absent_but_not_unknown() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    for (version, status) in [("", 200), ("2025-11-25", 200), ("2025-03-26", 200), ("1999-01-01", 400)] {
        let ask = Ask::post(ping(1))
            .session(&session)
            .header("MCP-Protocol-Version", version);
        let reply = web.ask(ask).await;
        assert_eq!(reply.status, status, "{version}");
        if status == 400 {
            let error = &reply.json()["error"];
            assert_eq!(
                (&error["code"], &error["data"]["requested"]),
                (&json!(-32022), &json!("1999-01-01"))
            );
            assert_eq!(error["data"]["supported"][1], "2025-11-25");
        }
    }
}

#[tokio::test]
async fn errors_of_calls_are_answers_like_any_other() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    for (message, code) in [
        (call(1, "no_such_tool", json!({})), -32602),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}),
            -32602,
        ),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": []}}),
            -32602,
        ),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/listen"}), -32601),
    ] {
        let reply = web.ask(Ask::post(message).session(&session)).await;
        assert_eq!((reply.status, reply.error().0), (200, code));
        assert_eq!(reply.json()["id"], 1);
    }
}

#[tokio::test]
async fn only_one_revision_has_batches() {
    let web = Web::start().await;
    let batch = json!([ping(1), {"jsonrpc": "2.0", "method": "notifications/initialized"}, call(2, "echo", json!({}))]);
    let silent = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    for (revision, status) in [
        ("2025-03-26", 200),
        ("2024-11-05", 400),
        ("2025-06-18", 400),
        ("2025-11-25", 400),
    ] {
        let session = web.initialize(revision).await;
        let reply = web.ask(Ask::post(batch.clone()).session(&session)).await;
        assert_eq!(reply.status, status, "{revision}");
        if status == 200 {
            let answers = reply.json();
            let ids: Vec<_> = answers
                .as_array()
                .unwrap()
                .iter()
                .map(|answer| answer["id"].clone())
                .collect();
            assert_eq!(ids.len(), 2);
            assert!(ids.contains(&json!(1)) && ids.contains(&json!(2)));
            let json_only = Ask::post(silent.clone())
                .session(&session)
                .header("Accept", "application/json");
            assert_eq!(web.ask(json_only).await.status, 202);
        } else {
            assert_eq!(reply.error().0, -32600);
        }
    }
}

#[tokio::test]
async fn a_client_that_calls_everything_one_gets_every_answer() {
    let web = Web::start().await;
    let session = web.initialize("2025-06-18").await;
    let calls = (0..40).map(|number| {
        let web = &web;
        let session = &session;
        async move {
            let tool = if number % 2 == 0 { "echo" } else { "wait" };
            let reply = web
                .ask(Ask::post(call(1, tool, json!({"n": number}))).session(session))
                .await;
            let answer = reply.json();
            assert_eq!(answer["id"], 1);
            let content = &answer["result"]["structuredContent"];
            let told = if tool == "echo" {
                &content["said"]
            } else {
                &content["waited"]
            };
            assert_eq!(told, &json!({"n": number}));
        }
    });
    let mut tasks = Vec::from_iter(calls.map(Box::pin));
    let all = async {
        let mut done = 0;
        std::future::poll_fn(|context| {
            tasks.retain_mut(|task| {
                let ready = task.as_mut().poll(context).is_ready();
                done += usize::from(ready);
                !ready
            });
            // Those that wait are let go one by one.
            web.fake.gate.notify_one();
            if tasks.is_empty() {
                std::task::Poll::Ready(done)
            } else {
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            }
        })
        .await
    };
    let done = tokio::time::timeout(crate::web::PATIENCE, all)
        .await
        .expect("every answer");
    assert_eq!(done, 40);
}

#[tokio::test]
async fn the_same_request_twice_acts_once_and_is_answered_twice() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let ask = Ask::post(call(1, "wait", json!({"n": 1})))
        .session(&session)
        .header("Accept", "application/json");
    let (mut first, mut second) = (web.connect().await, web.connect().await);
    first.send(&ask).await;
    crate::web::until(|| web.fake.calls() == 1).await;
    second.send(&ask).await;
    let other = web.ask(Ask::post(call(1, "echo", json!({}))).session(&session)).await;
    assert_eq!(other.json()["result"]["structuredContent"]["said"], json!({}));
    web.fake.gate.notify_one();
    let (first, second) = (first.reply().await.json(), second.reply().await.json());
    assert_eq!(
        first["result"]["structuredContent"],
        second["result"]["structuredContent"]
    );
    assert_eq!(second["result"]["_meta"]["countersign/duplicate"], true);
    assert_eq!(web.fake.calls(), 2);
}

#[tokio::test]
async fn deleting_a_session_cancels_what_runs_in_it() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let mut running = web.connect().await;
    running
        .send(&Ask::post(call(1, "wait", json!({}))).session(&session))
        .await;
    crate::web::until(|| web.fake.calls() == 1).await;
    let mut listening = web.connect().await;
    listening
        .send(&Ask::new("GET", "/mcp").header("Accept", BOTH).session(&session))
        .await;
    assert_eq!(listening.head().await.status, 200);
    let delete = Ask::new("DELETE", "/mcp").session(&session);
    assert_eq!(web.ask(delete.clone()).await.status, 204);
    assert_eq!(
        running.reply().await.json()["result"]["structuredContent"]["error_code"],
        "CANCELLED"
    );
    while listening.event().await.is_some() {}
    assert_eq!(web.ask(delete).await.status, 404);
    assert_eq!(web.ask(Ask::post(ping(2)).session(&session)).await.status, 404);
    assert_eq!(web.fake.states(), [SessionState::Closed]);
}

#[tokio::test]
async fn a_cancel_ends_everything_that_runs_under_its_id() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let mut clients = Vec::new();
    for number in 0..3 {
        let mut client = web.connect().await;
        let ask = Ask::post(call(1, "wait", json!({"number": number}))).session(&session);
        client.send(&ask).await;
        clients.push(client);
        until(|| web.fake.calls() == number + 1).await;
    }
    let mut other = web.connect().await;
    other
        .send(&Ask::post(call(2, "wait", json!({}))).session(&session))
        .await;
    until(|| web.fake.calls() == 4).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(web.ask(Ask::post(cancel).session(&session)).await.status, 202);
    until(|| web.fake.cancelled.load(Ordering::SeqCst) == 3).await;
    web.fake.gate.notify_one();
    assert_eq!(other.reply().await.json()["result"]["isError"], false);
    assert_eq!(web.fake.cancelled.load(Ordering::SeqCst), 3);
}
