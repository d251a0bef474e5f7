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

/// The stream beside the requests of a session.
async fn beside(web: &Web, session: &str) -> Client<TcpStream> {
    let mut client = web.connect().await;
    let listen = Ask::new("GET", "/mcp").header("Accept", "text/event-stream");
    client.send(&listen.session(session)).await;
    assert_eq!(client.head().await.status, 200);
    client
}

/// A call that asks, of a client that takes plain JSON for an answer.
fn plain(session: &str) -> Ask {
    let message = call(1, "test_elicitation", json!({"message": "who?"}));
    Ask::post(message).session(session).header("Accept", "application/json")
}

#[tokio::test]
async fn a_call_that_takes_plain_json_asks_on_the_stream_beside_it() {
    let web = start().await;
    let session = session(&web).await;
    let mut stream = beside(&web, &session).await;
    let mut client = web.connect().await;
    client.send(&plain(&session)).await;
    let question = next(&mut stream).await.expect("a question");
    assert_eq!(question["method"], "elicitation/create");
    web.ask(Ask::post(decline(&question)).session(&session)).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.is_stream()), (200, false));
    let text = reply.json()["result"]["content"][0]["text"].to_string();
    assert!(text.contains("decline"), "{text}");
    // A question of a client that reads the stream of its call comes there, as before.
    let (_, question) = asked(&web, &session).await;
    web.ask(Ask::post(decline(&question)).session(&session)).await;
    web.stop().await;
}

#[tokio::test]
async fn a_call_that_takes_plain_json_and_has_no_stream_beside_it_hears_that_nobody_can_be_asked() {
    let web = start().await;
    let session = session(&web).await;
    // Streams of other sessions are not its own.
    let other = self::session(&web).await;
    let _of_another = beside(&web, &other).await;
    let reply = web.ask(plain(&session)).await;
    assert_eq!(reply.error(), (-32021, "MISSING_CLIENT_CAPABILITY".to_owned()));
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("text/event-stream"), "{message}");
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
