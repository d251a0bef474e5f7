//! Clients that have gone, and clients that only send no more.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::web::{Ask, Client, Web, call, until};

/// A call that runs until it is let go or cancelled.
fn nap() -> Value {
    call(1, "wait", json!({}))
}

/// Sends a request and waits until its call runs.
async fn begin(web: &Web, ask: Ask) -> Client<TcpStream> {
    let mut client = web.connect().await;
    let before = web.fake.calls();
    client.send(&ask).await;
    until(|| web.fake.calls() == before + 1).await;
    client
}

fn cancelled(web: &Web) -> usize {
    web.fake.cancelled.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_modern_client_that_goes_cancels_whatever_it_sent_beyond_its_request() {
    let web = Web::start().await;
    let json = "application/json";
    for (turn, ask) in [
        Ask::modern(nap()),
        Ask::modern(nap()).header("Accept", json),
        Ask::modern(nap()).header("Accept", "text/event-stream"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = begin(&web, ask).await;
        // Another request, which has to wait for its turn, and half of a third.
        client.send(&Ask::new("GET", "/healthz")).await;
        client.stream.write_all(b"GET /heal").await.unwrap();
        drop(client);
        until(|| cancelled(&web) == turn + 1).await;
        until(|| web.gauges.connections() == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_sends_no_more_gets_its_answer() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let json = "application/json";
    for ask in [
        Ask::modern(nap()),
        Ask::modern(nap()).header("Accept", json),
        Ask::post(nap()).session(&session),
        Ask::post(call(2, "wait", json!({})))
            .session(&session)
            .header("Accept", json),
    ] {
        let mut client = begin(&web, ask.clone()).await;
        client.stream.shutdown().await.unwrap();
        // Until the server must have seen that: it answers whoever comes later.
        assert_eq!(web.ask(Ask::new("GET", "/healthz")).await.status, 200);
        web.fake.gate.notify_one();
        let mut reply = client.reply().await;
        while reply.status == 100 {
            reply = client.reply().await;
        }
        assert_eq!(reply.status, 200, "{ask:?}");
        assert_eq!(reply.json()["result"]["isError"], false, "{ask:?}");
    }
    let mut client = web.connect().await;
    client.send(&Ask::new("GET", "/healthz")).await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.reply().await.status, 200);
    assert_eq!(cancelled(&web), 0);
}

#[tokio::test]
async fn a_modern_client_that_sends_no_more_is_asked_whether_it_is_there() {
    let web = Web::start().await;
    let ask = Ask::modern(nap()).header("Accept", "application/json");
    let mut client = begin(&web, ask).await;
    client.stream.shutdown().await.unwrap();
    for _ in 0..2 {
        assert_eq!(client.head().await.status, 100);
    }
    assert_eq!(cancelled(&web), 0);
    web.fake.gate.notify_one();
    let mut reply = client.reply().await;
    while reply.status == 100 {
        reply = client.reply().await;
    }
    assert_eq!(reply.status, 200);
    // A stream asks by its signs of life.
    let mut client = begin(&web, Ask::modern(nap())).await;
    while client.head().await.status == 100 {}
    client.stream.shutdown().await.unwrap();
    until(|| web.gauges.streams() == 1).await;
    web.fake.gate.notify_one();
    assert_eq!(client.event().await.unwrap().json()["id"], 1);
    assert_eq!(cancelled(&web), 0);
}

#[tokio::test]
async fn nothing_stands_before_an_answer_to_a_client_of_http_1_0() {
    let web = Web::start().await;
    let mut client = web.connect().await;
    let ask = Ask::modern(nap()).header("Accept", "application/json").bytes();
    let ask = String::from_utf8(ask).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
    client.stream.write_all(ask.as_bytes()).await.unwrap();
    client.stream.shutdown().await.unwrap();
    until(|| web.fake.calls() == 1).await;
    assert_eq!(web.ask(Ask::new("GET", "/healthz")).await.status, 200);
    web.fake.gate.notify_one();
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn requests_behind_one_another_are_answered_in_their_order() {
    let web = Web::start().await;
    let mut client = begin(&web, Ask::modern(nap()).header("Accept", "application/json")).await;
    for id in 2..20 {
        let ask = Ask::modern(call(id, "big", json!({"bytes": 2_000, "pad": "x".repeat(1_000)})));
        client.send(&ask.header("Accept", "application/json")).await;
    }
    client.stream.shutdown().await.unwrap();
    web.fake.gate.notify_one();
    for id in 1..20 {
        let mut reply = client.reply().await;
        while reply.status == 100 {
            reply = client.reply().await;
        }
        assert_eq!(reply.json()["id"], id);
    }
}
