//! Request ids used twice.

use serde_json::{Value, json};

use crate::client::{Client, error_of};

fn duplicate(mut answer: Value) -> Value {
    answer["result"]["_meta"] = json!({"countersign/duplicate": true});
    answer
}

#[tokio::test]
async fn a_request_sent_twice_acts_once() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "echo", json!({"a": 1, "b": 2})).await;
    let first = client.next().await;
    // Neither the order of names nor `_meta` makes it another request.
    let again = json!({"_meta": {"progressToken": 9}, "arguments": {"b": 2, "a": 1}, "name": "echo"});
    for _ in 0..3 {
        let answer = client.ask(1, "tools/call", again.clone()).await;
        assert_eq!(answer, duplicate(first.clone()));
    }
    assert_eq!(client.fake.calls(), 1);
}

#[tokio::test]
async fn a_request_sent_twice_while_it_runs_acts_once() {
    let mut client = Client::of("2025-11-25").await;
    for _ in 0..3 {
        client.call(1, "wait", json!({})).await;
    }
    client.expect_silence().await;
    assert_eq!(client.fake.calls(), 1);
    client.fake.gate.notify_one();
    let first = client.next().await;
    assert_eq!(first["result"]["_meta"], Value::Null);
    for _ in 0..2 {
        assert_eq!(client.next().await, duplicate(first.clone()));
    }
    client.expect_silence().await;
}

#[tokio::test]
async fn a_refused_call_is_refused_again_without_a_second_try() {
    let mut client = Client::of("2025-11-25").await;
    for _ in 0..2 {
        client.call(1, "unknown", json!({})).await;
        assert_eq!(error_of(&client.next().await), (-32602, "UNKNOWN_TOOL"));
    }
    assert_eq!(client.fake.calls(), 1);
}

#[tokio::test]
async fn an_id_used_for_another_request_is_refused_and_the_first_goes_on() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "wait", json!({"a": 1})).await;
    client.call(1, "wait", json!({"a": 2})).await;
    let answer = client.next().await;
    assert_eq!(
        (&answer["id"], error_of(&answer)),
        (&json!(1), (-32600, "DUPLICATE_REQUEST"))
    );
    let answer = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(error_of(&answer), (-32600, "DUPLICATE_REQUEST"));
    client.fake.gate.notify_one();
    let answer = client.next().await;
    assert_eq!(answer["result"]["structuredContent"]["waited"], json!({"a": 1}));
    assert_eq!(client.fake.calls(), 1);
}

#[tokio::test]
async fn text_and_number_are_different_ids() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "echo", json!({"a": 1})).await;
    client.call("1", "echo", json!({"a": 2})).await;
    assert_eq!(client.next().await["result"]["structuredContent"]["said"]["a"], 1);
    assert_eq!(client.next().await["result"]["structuredContent"]["said"]["a"], 2);
}

#[tokio::test]
async fn other_methods_answer_again_under_their_id() {
    let mut client = Client::of("2025-11-25").await;
    let first = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(client.ask(1, "tools/list", json!({})).await, first);
    client.call(1, "echo", json!({})).await;
    assert_eq!(error_of(&client.next().await), (-32600, "DUPLICATE_REQUEST"));
    // The handshake's id is taken, too.
    let answer = client.ask("init", "tools/list", json!({})).await;
    assert_eq!(error_of(&answer), (-32600, "DUPLICATE_REQUEST"));
}

#[tokio::test]
async fn a_client_that_reuses_ids_gets_no_replays() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "echo", json!({"a": 1})).await;
    assert_eq!(client.next().await["result"]["structuredContent"]["call"], 1);
    client.call(1, "echo", json!({"a": 2})).await;
    assert_eq!(error_of(&client.next().await), (-32600, "DUPLICATE_REQUEST"));
    // What looks like a duplicate may be a new wish: it acts, and is not marked.
    client.call(1, "echo", json!({"a": 1})).await;
    let answer = client.next().await;
    assert_eq!(answer["result"]["structuredContent"]["call"], 2);
    assert_eq!(answer["result"]["_meta"], Value::Null);
    // While one runs, the same request still joins it.
    client.call(2, "wait", json!({})).await;
    client.call(2, "wait", json!({})).await;
    client.expect_silence().await;
    client.fake.gate.notify_one();
    let first = client.next().await;
    assert_eq!(client.next().await, duplicate(first));
    assert_eq!(client.fake.calls(), 3);
}

#[tokio::test]
async fn a_duplicate_of_a_cancelled_call_hears_how_it_ended() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "wait", json!({})).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    client.send(&cancel).await;
    client.call(1, "wait", json!({})).await;
    let answer = client.next().await;
    assert_eq!(answer["result"]["structuredContent"]["error_code"], "CANCELLED");
    assert_eq!(answer["result"]["_meta"]["countersign/duplicate"], true);
    assert_eq!(client.fake.calls(), 1);
}

#[tokio::test]
async fn the_last_ids_are_remembered() {
    let mut client = Client::of("2025-11-25").await;
    for id in 0..1_025 {
        client.call(id, "echo", json!({})).await;
        client.next().await;
    }
    client.call(1, "echo", json!({})).await;
    assert_eq!(client.next().await["result"]["_meta"]["countersign/duplicate"], true);
    assert_eq!(client.fake.calls(), 1_025);
    client.call(0, "echo", json!({})).await;
    assert_eq!(client.next().await["result"]["_meta"], Value::Null);
    assert_eq!(client.fake.calls(), 1_026);
}

#[tokio::test]
async fn a_duplicate_whose_result_is_gone_does_not_act_again() {
    let mut client = Client::of("2025-11-25").await;
    for id in 0..6 {
        client.call(id, "big", json!({"bytes": 1_000_000})).await;
        client.next().await;
    }
    client.call(0, "big", json!({"bytes": 1_000_000})).await;
    assert_eq!(error_of(&client.next().await), (-32600, "DUPLICATE_REQUEST"));
    client.call(5, "big", json!({"bytes": 1_000_000})).await;
    assert_eq!(client.next().await["result"]["_meta"]["countersign/duplicate"], true);
    assert_eq!(client.fake.calls(), 6);
}
