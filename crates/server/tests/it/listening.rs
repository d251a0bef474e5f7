//! `subscriptions/listen`: acknowledged first, open until someone ends it.

use serde_json::{Value, json};

use crate::client::{Client, error_of, modern_with};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn listen(filter: Value) -> Value {
    modern_with(json!({"notifications": filter}), json!({}))
}

async fn trigger(client: &mut Client, what: &str) {
    let tool = format!("test_trigger_{what}_change");
    let params = modern_with(json!({"name": tool}), json!({}));
    client.request("trigger", "tools/call", params).await;
}

/// Two messages in whatever order.
async fn two(client: &mut Client) -> [Value; 2] {
    let mut two = [client.next().await, client.next().await];
    two.sort_by_key(|message| message["method"].is_null());
    two
}

#[tokio::test]
async fn what_was_asked_for_is_told_and_nothing_else() {
    let mut client = Client::of_fixtures();
    client
        .request("l", "subscriptions/listen", listen(json!({"toolsListChanged": true})))
        .await;
    let acknowledged = client.next().await;
    let params = json!({"_meta": {SUBSCRIPTION: "l"}, "notifications": {"toolsListChanged": true}});
    assert_eq!(
        acknowledged,
        json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
    );
    trigger(&mut client, "prompt").await;
    assert_eq!(client.next().await["id"], "trigger");
    client.expect_silence().await;
    trigger(&mut client, "tool").await;
    let [changed, answer] = two(&mut client).await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"][SUBSCRIPTION], "l");
    assert_eq!(answer["id"], "trigger");
}

#[tokio::test]
async fn a_cancelled_subscription_says_nothing_more() {
    let mut client = Client::of_fixtures();
    client
        .request(7, "subscriptions/listen", listen(json!({"toolsListChanged": true})))
        .await;
    client.next().await;
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}))
        .await;
    client.expect_silence().await;
    trigger(&mut client, "tool").await;
    assert_eq!(client.next().await["id"], "trigger");
    client.expect_silence().await;
}

#[tokio::test]
async fn a_subscription_lasts_as_long_as_the_connection() {
    let mut client = Client::of_fixtures();
    client
        .request(7, "subscriptions/listen", listen(json!({"promptsListChanged": true})))
        .await;
    client.next().await;
    for _ in 0..3 {
        client.expect_silence().await;
    }
    let rest = client.end().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["id"], 7);
    assert_eq!(rest[0]["result"]["resultType"], "complete");
    assert_eq!(rest[0]["result"]["_meta"][SUBSCRIPTION], 7);
}

#[tokio::test]
async fn only_what_may_change_is_promised() {
    let mut client = Client::new();
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["countersign://errors"],
    });
    client.request(1, "subscriptions/listen", listen(filter)).await;
    let accepted = json!({"toolsListChanged": true});
    assert_eq!(client.next().await["params"]["notifications"], accepted);
}

#[tokio::test]
async fn a_filter_must_be_one() {
    let mut client = Client::of_fixtures();
    let many: Vec<_> = (0..65).map(|number| format!("test://{number}")).collect();
    for filter in [
        json!(null),
        json!([]),
        json!({"toolsListChanged": "yes"}),
        json!({"resourceSubscriptions": "test://a"}),
        json!({"resourceSubscriptions": [5]}),
        json!({"resourceSubscriptions": many}),
    ] {
        let answer = client.ask(1, "subscriptions/listen", listen(filter.clone())).await;
        assert_eq!(error_of(&answer), (-32602, "INVALID_PARAMS"), "{filter}");
    }
    let filter = json!({"resourceSubscriptions": ["test://watched-resource", "test://none"]});
    client.request(2, "subscriptions/listen", listen(filter)).await;
    let accepted = json!({"resourceSubscriptions": ["test://watched-resource"]});
    assert_eq!(client.next().await["params"]["notifications"], accepted);
}
