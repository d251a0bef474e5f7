//! `tools/call`: shapes, progress, cancelling, and calls that break.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::client::{Client, error_of};

fn cancel(id: impl Into<Value>) -> Value {
    let id = id.into();
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "changed my mind"}})
}

#[tokio::test]
async fn an_answer_has_what_its_revision_knows() {
    for (revision, structured) in [
        ("2024-11-05", false),
        ("2025-03-26", false),
        ("2025-06-18", true),
        ("2025-11-25", true),
    ] {
        let mut client = Client::of(revision).await;
        client.call(1, "fail", json!({})).await;
        let content = json!({"error_code": "COMMAND_EXIT_NON_ZERO"});
        let mut result = json!({
            "content": [{"type": "text", "text": content.to_string()}],
            "isError": true,
        });
        if structured {
            result["structuredContent"] = content;
        }
        assert_eq!(
            client.next().await,
            json!({"jsonrpc": "2.0", "id": 1, "result": result}),
            "{revision}"
        );
    }
}

#[tokio::test]
async fn a_call_without_arguments_has_none() {
    let mut client = Client::of("2025-11-25").await;
    let answer = client.ask(1, "tools/call", json!({"name": "echo"})).await;
    assert_eq!(answer["result"]["structuredContent"]["said"], json!({}));
}

#[tokio::test]
async fn malformed_calls_never_reach_the_gateway() {
    let mut client = Client::of("2025-11-25").await;
    for (id, params) in [
        json!({}),
        json!({"name": 5}),
        json!({"name": null}),
        json!({"name": "echo", "arguments": []}),
        json!({"name": "echo", "arguments": "x"}),
        json!({"name": "echo", "arguments": null}),
        json!({"name": "echo", "_meta": 5}),
        json!({"name": "echo", "_meta": {"progressToken": 1.5}}),
        json!({"name": "echo", "_meta": {"progressToken": {}}}),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = client.ask(id, "tools/call", params.clone()).await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{params}");
        assert_eq!(answer["id"], id);
    }
    assert_eq!(client.fake.calls(), 0);
}

#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    let mut client = Client::of("2025-11-25").await;
    client.call("a", "deploy", json!({})).await;
    assert_eq!(
        client.next().await,
        json!({"jsonrpc": "2.0", "id": "a", "error": {
            "code": -32602,
            "message": "there is no tool `deploy`",
            "data": {
                "errorCode": "UNKNOWN_TOOL",
                "details": {"tool": "deploy"},
                "retryable": false,
                "correlation_id": "00000000-0000-7000-8000-000000000001",
            },
        }})
    );
}

#[tokio::test]
async fn a_call_that_breaks_is_answered_and_harms_nobody() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "wait", json!({})).await;
    client.call(2, "panic", json!({})).await;
    let answer = client.next().await;
    assert_eq!(
        (&answer["id"], error_of(&answer)),
        (&json!(2), (-32603, "INTERNAL_ERROR"))
    );
    client.fake.gate.notify_one();
    assert_eq!(client.next().await["id"], 1);
}

#[tokio::test]
async fn progress_grows_and_stops_with_the_answer() {
    for (revision, token, messages) in [
        ("2025-11-25", json!("t"), true),
        ("2025-03-26", json!(0), true),
        ("2024-11-05", json!(-7), false),
    ] {
        let mut client = Client::of(revision).await;
        let params = json!({"name": "report", "_meta": {"progressToken": token}});
        client.request(1, "tools/call", params).await;
        for (number, message) in ["one", "two", "three"].into_iter().enumerate() {
            let mut params = json!({"progressToken": token, "progress": number + 1});
            if messages {
                params["message"] = message.into();
            }
            let expected = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            assert_eq!(client.next().await, expected, "{revision}");
        }
        assert_eq!(client.next().await["id"], 1);
        let late = client.fake.reporter.lock().unwrap().take().unwrap();
        late.report("too late");
        client.expect_silence().await;
    }
}

#[tokio::test]
async fn without_a_token_there_is_no_progress() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "report", json!({})).await;
    assert_eq!(client.next().await["id"], 1);
    assert!(client.fake.reporter.lock().unwrap().is_none());
}

#[tokio::test]
async fn a_cancelled_call_gets_no_answer() {
    let mut client = Client::of("2025-11-25").await;
    let params = json!({"name": "wait", "_meta": {"progressToken": 1}});
    client.request("a", "tools/call", params).await;
    client.call("b", "wait", json!({})).await;
    client.send(&cancel("a")).await;
    let fake = client.fake.clone();
    Client::until(|| fake.cancelled.load(Ordering::SeqCst) == 1).await;
    client.expect_silence().await;
    // Twice is once.
    client.send(&cancel("a")).await;
    fake.gate.notify_one();
    assert_eq!(client.next().await["id"], "b");
    // Too late is nothing.
    client.send(&cancel("b")).await;
    client.expect_silence().await;
    assert_eq!(fake.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn cancelling_tells_ids_of_different_types_apart() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "wait", json!({})).await;
    client.send(&cancel("1")).await;
    client.expect_silence().await;
    client.fake.gate.notify_one();
    assert_eq!(client.next().await["id"], 1);
}

#[tokio::test]
async fn a_cancel_that_races_the_answer_leaves_at_most_one_answer() {
    for turns in 0..20 {
        let mut client = Client::of("2025-11-25").await;
        client.call(1, "wait", json!({})).await;
        let fake = client.fake.clone();
        Client::until(|| fake.calls() == 1).await;
        fake.gate.notify_one();
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        client.send(&cancel(1)).await;
        client.request(2, "ping", json!({})).await;
        let mut answers = client.end().await;
        answers.retain(|answer| answer["id"] == 1);
        assert!(answers.len() <= 1, "{answers:?}");
    }
}

#[tokio::test]
async fn the_end_of_input_cancels_everything_and_says_so() {
    let mut client = Client::of("2025-11-25").await;
    for id in 0..5 {
        client.call(id, "wait", json!({})).await;
    }
    let fake = client.fake.clone();
    let answers = client.end().await;
    assert_eq!(fake.cancelled.load(Ordering::SeqCst), 5);
    assert_eq!(fake.shutdowns.load(Ordering::SeqCst), 1);
    let mut ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_i64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
    for answer in &answers {
        assert_eq!(answer["result"]["structuredContent"]["error_code"], "CANCELLED");
    }
}
