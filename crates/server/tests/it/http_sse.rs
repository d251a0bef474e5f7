//! HTTP+SSE: one stream for everything.

use std::sync::Arc;

use countersign_gateway::session::Role;
use countersign_gateway::session::lifetime::SessionState;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::fake::Fake;
use crate::web::{Ask, BOTH, Client, Web, call, handshake, options, until};

/// Opens a stream; gives the address for messages.
async fn open(web: &Web, token: Option<&str>) -> (Client<TcpStream>, String) {
    let mut client = web.connect().await;
    let ask = Ask::new("GET", "/sse").header("Accept", "text/event-stream");
    let ask = match token {
        Some(token) => ask.token(token),
        None => ask,
    };
    client.send(&ask).await;
    let head = client.head().await;
    assert_eq!(
        (head.status, head.headers["content-type"].as_str()),
        (200, "text/event-stream")
    );
    assert_eq!(head.headers["x-accel-buffering"], "no");
    let endpoint = client.event().await.expect("the address for messages");
    assert_eq!(endpoint.kind.as_deref(), Some("endpoint"));
    (client, endpoint.data)
}

fn message(address: &str, message: Value) -> Ask {
    Ask::new("POST", address).json(message)
}

async fn initialized(web: &Web) -> (Client<TcpStream>, String) {
    let (mut client, address) = open(web, None).await;
    let reply = web.ask(message(&address, handshake("2024-11-05"))).await;
    assert_eq!(reply.status, 202);
    let event = client.event().await.unwrap();
    assert_eq!(event.kind.as_deref(), Some("message"));
    assert_eq!(event.json()["result"]["protocolVersion"], "2024-11-05");
    (client, address)
}

#[tokio::test]
async fn answers_come_on_the_stream() {
    let web = Web::start().await;
    let (mut client, address) = open(&web, None).await;
    assert!(address.starts_with("/messages?sessionId="));
    assert_eq!(web.fake.states(), [SessionState::Created]);
    web.ask(message(&address, handshake("2024-11-05"))).await;
    assert_eq!(client.event().await.unwrap().json()["id"], 0);
    assert_eq!(web.fake.states(), [SessionState::Initialized]);
    for number in 1..20 {
        let reply = web
            .ask(message(&address, call(number, "echo", json!({"n": number}))))
            .await;
        assert_eq!(reply.status, 202);
        let answer = client.event().await.unwrap();
        assert_eq!(answer.id, None);
        assert_eq!(answer.json()["id"], number);
    }
    drop(client);
    until(|| web.fake.states() == [SessionState::Closed]).await;
    assert_eq!(web.ask(message(&address, handshake("2024-11-05"))).await.status, 404);
}

#[tokio::test]
async fn a_stream_that_was_never_initialized_is_closed_too() {
    let web = Web::start().await;
    let (client, _) = open(&web, None).await;
    drop(client);
    until(|| web.fake.states() == [SessionState::Closed]).await;
    assert_eq!(web.gauges.sessions_open(), 0);
}

#[tokio::test]
async fn commands_go_on_without_the_stream() {
    let web = Web::start().await;
    let (client, address) = initialized(&web).await;
    web.ask(message(&address, call(1, "wait", json!({})))).await;
    until(|| web.fake.calls() == 1).await;
    drop(client);
    until(|| web.fake.states() == [SessionState::Closed]).await;
    assert_eq!(web.fake.cancelled(), 0);
    web.fake.gate.notify_one();
}

#[tokio::test]
async fn a_used_id_is_refused_and_the_first_answer_still_comes() {
    let web = Web::start().await;
    let (mut client, address) = initialized(&web).await;
    web.ask(message(&address, call(1, "wait", json!({"n": 1})))).await;
    until(|| web.fake.calls() == 1).await;
    web.ask(message(&address, call(1, "echo", json!({"n": 2})))).await;
    let refused = client.event().await.unwrap().json();
    assert_eq!(refused["error"]["data"]["errorCode"], "DUPLICATE_REQUEST");
    web.fake.gate.notify_one();
    let answer = client.event().await.unwrap().json();
    assert_eq!(
        (&answer["id"], answer["result"]["isError"].clone()),
        (&json!(1), json!(false))
    );
}

#[tokio::test]
async fn who_lost_its_stream_is_told_to_open_another() {
    let web = Web::start().await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let lost = web.ask(message("/messages?sessionId=unknown", ping)).await;
    let told = "there is no such session, or it is not yours; open `/sse` for another";
    assert_eq!(lost.json()["error"]["message"], told, "{}", lost.body);
}

#[tokio::test]
async fn messages_that_go_nowhere_are_refused() {
    let web = Web::start().await;
    web.fake.allow("ana", Role::Agent);
    let (_client, address) = open(&web, Some("ana")).await;
    let streamable = web.initialize_as("2025-03-26", Some("ana")).await;
    let ping = || json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for (ask, status) in [
        (message("/messages", ping()).token("ana"), 400),
        (message("/messages?sessionId=", ping()).token("ana"), 400),
        (message("/messages?sessionId=unknown", ping()).token("ana"), 404),
        (
            message(&format!("/messages?sessionId={streamable}"), ping()).token("ana"),
            404,
        ),
        (message(&address, ping()), 404),
        (
            message(&address, ping())
                .token("ana")
                .header("Content-Type", "text/plain"),
            415,
        ),
        (message(&address, ping()).token("ana").raw("{"), 400),
        (message(&address, ping()).token("ana"), 202),
        (Ask::new("GET", &address).token("ana"), 405),
        (Ask::new("POST", "/sse").token("ana"), 405),
        (
            Ask::new("GET", "/sse")
                .token("ana")
                .header("Accept", "application/json"),
            406,
        ),
    ] {
        let reply = web.ask(ask.clone()).await;
        assert_eq!(reply.status, status, "{ask:?}");
        if status != 202 {
            assert!(reply.json()["error"]["code"].is_i64(), "{ask:?}");
        }
    }
    // A session of this transport is none of the other's.
    let id = address.split_once('=').unwrap().1;
    let reply = web.ask(Ask::post(ping()).token("ana").session(id)).await;
    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_stream_and_nothing_grows() {
    let web = Web::start().await;
    let (client, address) = initialized(&web).await;
    let mut sender = web.connect().await;
    // Each answer is larger than the kernel takes at once; the second that has to wait ends the stream.
    let mut status = 202;
    for number in 1..200 {
        let ask = message(&address, call(number, "big", json!({"bytes": 2_000_000})));
        status = sender.ask(ask).await.status;
        if status == 404 {
            break;
        }
        assert_eq!(status, 202);
        until(|| web.fake.calls() == number).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(status, 404, "the stream is closed");
    until(|| web.fake.states() == [SessionState::Closed]).await;
    drop(client);
}

#[tokio::test]
async fn streams_that_nobody_closes_leave_room_for_those_who_ask_and_go() {
    let fake = Arc::new(Fake::default());
    let mut options = options(&fake);
    options.limits.connections_max = 8;
    let web = Web::with(fake, options).await;
    let session = web.initialize("2025-11-25").await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(open(&web, None).await);
    }
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": {
        "notifications": {"toolsListChanged": true},
    }});
    for one_more in [
        Ask::new("GET", "/sse").header("Accept", "text/event-stream"),
        Ask::new("GET", "/mcp").header("Accept", BOTH).session(&session),
        Ask::modern(listen),
    ] {
        let refused = web.ask(one_more).await;
        assert_eq!((refused.status, refused.headers["retry-after"].as_str()), (503, "60"));
        assert_eq!(refused.json()["error"]["data"]["errorCode"], "QUEUE_FULL");
    }
    assert_eq!(web.ask(Ask::new("GET", "/healthz")).await.status, 200);
    let answer = web
        .ask(Ask::post(call(1, "echo", json!({"a": 1}))).session(&session))
        .await;
    assert_eq!(answer.status, 200);
    // Who goes makes room.
    streams.pop();
    until(|| web.gauges.streams() == 5).await;
    open(&web, None).await;
}
