//! Streamable HTTP without sessions.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::web::{Ask, BOTH, Web, call, in_time, until};

fn request(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 5, "method": method, "params": {}})
}

#[tokio::test]
async fn a_modern_request_stands_alone() {
    let web = Web::start().await;
    let reply = web.ask(Ask::modern(request("server/discover"))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["result"]["supportedVersions"][0], "2026-07-28");
    let reply = web.ask(Ask::modern(call(2, "echo", json!({"a": 1})))).await;
    assert_eq!(reply.json()["result"]["structuredContent"]["said"], json!({"a": 1}));
    assert!(!reply.headers.contains_key("mcp-session-id"));
    assert!(web.fake.states().is_empty());
}

#[tokio::test]
async fn headers_say_what_the_body_says_or_the_request_is_refused() {
    let web = Web::start().await;
    web.fake.lists_headed.store(true, Ordering::SeqCst);
    let echo = || Ask::modern(call(5, "echo", json!({})));
    for (ask, code) in [
        (echo().header("Mcp-Method", ""), -32020),
        (echo().header("Mcp-Method", "tools/list"), -32020),
        (echo().header("Mcp-Method", "TOOLS/CALL"), -32020),
        (echo().header("Mcp-Name", ""), -32020),
        (echo().header("Mcp-Name", "other"), -32020),
        (echo().header("MCP-Protocol-Version", ""), -32020),
        (echo().header("MCP-Protocol-Version", "2025-11-25"), -32020),
        (echo().header("MCP-Protocol-Version", "v999"), -32020),
        (Ask::modern(call(5, "headed", json!({"region": "eu"}))), -32020),
        (
            Ask::modern(call(5, "headed", json!({"region": "eu"}))).header("Mcp-Param-Region", "us"),
            -32020,
        ),
    ] {
        let reply = web.ask(ask.clone()).await;
        assert_eq!(
            (reply.status, reply.error().0, reply.json()["id"].clone()),
            (400, code, json!(5)),
            "{ask:?}"
        );
    }
    assert_eq!(web.fake.calls(), 0);
    for ask in [
        echo().header("Mcp-Name", "  echo  "),
        echo().header("mcp-name", "=?base64?ZWNobw==?="),
        Ask::modern(call(5, "headed", json!({"region": "eu"}))).header("mcp-param-region", "eu"),
        Ask::modern(call(5, "headed", json!({}))),
    ] {
        assert_eq!(web.ask(ask.clone()).await.status, 200, "{ask:?}");
    }
}

#[tokio::test]
async fn errors_have_the_status_that_the_protocol_gives_them() {
    let web = Web::start().await;
    let bare = |method: &str| {
        let ask = Ask::post(request(method)).header("MCP-Protocol-Version", "2026-07-28");
        ask.header("Mcp-Method", method)
    };
    let mut strange = request("tools/list");
    strange["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "v999", "io.modelcontextprotocol/clientCapabilities": {},
    });
    let strange = Ask::post(strange)
        .header("MCP-Protocol-Version", "v999")
        .header("Mcp-Method", "tools/list");
    for (ask, status, code) in [
        (bare("server/discover"), 400, -32602),
        (bare("tools/list"), 400, -32602),
        (strange, 400, -32022),
        (Ask::modern(request("initialize")), 404, -32601),
        (Ask::modern(request("ping")), 404, -32601),
        (Ask::modern(request("unknown/method")), 404, -32601),
        (Ask::modern(call(5, "no_such_tool", json!({}))), 200, -32602),
        (Ask::modern(call(5, "echo", json!([]))), 400, -32602),
    ] {
        let reply = web.ask(ask.clone()).await;
        assert_eq!((reply.status, reply.error().0), (status, code), "{ask:?}");
        assert_eq!(reply.json()["id"], 5);
    }
    let batch = Ask::post(json!([request("tools/list")])).header("MCP-Protocol-Version", "2026-07-28");
    let reply = web.ask(batch).await;
    assert_eq!((reply.status, reply.error().0), (400, -32600));
    for method in ["GET", "DELETE"] {
        let ask = Ask::new(method, "/mcp")
            .header("Accept", BOTH)
            .header("MCP-Protocol-Version", "2026-07-28");
        let reply = web.ask(ask).await;
        assert_eq!((reply.status, reply.headers["allow"].as_str()), (405, "POST"));
    }
    let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    let told = Ask::post(told).header("MCP-Protocol-Version", "2026-07-28");
    assert_eq!(web.ask(told).await.status, 202);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_cancels_its_call() {
    let web = Web::start().await;
    // Before the response has begun, and after it has become a stream.
    for (number, streams) in [(1, false), (2, true)] {
        let mut client = web.connect().await;
        client.send(&Ask::modern(call(1, "wait", json!({})))).await;
        until(|| web.fake.calls() == number).await;
        if streams {
            let head = client.head().await;
            assert_eq!(head.headers["content-type"], "text/event-stream");
        }
        assert_eq!(web.fake.cancelled(), number - 1);
        drop(client);
        in_time(|| web.fake.cancelled() == number).await;
    }
}

#[tokio::test]
async fn a_modern_stream_has_no_ids() {
    let web = Web::start().await;
    let mut message = call(1, "report", json!({}));
    message["params"]["_meta"] = json!({"progressToken": 7});
    let mut ask = Ask::modern(message.clone());
    message["params"]["_meta"] = json!({
        "progressToken": 7,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    ask = ask.json(message);
    let reply = web.ask(ask).await;
    let events = reply.events();
    assert_eq!(events.len(), 4, "{reply:?}");
    assert!(events.iter().all(|event| event.id.is_none() && event.retry.is_none()));
    assert_eq!(events[3].json()["result"]["resultType"], "complete");
}

#[tokio::test]
async fn one_id_for_everything_works_without_sessions_too() {
    let web = Web::start().await;
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = web.connect().await;
        client.send(&Ask::modern(call(1, "wait", json!({"n": number})))).await;
        clients.push(client);
    }
    until(|| web.fake.calls() == 20).await;
    for _ in 0..20 {
        web.fake.gate.notify_one();
        tokio::task::yield_now().await;
    }
    web.fake.gate.notify_waiters();
    for (number, client) in clients.iter_mut().enumerate() {
        let reply = client.reply().await;
        assert_eq!(
            reply.json()["result"]["structuredContent"]["waited"],
            json!({"n": number})
        );
    }
}
