//! Sessions over time: restarts, idleness, limits, and the end of the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use countersign_gateway::session::Role;
use countersign_gateway::session::lifetime::SessionState;
use countersign_server::limits::SESSION_TTL_DEFAULT;
use serde_json::{Value, json};

use crate::fake::Fake;
use crate::web::{self, Ask, BOTH, Web, call, handshake, until};

fn ping() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
}

#[tokio::test]
async fn a_session_survives_a_restart() {
    let fake = Arc::new(Fake::default());
    fake.allow("ana", Role::Agent);
    fake.allow("bob", Role::Agent);
    let web = Web::with(Arc::clone(&fake), web::options(&fake)).await;
    let session = web.initialize_as("2025-03-26", Some("ana")).await;
    web.stop().await;
    assert_eq!(fake.states(), [SessionState::Initialized]);
    let web = Web::with(Arc::clone(&fake), web::options(&fake)).await;
    assert_eq!(
        web.ask(Ask::post(ping()).session(&session).token("bob")).await.status,
        404
    );
    assert_eq!(
        web.ask(Ask::post(ping()).session(&session).token("ana")).await.status,
        200
    );
    // It still speaks what was agreed upon, and knows that it is initialized.
    let batch = Ask::post(json!([ping()])).session(&session).token("ana");
    assert!(web.ask(batch).await.json().is_array());
    let again = web
        .ask(Ask::post(handshake("2025-03-26")).session(&session).token("ana"))
        .await;
    assert_eq!(again.error().0, -32600);
    // What only the earlier process had is gone.
    let resume = Ask::new("GET", "/mcp")
        .session(&session)
        .token("ana")
        .header("Accept", BOTH);
    assert_eq!(web.ask(resume.header("Last-Event-ID", "f4240-1-1")).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_expires_and_is_said_to_have() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.session_ttl = Duration::from_secs(100);
    let web = Web::with(fake, options).await;
    let (swept, met) = (web.initialize("2025-11-25").await, web.initialize("2025-11-25").await);
    // One is found out by its next request, before anybody swept.
    web.clock.advance(Duration::from_secs(100));
    let reply = web.ask(Ask::post(ping()).session(&met)).await;
    assert_eq!(
        (reply.status, reply.error()),
        (404, (-32004, "SESSION_EXPIRED".to_owned()))
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(web.fake.states(), [SessionState::Expired, SessionState::Expired]);
    for session in [swept, met] {
        let reply = web.ask(Ask::post(ping()).session(&session)).await;
        assert_eq!(reply.error().1, "SESSION_EXPIRED");
        assert_eq!(
            web.ask(Ask::post(handshake("2025-11-25")).session(&session))
                .await
                .status,
            200
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_expires_while_a_call_runs_or_a_stream_is_open() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.session_ttl = Duration::from_secs(100);
    let web = Web::with(fake, options).await;
    let calling = web.initialize("2025-11-25").await;
    let listening = web.initialize("2025-11-25").await;
    let mut call_of = web.connect().await;
    let ask = Ask::post(call(1, "wait", json!({})))
        .session(&calling)
        .header("Accept", "application/json");
    call_of.send(&ask).await;
    until(|| web.fake.calls() == 1).await;
    let mut stream_of = web.connect().await;
    stream_of
        .send(&Ask::new("GET", "/mcp").header("Accept", BOTH).session(&listening))
        .await;
    assert_eq!(stream_of.head().await.status, 200);
    let mut sse = web.connect().await;
    sse.send(&Ask::new("GET", "/sse")).await;
    assert_eq!(sse.head().await.status, 200);
    for _ in 0..100 {
        web.clock.advance(Duration::from_secs(50));
        tokio::time::sleep(Duration::from_secs(50)).await;
    }
    assert!(
        web.fake.states().iter().all(|state| state.is_open()),
        "{:?}",
        web.fake.states()
    );
    web.fake.gate.notify_one();
    assert_eq!(call_of.reply().await.status, 200);
    for session in [&calling, &listening] {
        assert_eq!(web.ask(Ask::post(ping()).session(session)).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_put_away_and_comes_back() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    assert_eq!((web.gauges.sessions_open(), web.gauges.sessions_live()), (1, 1));
    web.clock.advance(Duration::from_secs(400));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((web.gauges.sessions_open(), web.gauges.sessions_live()), (1, 0));
    assert_eq!(web.ask(Ask::post(ping()).session(&session)).await.status, 200);
    assert_eq!((web.gauges.sessions_open(), web.gauges.sessions_live()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_session_with_wishes_of_its_own_stays() {
    let web = Web::start().await;
    let session = web.initialize("2025-11-25").await;
    let level = json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "info"}});
    assert_eq!(
        web.ask(Ask::post(level).session(&session)).await.json()["result"],
        json!({})
    );
    web.clock.advance(Duration::from_secs(400));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(web.gauges.sessions_live(), 1);
}

#[tokio::test]
async fn there_are_only_so_many_sessions() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.limits.sessions_max = 2;
    let web = Web::with(fake, options).await;
    let first = web.initialize("2025-11-25").await;
    web.initialize("2025-11-25").await;
    let reply = web.ask(Ask::post(handshake("2025-11-25"))).await;
    assert_eq!(
        (reply.status, reply.error()),
        (503, (-32014, "RATE_LIMITED".to_owned()))
    );
    assert_eq!(reply.headers["retry-after"], "60");
    assert_eq!(web.ask(Ask::new("GET", "/sse")).await.status, 503);
    assert_eq!(web.ask(Ask::new("DELETE", "/mcp").session(&first)).await.status, 204);
    web.initialize("2025-11-25").await;
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_can_and_keeps_sessions() {
    let fake = Arc::new(Fake::default());
    let web = Web::with(Arc::clone(&fake), web::options(&fake)).await;
    let session = web.initialize("2025-11-25").await;
    let (mut short, mut long) = (web.connect().await, web.connect().await);
    short
        .send(&Ask::post(call(1, "wait", json!({}))).session(&session))
        .await;
    until(|| fake.calls() == 1).await;
    long.send(&Ask::post(call(2, "until_shutdown", json!({}))).session(&session))
        .await;
    until(|| fake.calls() == 2).await;
    let mut listening = web.connect().await;
    listening
        .send(&Ask::new("GET", "/mcp").header("Accept", BOTH).session(&session))
        .await;
    assert_eq!(listening.head().await.status, 200);
    let address = web.address;
    let stopping = tokio::spawn(web.stop());
    while listening.event().await.is_some() {}
    assert_eq!(
        fake.shutdowns.load(std::sync::atomic::Ordering::SeqCst),
        0,
        "short calls come first"
    );
    fake.gate.notify_one();
    assert_eq!(short.reply().await.json()["id"], 1);
    assert_eq!(long.reply().await.json()["id"], 2);
    stopping.await.unwrap();
    assert_eq!(fake.states(), [SessionState::Initialized]);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_idle_session_costs_little() {
    const SESSIONS: usize = 5_000;
    let web = Web::start().await;
    let mut client = web.connect().await;
    let mut open = async |count: usize| {
        for _ in 0..count {
            let reply = client.ask(Ask::post(handshake("2025-11-25"))).await;
            let session = &reply.headers["mcp-session-id"];
            let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
            assert_eq!(client.ask(Ask::post(list).session(session)).await.status, 200);
        }
    };
    open(500).await;
    let before = web::resident();
    open(SESSIONS).await;
    let each = web::resident().saturating_sub(before) / SESSIONS;
    // What the store of these tests holds is counted too.
    assert!(each <= 8 << 10, "{each} bytes");
}

#[tokio::test]
async fn a_closed_session_takes_nothing_more_whoever_was_faster() {
    for _ in 0..40 {
        let web = Web::start().await;
        let session = web.initialize("2025-11-25").await;
        let delete = async { web.ask(Ask::new("DELETE", "/mcp").session(&session)).await.status };
        let racing = async {
            let mut statuses = Vec::new();
            for id in 0..3 {
                let ping = json!({"jsonrpc": "2.0", "id": format!("p{id}"), "method": "ping"});
                statuses.push(web.ask(Ask::post(ping).session(&session)).await.status);
            }
            statuses
        };
        let (deleted, racing) = tokio::join!(delete, racing);
        assert_eq!(deleted, 204);
        assert!(racing.iter().all(|status| matches!(status, 200 | 404)), "{racing:?}");
        let late = web.ask(Ask::post(call(9, "echo", json!({}))).session(&session)).await;
        assert_eq!(late.status, 404);
        assert_eq!(web.ask(Ask::new("DELETE", "/mcp").session(&session)).await.status, 404);
        web.stop().await;
    }
}

#[tokio::test]
async fn sessions_that_begin_at_once_do_not_outnumber_the_limit() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.limits.sessions_max = 5;
    let web = Web::with(fake, options).await;
    let begin = || async { web.ask(Ask::post(handshake("2025-11-25"))).await.status };
    let mut begun = Vec::new();
    for _ in 0..3 {
        let (a, b, c, d) = tokio::join!(begin(), begin(), begin(), begin());
        begun.extend([a, b, c, d]);
    }
    assert_eq!(begun.iter().filter(|status| **status == 200).count(), 5, "{begun:?}");
    assert_eq!(begun.iter().filter(|status| **status == 503).count(), 7, "{begun:?}");
    web.stop().await;
}

#[tokio::test]
async fn a_revoked_token_ends_its_sessions_and_what_runs_in_them() {
    let web = Web::start().await;
    web.fake.allow("good", Role::Agent);
    let session = web.initialize_as("2025-11-25", Some("good")).await;
    let waiting = Ask::post(call(1, "wait", json!({}))).session(&session).token("good");
    let mut client = web.connect().await;
    client.send(&waiting).await;
    let fake = Arc::clone(&web.fake);
    web::until(|| fake.calls() == 1).await;
    web.fake.tokens.lock().unwrap().clear();
    web::until(|| fake.cancelled.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
    web.stop().await;
}

/// Another process that serves the same sessions.
async fn neighbour(web: &Web, session_ttl: Duration) -> Web {
    let mut options = web::options(&web.fake);
    options.clock = web.clock.clone();
    options.session_ttl = session_ttl;
    Web::with(Arc::clone(&web.fake), options).await
}

#[tokio::test(start_paused = true)]
async fn a_session_is_served_by_two_processes_and_ends_in_both() {
    let first = Web::start().await;
    let second = neighbour(&first, SESSION_TTL_DEFAULT).await;
    let session = first.initialize("2025-11-25").await;
    let ping = |id: u64| Ask::post(json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).session(&session);
    assert_eq!(second.ask(ping(1)).await.status, 200);
    assert_eq!(first.ask(ping(2)).await.status, 200);
    // A call runs in the one, and the other is told to end the session.
    let mut client = first.connect().await;
    client
        .send(&Ask::post(call(3, "wait", json!({}))).session(&session))
        .await;
    until(|| first.fake.calls() == 1).await;
    first.clock.advance(Duration::from_millis(1));
    assert_eq!(first.ask(ping(4)).await.status, 200);
    assert_eq!(
        second.ask(Ask::new("DELETE", "/mcp").session(&session)).await.status,
        204
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    until(|| first.fake.cancelled.load(Ordering::SeqCst) == 1).await;
    for web in [&first, &second] {
        let reply = web.ask(ping(5)).await;
        assert_eq!((reply.status, reply.error().1.as_str()), (404, "SESSION_NOT_FOUND"));
    }
}

#[tokio::test]
async fn a_session_used_in_one_process_does_not_expire_in_another() {
    let fake = Arc::new(Fake::default());
    let mut options = web::options(&fake);
    options.session_ttl = Duration::from_secs(1_000);
    let first = Web::with(fake, options).await;
    let second = neighbour(&first, Duration::from_secs(1_000)).await;
    let session = first.initialize("2025-11-25").await;
    let ping = |id: u64| Ask::post(json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).session(&session);
    first.clock.advance(Duration::from_secs(900));
    assert_eq!(second.ask(ping(1)).await.status, 200);
    second.stop().await;
    // To the first it is idle for longer than it may be; the store knows better.
    first.clock.advance(Duration::from_secs(200));
    assert_eq!(first.ask(ping(2)).await.status, 200);
    first.clock.advance(Duration::from_secs(1_001));
    assert_eq!(first.ask(ping(3)).await.error().1, "SESSION_EXPIRED");
}
