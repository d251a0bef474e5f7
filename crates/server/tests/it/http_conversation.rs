//! Conversations over HTTP: questions on the stream of the request they belong to, answers by any other.

use std::sync::Arc;

use countersign_server::http::{ConformanceFixtures, HttpOptions};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::fake::Fake;
use crate::web::{self, Ask, Client, Event, Web, call, handshake};

async fn start() -> Web {
    let fake = Arc::new(Fake::default());
    let options = HttpOptions {
        fixtures: ConformanceFixtures::Served,
        ..web::options(&fake)
    };
    Web::with(fake, options).await
}

/// A session whose client can show forms.
async fn session(web: &Web) -> String {
    let mut hello = handshake("2025-11-25");
    hello["params"]["capabilities"] = json!({"elicitation": {}});
    let reply = web.ask(Ask::post(hello)).await;
    reply.headers["mcp-session-id"].clone()
}

/// Calls a tool that asks, and reads the question.
async fn asked(web: &Web, session: &str) -> (Client<TcpStream>, Value) {
    let mut client = web.connect().await;
    let message = call(1, "test_elicitation", json!({"message": "who?"}));
    client.send(&Ask::post(message).session(session)).await;
    assert_eq!(client.head().await.headers["content-type"], "text/event-stream");
    let question = next(&mut client).await.expect("a question");
    assert_eq!(question["method"], "elicitation/create");
    (client, question)
}

/// The next message of a stream.
async fn next(client: &mut Client<TcpStream>) -> Option<Value> {
    loop {
        match client.event().await? {
            Event { data, .. } if data.is_empty() => {}
            event => return Some(event.json()),
        }
    }
}

fn decline(question: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
}

#[tokio::test]
async fn a_question_comes_on_the_stream_of_its_call_and_is_answered_by_another_post() {
    let web = start().await;
    let session = session(&web).await;
    let (mut client, question) = asked(&web, &session).await;
    let reply = web.ask(Ask::post(decline(&question)).session(&session)).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, ""));
    let answer = next(&mut client).await.expect("the answer");
    assert_eq!(answer["id"], 1);
    assert!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("decline")
    );
    assert_eq!(next(&mut client).await, None);
    web.stop().await;
}

#[tokio::test]
async fn an_answer_in_another_session_changes_nothing() {
    let web = start().await;
    let (mine, other) = (session(&web).await, session(&web).await);
    let (mut client, question) = asked(&web, &mine).await;
    for session in [&other, &other] {
        let reply = web.ask(Ask::post(decline(&question)).session(session)).await;
        assert_eq!(reply.status, 202);
    }
    let accept = json!({"action": "accept", "content": {"username": "ana", "email": "a"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": accept});
    web.ask(Ask::post(answer).session(&mine)).await;
    let text = next(&mut client).await.unwrap()["result"]["content"][0]["text"].clone();
    assert!(text.as_str().unwrap().contains("ana"), "{text}");
}

#[tokio::test]
async fn deleting_the_session_ends_a_call_that_waits_for_its_client() {
    let web = start().await;
    let session = session(&web).await;
    let (mut client, _) = asked(&web, &session).await;
    let reply = web.ask(Ask::new("DELETE", "/mcp").session(&session)).await;
    assert_eq!(reply.status, 204);
    let answer = next(&mut client).await.expect("how it ended");
    assert_eq!(answer["error"]["data"]["errorCode"], "CANCELLED");
    web.stop().await;
}

#[tokio::test]
async fn a_subscription_is_a_stream_until_its_client_goes() {
    let web = start().await;
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": {
        "notifications": {"toolsListChanged": true},
    }});
    let mut client = web.connect().await;
    client.send(&Ask::modern(listen)).await;
    assert_eq!(client.head().await.headers["content-type"], "text/event-stream");
    let first = next(&mut client).await.expect("an acknowledgement");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    web.ask(Ask::modern(call(2, "test_trigger_tool_change", json!({}))))
        .await;
    let second = next(&mut client).await.expect("a change");
    assert_eq!(second["method"], "notifications/tools/list_changed");
    assert_eq!(second["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l");
    drop(client);
    let reply = web
        .ask(Ask::modern(call(3, "test_trigger_tool_change", json!({}))))
        .await;
    assert_eq!(reply.status, 200);
    web.stop().await;
}

#[tokio::test]
async fn refusals_of_the_modern_era_have_their_status() {
    let web = start().await;
    for (message, status, code) in [
        (call(1, "test_missing_capability", json!({})), 400, -32021),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/list"}), 404, -32601),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "info"}}),
            404,
            -32601,
        ),
    ] {
        let reply = web.ask(Ask::modern(message)).await;
        assert_eq!((reply.status, reply.error().0), (status, code));
    }
}
