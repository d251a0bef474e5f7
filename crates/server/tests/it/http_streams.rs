//! Answers that are streams: when they are, what they carry, and how they are taken up again.

use std::time::Duration;

use countersign_gateway::session::Role;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::web::{Ask, BOTH, Client, Event, Head, Web, call, in_time, until};

fn with_progress(mut message: Value) -> Value {
    message["params"]["_meta"] = json!({"progressToken": "p"});
    message
}

fn resume(session: &str, event: &Event) -> Ask {
    let id = event.id.as_deref().expect("an id");
    Ask::new("GET", "/mcp")
        .header("Accept", BOTH)
        .session(session)
        .header("Last-Event-ID", id)
}

/// Starts a call of `wait` and reads until it has become a stream.
async fn waiting(web: &Web, session: &str, id: i64) -> (Client<TcpStream>, Event) {
    let mut client = web.connect().await;
    let before = web.fake.calls();
    client
        .send(&Ask::post(call(id, "wait", json!({"id": id}))).session(session))
        .await;
    until(|| web.fake.calls() == before + 1).await;
    let Head { status, headers } = client.head().await;
    assert_eq!((status, headers["content-type"].as_str()), (200, "text/event-stream"));
    assert_eq!(headers["x-accel-buffering"], "no");
    let primer = client.event().await.expect("a first event");
    assert_eq!((primer.data.as_str(), primer.retry), ("", Some(3_000)));
    (client, primer)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_becomes_a_stream_that_shows_life() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let (mut client, primer) = waiting(&web, &session, 1).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    web.fake.gate.notify_one();
    let answer = client.event().await.expect("the answer");
    assert_eq!(answer.json()["result"]["structuredContent"]["waited"], json!({"id": 1}));
    assert_ne!(answer.id, primer.id);
    assert_eq!(client.event().await, None);
    assert!(client.signs_of_life >= 2, "{}", client.signs_of_life);
}

#[tokio::test]
async fn progress_makes_a_stream_at_once() {
    let web = Web::start().await;
    for (revision, primed) in [("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)] {
        let session = web.initialize(revision).await;
        let reply = web
            .ask(Ask::post(with_progress(call(1, "report", json!({})))).session(&session))
            .await;
        assert!(reply.is_stream());
        let mut events = reply.events();
        if primed {
            let primer = events.remove(0);
            assert_eq!((primer.data.as_str(), primer.retry.is_some()), ("", true));
        }
        let said: Vec<Value> = events.iter().map(Event::json).collect();
        assert_eq!(said.len(), 4, "{revision}");
        assert_eq!(said[2]["params"]["progress"], 3);
        assert_eq!(said[3]["id"], 1);
        assert!(events.iter().all(|event| event.id.is_some() && event.retry.is_none()));
    }
}

#[tokio::test]
async fn who_reads_no_streams_gets_the_answer_alone() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    for accept in ["application/json", "*/*", ""] {
        let ask = Ask::post(with_progress(call(accept, "report", json!({})))).session(&session);
        let reply = web.ask(ask.header("Accept", accept)).await;
        assert_eq!((reply.status, reply.is_stream()), (200, false));
        assert_eq!(reply.json()["id"], accept);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_its_stream_without_an_answer() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let (mut client, _) = waiting(&web, &session, 1).await;
    let cancel = |id: i64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    assert_eq!(web.ask(Ask::post(cancel(1)).session(&session)).await.status, 202);
    assert_eq!(client.event().await, None);
    until(|| web.fake.cancelled() == 1).await;
    // Also before it has become a stream, and for who reads none.
    for (id, accept, status) in [(2, BOTH, 200), (3, "application/json", 202)] {
        let mut client = web.connect().await;
        let ask = Ask::post(call(id, "wait", json!({})))
            .session(&session)
            .header("Accept", accept);
        client.send(&ask).await;
        until(|| web.fake.calls() == id as usize).await;
        web.ask(Ask::post(cancel(id)).session(&session)).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, status);
        assert!(reply.events().iter().all(|event| event.data.is_empty()), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_stream_goes_on_where_it_was_cut() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let (client, primer) = waiting(&web, &session, 1).await;
    drop(client);
    in_time(|| web.gauges.streams() == 0).await;
    assert_eq!(web.fake.cancelled(), 0, "a legacy client that goes cancels nothing");
    let mut again = web.connect().await;
    again.send(&resume(&session, &primer)).await;
    assert_eq!(again.head().await.status, 200);
    web.fake.gate.notify_one();
    assert_eq!(again.event().await.unwrap().json()["id"], 1);
    assert_eq!(again.event().await, None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_read_is_replayed_and_only_that() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let (client, primer) = waiting(&web, &session, 1).await;
    drop(client);
    in_time(|| web.gauges.streams() == 0).await;
    web.fake.gate.notify_one();
    // Another call of the same session, so that the log holds more than one stream.
    let reported = web
        .ask(Ask::post(with_progress(call(2, "report", json!({})))).session(&session))
        .await;
    let reply = web.ask(resume(&session, &primer)).await;
    let events = reply.events();
    assert_eq!(events.len(), 1, "{reply:?}");
    assert_eq!(events[0].json()["id"], 1);
    // Strictly after the event that was seen: from the middle, and from the end.
    let seen = &reported.events()[2];
    let rest: Vec<_> = web.ask(resume(&session, seen)).await.events();
    assert_eq!(rest, reported.events()[3..]);
    assert_eq!(web.ask(resume(&session, &events[0])).await.events(), []);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_replayed_that_is_not_there_or_not_theirs() {
    let web = Web::start().await;
    web.fake.allow("bob", Role::Agent);
    let session = web.initialize("2025-11-25").await;
    let other = web.initialize("2025-11-25").await;
    let bobs = web.initialize_as("2025-11-25", Some("bob")).await;
    let (client, primer) = waiting(&web, &session, 1).await;
    drop(client);
    web.fake.gate.notify_one();
    for (ask, status) in [
        (resume(&other, &primer), 400),
        (resume(&bobs, &primer).token("bob"), 400),
        (resume(&session, &primer).token("bob"), 404),
        (resume(&session, &primer).header("Last-Event-ID", "nonsense"), 400),
        (resume(&session, &primer).header("Last-Event-ID", "0-1-1"), 400),
        (resume(&session, &primer).header("Last-Event-ID", "f4240-9-1"), 400),
        (resume(&session, &primer).header("Last-Event-ID", "f4240-1-99"), 400),
        (resume(&session, &primer).header("Last-Event-ID", "f4240-01-1"), 400),
        (resume(&session, &primer), 200),
    ] {
        assert_eq!(web.ask(ask.clone()).await.status, status, "{ask:?}");
    }
    // What is kept is kept for a while only.
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(web.ask(resume(&session, &primer)).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn the_newest_listener_of_a_stream_is_the_only_one() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let listen = Ask::new("GET", "/mcp")
        .header("Accept", "text/event-stream")
        .session(&session);
    let mut first = web.connect().await;
    first.send(&listen).await;
    assert_eq!(first.head().await.status, 200);
    assert!(first.event().await.is_some_and(|event| event.id.is_some()));
    let mut second = web.connect().await;
    second.send(&listen).await;
    assert_eq!(second.head().await.status, 200);
    assert_eq!(first.event().await, None);
    until(|| web.gauges.streams() == 1).await;
    let refused = web.ask(listen.header("Accept", "application/json")).await;
    assert_eq!(refused.status, 406);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_progress_leaves_room_for_the_answer() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let mut client = web.connect().await;
    client
        .send(&Ask::post(with_progress(call(1, "flood", json!({})))).session(&session))
        .await;
    // Five megabytes were said; what is kept is bounded, and the answer is part of it.
    until(|| web.fake.calls() == 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reply = client.reply().await;
    let events = reply.events();
    assert!(events.len() < 5_000);
    assert_eq!(events.last().unwrap().json()["id"], 1);
}
