//! Clients that are slow, greedy or gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_gateway::session::{Caller, Transport};
use countersign_server::limits::{ANSWERS_AWAITED_MAX, OUTBOX_BYTES_MAX};
use countersign_server::stdio::{self, StdioOptions};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::client::{Client, error_of, options};
use crate::fake::{Fake, Shared};

/// Long enough for a stalled stream to be told from a busy one.
const STALL: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_client_that_never_reads_is_not_read_from() {
    let mut client = Client::of("2025-11-25").await;
    let mut taken = 0_usize;
    loop {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{taken},"method":"resources/read","params":{{"uri":"countersign://errors"}}}}"#
        );
        let written = tokio::time::timeout(STALL, client.input.write_all(format!("{line}\n").as_bytes())).await;
        if written.is_err() {
            break;
        }
        taken += 1;
        // What the streams between us hold, and what the server may hold.
        assert!(taken * line.len() < OUTBOX_BYTES_MAX, "the server goes on reading");
    }
    assert!(taken > 10);
    // Once it reads, nothing is missing.
    for id in 0..taken {
        assert_eq!(client.next().await["id"], id);
    }
}

#[tokio::test]
async fn progress_is_dropped_for_a_client_that_does_not_read() {
    let mut client = Client::of("2025-11-25").await;
    let params = json!({"name": "flood", "_meta": {"progressToken": 1}});
    client.request(1, "tools/call", params).await;
    // Five megabytes are reported in one go. What waits is bounded, its numbers grow by one, and the
    // answer is not among what was dropped.
    let mut sent = 0;
    let answer = loop {
        let message = client.next().await;
        if message["method"] != "notifications/progress" {
            break message;
        }
        sent += 1;
        assert_eq!(message["params"]["progress"], sent);
    };
    assert!((500..1_100).contains(&sent), "{sent} reports arrived");
    assert_eq!(answer["id"], 1);
}

#[tokio::test]
async fn a_client_may_wait_for_so_many_answers_and_no_more() {
    // A thousand answers leave at the end, however busy the machine is.
    let mut client = Client::with(StdioOptions {
        flush_patience: Duration::from_secs(60),
        ..options()
    });
    client.initialize("2025-11-25").await;
    for id in 0..ANSWERS_AWAITED_MAX {
        client.call(id, "wait", json!({})).await;
    }
    client.call("beyond", "wait", json!({})).await;
    let answer = client.next().await;
    assert_eq!(answer["id"], "beyond");
    assert_eq!(error_of(&answer), (-32014, "RATE_LIMITED"));
    // A duplicate waits as well.
    client.call(0, "wait", json!({})).await;
    assert_eq!(error_of(&client.next().await), (-32014, "RATE_LIMITED"));
    // One ends, one may come, under the id that was refused.
    client.fake.gate.notify_one();
    assert_eq!(client.next().await["result"]["isError"], false);
    client.call("beyond", "wait", json!({})).await;
    // A call begins in a task of its own, when its turn comes.
    let fake = Arc::clone(&client.fake);
    Client::until(|| fake.calls() == ANSWERS_AWAITED_MAX + 1).await;
    client.expect_silence().await;
    let rest = client.end().await;
    assert_eq!(rest.len(), ANSWERS_AWAITED_MAX);
}

#[tokio::test]
async fn a_client_that_stops_reading_for_ever_ends_the_server() {
    let mut client = Client::of("2025-11-25").await;
    client.call(1, "wait", json!({})).await;
    client.call(2, "echo", json!({})).await;
    let (input, server, fake) = client.stop_reading_for_ever();
    let ended = tokio::time::timeout(Duration::from_secs(20), server).await;
    ended.expect("in time").expect("no panic").expect("a clean end");
    assert_eq!(fake.cancelled.load(Ordering::SeqCst), 1);
    assert_eq!(fake.shutdowns.load(Ordering::SeqCst), 1);
    drop(input);
}

#[tokio::test]
async fn the_operator_may_end_it() {
    let fake = Arc::new(Fake::default());
    let service = Arc::new(Shared(Arc::clone(&fake)));
    let (mut input, server_input) = tokio::io::duplex(1 << 10);
    // Nobody reads this: the end must not wait for that.
    let (server_output, output) = tokio::io::duplex(1);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let caller = Caller::anonymous_agent(Transport::Stdio);
    let server = stdio::serve(
        service.clone(),
        service,
        caller,
        options(),
        server_input,
        server_output,
        stopped,
    );
    let server = tokio::spawn(server);
    input
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n")
        .await
        .unwrap();
    tokio::task::yield_now().await;
    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), server).await;
    ended.expect("in time").expect("no panic").expect("a clean end");
    assert_eq!(fake.shutdowns.load(Ordering::SeqCst), 1);
    drop(output);
}

#[test]
fn reports_from_other_threads_never_follow_the_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut client = Client::of("2025-11-25").await;
        for id in 0..50 {
            let params = json!({"name": "wait", "arguments": {"id": id}, "_meta": {"progressToken": id}});
            client.request(id, "tools/call", params).await;
            let fake = client.fake.clone();
            Client::until(|| fake.calls() == id + 1).await;
            let reporter = fake.reporter.lock().unwrap().take().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let thread = std::thread::spawn({
                let stop = Arc::clone(&stop);
                move || {
                    while !stop.load(Ordering::SeqCst) {
                        reporter.report("from elsewhere");
                    }
                }
            });
            fake.gate.notify_one();
            while client.next().await["id"] != id {}
            client.expect_silence().await;
            stop.store(true, Ordering::SeqCst);
            thread.join().unwrap();
        }
    });
}
