//! The modern era: no handshake, each request says how it wants to be understood.

use serde_json::{Value, json};

use crate::client::{Client, error_of};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({VERSION: "2026-07-28", CAPABILITIES: {}});
    params
}

fn server_info() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({"io.modelcontextprotocol/serverInfo": {"name": "countersign", "title": "Countersign", "version": version}})
}

#[tokio::test]
async fn a_server_can_be_discovered() {
    let answer = Client::new().ask(1, "server/discover", modern(json!({}))).await;
    let result = json!({
        "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
        "resultType": "complete",
        "ttlMs": 60000,
        "cacheScope": "public",
        "_meta": server_info(),
        "capabilities": {
            "tools": {"listChanged": true}, "resources": {}, "prompts": {}, "logging": {}, "completions": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
        "instructions": answer["result"]["instructions"],
    });
    assert!(result["instructions"].as_str().unwrap().contains("execute_command"));
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 1, "result": result}));
}

#[tokio::test]
async fn lists_say_how_long_they_hold_and_for_whom() {
    let mut client = Client::new();
    for (method, name, scope) in [
        ("tools/list", "tools", "private"),
        ("resources/list", "resources", "public"),
        ("resources/templates/list", "resourceTemplates", "public"),
        ("prompts/list", "prompts", "public"),
    ] {
        let answer = client.ask(1, method, modern(json!({}))).await;
        let result = &answer["result"];
        assert_eq!(
            result,
            &json!({
                name: result[name],
                "resultType": "complete",
                "ttlMs": 60000,
                "cacheScope": scope,
                "_meta": server_info(),
            }),
            "{method}"
        );
        assert!(result[name].is_array());
    }
    let tools = client.ask(1, "tools/list", modern(json!({}))).await;
    assert_eq!(tools["result"]["tools"][0]["outputSchema"]["type"], "object");
    let read = client
        .ask(1, "resources/read", modern(json!({"uri": "countersign://errors"})))
        .await;
    assert_eq!(read["result"]["resultType"], "complete");
    assert_eq!(read["result"]["contents"][0]["mimeType"], "application/json");
}

#[tokio::test]
async fn a_call_needs_no_handshake_and_leaves_no_memory() {
    let mut client = Client::new();
    for number in 1..=2 {
        let params = modern(json!({"name": "echo", "arguments": {"a": 1}}));
        let answer = client.ask(1, "tools/call", params).await;
        let said = json!({"said": {"a": 1}, "call": number});
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": 1, "result": {
                "resultType": "complete",
                "content": [{"type": "text", "text": said.to_string()}],
                "structuredContent": said,
                "isError": false,
                "_meta": server_info(),
            }})
        );
    }
}

#[tokio::test]
async fn two_calls_in_flight_under_one_id_are_both_answered() {
    let mut client = Client::new();
    for argument in [1, 2] {
        let params = modern(json!({"name": "wait", "arguments": {"a": argument}}));
        client.request(1, "tools/call", params).await;
    }
    let fake = client.fake.clone();
    Client::until(|| fake.calls() == 2).await;
    fake.gate.notify_waiters();
    let mut waited = Vec::new();
    for _ in 0..2 {
        waited.push(client.next().await["result"]["structuredContent"]["waited"]["a"].clone());
    }
    assert_eq!(waited, [json!(1), json!(2)]);
}

#[tokio::test]
async fn a_version_we_do_not_speak_is_refused_with_those_we_do() {
    for version in ["2099-01-01", "2025-11-25", ""] {
        let params = json!({"_meta": {VERSION: version, CAPABILITIES: {}}});
        let answer = Client::new().ask(1, "tools/list", params).await;
        assert_eq!(error_of(&answer), (-32022, "UNSUPPORTED_PROTOCOL_VERSION"));
        let data = &answer["error"]["data"];
        assert_eq!(data["requested"], version);
        assert_eq!(data["supported"][0], "2026-07-28");
    }
}

#[tokio::test]
async fn an_incomplete_envelope_is_refused() {
    let mut client = Client::new();
    for params in [
        json!({"_meta": {VERSION: "2026-07-28"}}),
        json!({"_meta": {VERSION: "2026-07-28", CAPABILITIES: []}}),
        json!({"_meta": {VERSION: 5, CAPABILITIES: {}}}),
    ] {
        for method in ["server/discover", "tools/list", "tools/call"] {
            let answer = client.ask(1, method, params.clone()).await;
            assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{method} {params}");
        }
    }
    let answer = client.ask(1, "server/discover", json!({})).await;
    assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"));
}

#[tokio::test]
async fn methods_the_era_removed_do_not_exist() {
    let mut client = Client::of("2025-11-25").await;
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "roots/list",
        "tasks/list",
        "tasks/result",
        "unheard/of",
    ] {
        let answer = client
            .ask(1, method, modern(json!({"protocolVersion": "2025-11-25"})))
            .await;
        assert_eq!(error_of(&answer), (-32601, "METHOD_NOT_FOUND"), "{method}");
    }
}

#[tokio::test]
async fn a_resource_that_is_not_there_has_the_eras_own_code() {
    let mut client = Client::new();
    let answer = client
        .ask(1, "resources/read", modern(json!({"uri": "test://none"})))
        .await;
    assert_eq!(error_of(&answer), (-32602, "RESOURCE_NOT_FOUND"));
    assert_eq!(answer["error"]["data"]["uri"], "test://none");
}

#[tokio::test]
async fn both_eras_live_on_one_connection() {
    let mut client = Client::of("2024-11-05").await;
    let modern_answer = client.ask(1, "tools/list", modern(json!({}))).await;
    assert_eq!(modern_answer["result"]["resultType"], "complete");
    let legacy_answer = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(legacy_answer["result"]["tools"][0]["title"], Value::Null);
}
