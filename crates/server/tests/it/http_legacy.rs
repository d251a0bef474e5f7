//! Streamable HTTP with sessions.

use serde_json::json;

use crate::web::{Ask, Web, call, handshake};

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
}
