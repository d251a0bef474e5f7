//! What a running call says to its client and asks of it, in the legacy era.

use serde_json::{Value, json};

use crate::client::{Client, error_of, modern_with};

fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// The question that a call of this tool leads to.
async fn asked(client: &mut Client, id: u64, tool: &str) -> Value {
    client.call(id, tool, json!({"message": "who?", "prompt": "say"})).await;
    let question = client.next().await;
    assert!(question["id"].is_string(), "{question}");
    question
}

#[tokio::test]
async fn a_question_is_answered_on_the_way_to_the_result() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut client = Client::able(revision, able()).await;
        let question = asked(&mut client, 1, "test_elicitation").await;
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["message"], "who?");
        let content = json!({"username": "ana", "email": "a@b"});
        let result = json!({"action": "accept", "content": content});
        client
            .send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}))
            .await;
        let answer = client.next().await;
        assert_eq!(answer["id"], 1);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("ana") && text.starts_with("User response:"), "{text}");
    }
}

#[tokio::test]
async fn only_what_the_client_declared_is_asked() {
    for (revision, capabilities, tool, required) in [
        ("2025-11-25", json!({}), "test_elicitation", "elicitation"),
        (
            "2025-11-25",
            json!({"elicitation": {"url": {}}}),
            "test_elicitation",
            "elicitation",
        ),
        ("2025-11-25", json!({"elicitation": {}}), "test_sampling", "sampling"),
        ("2025-03-26", able(), "test_elicitation", "elicitation"),
    ] {
        let mut client = Client::able(revision, capabilities).await;
        client.call(1, tool, json!({"message": "who?", "prompt": "say"})).await;
        let answer = client.next().await;
        assert_eq!(
            error_of(&answer),
            (-32021, "MISSING_CLIENT_CAPABILITY"),
            "{revision} {tool}"
        );
        assert!(answer["error"]["data"]["requiredCapabilities"][required].is_object());
        client.expect_silence().await;
    }
}

#[tokio::test]
async fn a_client_that_refuses_or_answers_nonsense_ends_the_call() {
    let mut client = Client::able("2025-11-25", able()).await;
    for (id, reply, code) in [
        (1, json!({"error": {"code": -1, "message": "no"}}), "UPSTREAM_ERROR"),
        (2, json!({"error": 5}), "UPSTREAM_ERROR"),
        (3, json!({"result": 12345}), "INVALID_PARAMS"),
        (
            4,
            json!({"result": {"action": "accept", "content": {}}}),
            "INVALID_PARAMS",
        ),
    ] {
        let question = asked(&mut client, id, "test_elicitation").await;
        let mut reply = reply;
        reply["jsonrpc"] = "2.0".into();
        reply["id"] = question["id"].clone();
        client.send(&reply).await;
        let answer = client.next().await;
        assert_eq!((answer["id"].as_u64(), error_of(&answer).1), (Some(id), code));
    }
    let question = asked(&mut client, 5, "test_elicitation").await;
    let declined = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    client.send(&declined).await;
    assert!(client.next().await["result"].is_object());
}

#[tokio::test]
async fn answers_nobody_asked_for_are_ignored() {
    let mut client = Client::able("2025-11-25", able()).await;
    let question = asked(&mut client, 1, "test_elicitation").await;
    let id = question["id"].as_str().unwrap();
    let accept = json!({"action": "accept", "content": {"username": "mallory", "email": "m"}});
    for guess in [
        json!("made up"),
        json!(1),
        json!(null),
        json!(format!("{id} ")),
        json!(id.to_uppercase()),
    ] {
        if guess != json!(id) {
            client
                .send(&json!({"jsonrpc": "2.0", "id": guess, "result": accept}))
                .await;
        }
    }
    client.expect_silence().await;
    let content = json!({"username": "ana", "email": "a"});
    for content in [content, json!({"username": "second", "email": "s"})] {
        let result = json!({"action": "accept", "content": content});
        client
            .send(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
            .await;
    }
    let answer = client.next().await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("ana") && !text.contains("second"), "{text}");
    client.expect_silence().await;
}

#[tokio::test]
async fn a_cancelled_call_leaves_no_question_behind() {
    let mut client = Client::able("2025-11-25", able()).await;
    let question = asked(&mut client, 1, "test_elicitation").await;
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
        .await;
    client.expect_silence().await;
    let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    client.send(&late).await;
    client.expect_silence().await;
    assert_eq!(client.end().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_client_that_goes_away_is_not_waited_for() {
    let mut client = Client::able("2025-11-25", able()).await;
    asked(&mut client, 1, "test_elicitation").await;
    asked(&mut client, 2, "test_sampling").await;
    let rest = client.end().await;
    assert_eq!(rest.len(), 2);
    for answer in rest {
        assert_eq!(error_of(&answer).1, "CANCELLED");
    }
}

#[tokio::test]
async fn questions_are_bounded() {
    let mut client = Client::able("2025-11-25", able()).await;
    let mut questions = Vec::new();
    for id in 0..16 {
        questions.push(asked(&mut client, id, "test_elicitation").await);
    }
    client
        .call(99, "test_elicitation", json!({"message": "one more"}))
        .await;
    assert_eq!(error_of(&client.next().await).1, "RATE_LIMITED");
    for question in questions.iter().rev() {
        let declined = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
        client.send(&declined).await;
        assert!(client.next().await["result"].is_object());
    }
    client.expect_silence().await;
}

/// Log messages until the answer to this id.
async fn logged(client: &mut Client, id: &str) -> Vec<Value> {
    let mut logged = Vec::new();
    loop {
        let message = client.next().await;
        if message["id"] == id {
            assert!(message["result"].is_object(), "{message}");
            return logged;
        }
        assert_eq!(message["method"], "notifications/message");
        logged.push(message["params"].clone());
    }
}

#[tokio::test]
async fn a_session_hears_what_is_as_severe_as_it_asked_for() {
    let mut client = Client::of("2025-11-25").await;
    for (level, heard) in [
        (None, 0),
        (Some("debug"), 1),
        (Some("warning"), 0),
        (Some("info"), 1),
        (Some("emergency"), 0),
    ] {
        if let Some(level) = level {
            let id = format!("set-{level}");
            let answer = client
                .ask(id.as_str(), "logging/setLevel", json!({"level": level}))
                .await;
            assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "result": {}}));
        }
        let id = format!("call-{level:?}");
        client.call(id.as_str(), "echo", json!({})).await;
        let logged = logged(&mut client, &id).await;
        assert_eq!(logged.len(), heard, "{level:?}");
        for message in logged {
            let wanted = json!({"level": "info", "logger": "countersign", "data": {"tool": "echo"}});
            assert_eq!(message, wanted);
        }
    }
    let id = "set";
    client.ask(id, "logging/setLevel", json!({"level": "warning"})).await;
    client.call("failing", "fail", json!({})).await;
    let logged = logged(&mut client, "failing").await;
    let data = json!({"tool": "fail", "error_code": "COMMAND_EXIT_NON_ZERO"});
    assert_eq!(
        logged,
        [json!({"level": "warning", "logger": "countersign", "data": data})]
    );
    for (id, params) in [
        ("a", json!({})),
        ("b", json!({"level": "loud"})),
        ("c", json!({"level": 5})),
    ] {
        let answer = client.ask(id, "logging/setLevel", params).await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"));
    }
}

#[tokio::test]
async fn a_modern_request_hears_logs_only_if_it_says_so() {
    let mut client = Client::new();
    let level = "io.modelcontextprotocol/logLevel";
    for (meta, heard) in [
        (json!({}), 0),
        (json!({level: "debug"}), 1),
        (json!({level: "error"}), 0),
    ] {
        let params = json!({"name": "echo", "_meta": meta});
        client.request("x", "tools/call", modern_with(params, json!({}))).await;
        assert_eq!(logged(&mut client, "x").await.len(), heard, "{meta}");
    }
    let params = json!({"name": "echo", "_meta": {level: "loud"}});
    let answer = client.ask("y", "tools/call", modern_with(params, json!({}))).await;
    assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"));
}

#[tokio::test]
async fn log_messages_come_before_the_answer_and_never_after() {
    let mut client = Client::able("2025-11-25", json!({})).await;
    client.ask("level", "logging/setLevel", json!({"level": "debug"})).await;
    client.call("logging", "test_tool_with_logging", json!({})).await;
    let logged = logged(&mut client, "logging").await;
    let said: Vec<_> = logged.iter().map(|message| message["data"].as_str().unwrap()).collect();
    assert_eq!(
        said,
        [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed"
        ]
    );
    client.expect_silence().await;
}

#[tokio::test]
async fn progress_counts_up_to_its_total() {
    let mut client = Client::able("2025-11-25", json!({})).await;
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": "p"}});
    client.request(1, "tools/call", params).await;
    for progress in [0, 50, 100] {
        let report = client.next().await;
        assert_eq!(
            report["params"],
            json!({"progressToken": "p", "progress": progress, "total": 100})
        );
    }
    assert_eq!(client.next().await["id"], 1);
}

#[tokio::test]
async fn subscriptions_to_resources_belong_to_the_session() {
    let mut client = Client::able("2025-11-25", json!({})).await;
    for (id, method) in [
        (1, "resources/subscribe"),
        (2, "resources/unsubscribe"),
        (3, "resources/unsubscribe"),
    ] {
        let answer = client.ask(id, method, json!({"uri": "test://watched-resource"})).await;
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    }
    let answer = client
        .ask(4, "resources/subscribe", json!({"uri": "test://none"}))
        .await;
    assert_eq!(error_of(&answer), (-32002, "RESOURCE_NOT_FOUND"));
    let answer = client.ask(5, "resources/subscribe", json!({})).await;
    assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"));
}
