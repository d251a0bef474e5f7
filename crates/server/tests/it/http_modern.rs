//! Streamable HTTP without sessions.

use serde_json::json;

use crate::web::{Ask, Web, call};

#[tokio::test]
async fn a_modern_request_stands_alone() {
    let web = Web::start().await;
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}});
    let reply = web.ask(Ask::modern(discover)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["result"]["supportedVersions"][0], "2026-07-28");
    let reply = web.ask(Ask::modern(call(2, "echo", json!({"a": 1})))).await;
    assert_eq!(reply.json()["result"]["structuredContent"]["said"], json!({"a": 1}));
    assert!(!reply.headers.contains_key("mcp-session-id"));
    assert!(web.fake.states().is_empty());
}
