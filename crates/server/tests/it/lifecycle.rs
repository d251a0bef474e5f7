//! The legacy era: handshake, what each revision is shown, and methods that do not exist.

use countersign_gateway::error::ErrorCode;
use serde_json::{Value, json};

use crate::client::{Client, error_of};

#[tokio::test]
async fn the_handshake_agrees_on_a_revision() {
    for (asked, spoken) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let version = env!("CARGO_PKG_VERSION");
        let info = if spoken < "2025-06-18" {
            json!({"name": "countersign", "version": version})
        } else {
            json!({"name": "countersign", "title": "Countersign", "version": version})
        };
        let answer = Client::new().initialize(asked).await;
        let mut capabilities = json!({"tools": {"listChanged": true}, "resources": {}, "prompts": {}, "logging": {}});
        if spoken > "2024-11-05" {
            capabilities["completions"] = json!({});
        }
        let instructions = &answer["result"]["instructions"];
        assert!(instructions.as_str().unwrap().contains("execute_command"));
        let result = json!({
            "protocolVersion": spoken,
            "capabilities": capabilities,
            "serverInfo": info,
            "instructions": instructions,
        });
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": "init", "result": result}),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn a_handshake_without_a_version_is_refused_and_may_be_repeated() {
    let mut client = Client::new();
    for params in [json!({}), json!({"protocolVersion": 5})] {
        let answer = client.ask(1, "initialize", params).await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"));
    }
    assert!(client.initialize("2025-11-25").await["result"].is_object());
}

#[tokio::test]
async fn a_second_handshake_is_refused() {
    let mut client = Client::of("2025-11-25").await;
    let answer = client.initialize("2025-11-25").await;
    assert_eq!(error_of(&answer), (-32600, "INVALID_REQUEST"));
    let answer = client.ask(2, "tools/list", json!({})).await;
    assert_eq!(answer["result"]["tools"][0]["name"], "echo");
}

#[tokio::test]
async fn before_the_handshake_only_ping_is_answered() {
    let mut client = Client::new();
    let pong = client.ask(1, "ping", json!({})).await;
    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    for method in [
        "tools/list",
        "tools/call",
        "resources/read",
        "prompts/list",
        "unheard/of",
    ] {
        let answer = client.ask(1, method, json!({"name": "echo"})).await;
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": 1, "error": {
                "code": -32002,
                "message": format!("`{method}` came before `initialize`; send `initialize` first"),
                "data": {
                    "errorCode": "SESSION_NOT_INITIALIZED",
                    "details": {},
                    "retryable": true,
                    "correlation_id": answer["error"]["data"]["correlation_id"],
                },
            }})
        );
    }
    assert_eq!(client.fake.calls(), 0);
}

#[tokio::test]
async fn requests_are_served_before_the_client_says_it_is_ready() {
    let mut client = Client::new();
    client
        .request(1, "initialize", json!({"protocolVersion": "2025-11-25"}))
        .await;
    client.call(2, "echo", json!({})).await;
    assert_eq!(client.next().await["id"], 1);
    assert_eq!(client.next().await["result"]["isError"], false);
}

#[tokio::test]
async fn tools_are_listed_as_each_revision_knows_them() {
    let name = json!({"name": "echo"});
    let old = json!({"description": "answers with its arguments", "inputSchema": {"type": "object"}});
    // What the protocol takes for granted, or ignores for a tool that only looks, is not said.
    let hints = json!({"annotations": {"readOnlyHint": true, "openWorldHint": false}});
    let new = json!({
        "title": "Echo",
        "outputSchema": {"type": "object", "properties": {"said": {}}},
        "_meta": {"countersign/version": "1.2.3"},
    });
    for (revision, parts) in [
        ("2024-11-05", vec![&name, &old]),
        ("2025-03-26", vec![&name, &old, &hints]),
        ("2025-06-18", vec![&name, &old, &hints, &new]),
        ("2025-11-25", vec![&name, &old, &hints, &new]),
    ] {
        let tool: Value = parts
            .into_iter()
            .flat_map(|part| part.as_object().unwrap().clone())
            .collect();
        let answer = Client::of(revision).await.ask(1, "tools/list", json!({})).await;
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}}),
            "{revision}"
        );
    }
}

#[tokio::test]
async fn lists_have_one_page() {
    let mut client = Client::of("2025-11-25").await;
    for (number, method) in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ]
    .iter()
    .enumerate()
    {
        let answer = client.ask(number * 2, method, json!({"cursor": "abc"})).await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{method}");
        let answer = client.ask(number * 2 + 1, method, json!({"cursor": null})).await;
        assert!(answer["result"].is_object(), "{method}");
    }
}

#[tokio::test]
async fn what_is_not_declared_does_not_exist() {
    let mut client = Client::of("2025-11-25").await;
    for (id, method) in [
        "resources/subscribe",
        "resources/unsubscribe",
        "server/discovered",
        "subscriptions/listen",
        "tasks/get",
        "tasks/list",
        "sampling/createMessage",
        "notifications/initialized",
        "Tools/list",
        "unheard/of",
    ]
    .iter()
    .enumerate()
    {
        let answer = client.ask(id, method, json!({})).await;
        assert_eq!(error_of(&answer), (-32601, "METHOD_NOT_FOUND"), "{method}");
    }
}

#[tokio::test]
async fn answers_and_unknown_notifications_are_ignored() {
    let mut client = Client::of("2025-11-25").await;
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}}),
        json!({"jsonrpc": "2.0", "method": "notifications/unheard_of"}),
        json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": null}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "never seen"}}),
    ] {
        client.send(&message).await;
    }
    client.expect_silence().await;
    assert_eq!(client.fake.calls(), 0);
}

#[tokio::test]
async fn the_error_table_is_a_resource() {
    let mut client = Client::of("2025-11-25").await;
    let listed = client.ask(1, "resources/list", json!({})).await;
    assert_eq!(
        listed["result"],
        json!({"resources": [
            {
                "uri": "countersign://errors",
                "name": "errors",
                "title": "Error table",
                "description": "every error code, with its JSON-RPC code, meaning and whether to try again",
                "mimeType": "application/json",
            },
            {
                "uri": "countersign://policy",
                "name": "policy",
                "title": "Policy",
                "description": "the policy in force for you: what your commands may do, and when a person is asked",
                "mimeType": "application/json",
            },
        ]})
    );
    let templates = client.ask(2, "resources/templates/list", json!({})).await;
    assert_eq!(
        templates["result"],
        json!({"resourceTemplates": [{
            "uriTemplate": "countersign://errors/{code}",
            "name": "error",
            "title": "Error code",
            "description": "one error code, such as `COMMAND_NOT_ALLOWED`",
            "mimeType": "application/json",
        }]})
    );

    let read = client
        .ask(3, "resources/read", json!({"uri": "countersign://errors"}))
        .await;
    let contents = &read["result"]["contents"][0];
    assert_eq!(contents["uri"], "countersign://errors");
    assert_eq!(contents["mimeType"], "application/json");
    let table: Vec<Value> = serde_json::from_str(contents["text"].as_str().unwrap()).unwrap();
    assert_eq!(table.len(), ErrorCode::ALL.len());
    for (row, code) in table.iter().zip(ErrorCode::ALL) {
        let schema = &row["dataSchema"];
        assert_eq!(
            row,
            &json!({
                "internalCode": code.name(),
                "jsonRpcCode": code.json_rpc(),
                "messageTemplate": code.template(),
                "retryable": code.retryable(),
                "dataSchema": schema,
            })
        );
        assert_eq!(schema["type"], "object");
    }
}

#[tokio::test]
async fn a_resource_that_is_not_there_is_named() {
    let mut client = Client::of("2025-11-25").await;
    let answer = client.ask(1, "resources/read", json!({"uri": "test://none"})).await;
    assert_eq!(error_of(&answer), (-32002, "RESOURCE_NOT_FOUND"));
    assert_eq!(answer["error"]["data"]["uri"], "test://none");
    for (id, params) in [(2, json!({})), (3, json!({"uri": 5}))] {
        let answer = client.ask(id, "resources/read", params).await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"));
    }
}

#[tokio::test]
async fn names_of_any_length_are_answered_briefly() {
    let long = "x".repeat(50_000);
    let mut early = Client::new();
    early
        .raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{long}\"}}\n"))
        .await;
    let answer = early.next().await.to_string();
    assert!(answer.len() < 1_000, "{} bytes", answer.len());
    let mut client = Client::of("2025-11-25").await;
    for (method, params) in [
        (long.as_str(), json!({})),
        ("prompts/get", json!({"name": long})),
        ("resources/read", json!({"uri": long})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": long}, "argument": {"name": long, "value": ""}}),
        ),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": method.len(), "method": method, "params": params});
        client.raw(format!("{message}\n")).await;
        let answer = client.next().await;
        assert!(answer["error"]["message"].as_str().unwrap().contains('…'));
        let bytes = answer.to_string().len();
        assert!(bytes < 2_000, "{bytes} bytes for {}", &method[..method.len().min(20)]);
    }
}
