//! More calls than may run at once, and calls that are given up as soon as they are made.

use serde_json::json;

use crate::bench::Bench;
use crate::client::Server;

/// Commands that run at once.
const TURNS: usize = 64;
/// Calls that run or wait.
const IN_FLIGHT: usize = 256;

#[test]
fn a_call_that_waits_for_its_turn_can_be_cancelled_and_never_runs() {
    let bench = Bench::configured("sleep, touch", "answer_within_ms: 60000\n");
    let mut server = Server::start(&bench);
    let running: Vec<i64> = (0..TURNS)
        .map(|number| {
            server.call_later(
                "execute_process",
                json!({"file": "sleep", "args": ["600"], "request_id": format!("s{number}"), "timeout_ms": 600_000}),
            )
        })
        .collect();
    while bench.count("SELECT count(*) FROM flow_events WHERE event_type = 'command.dispatched'") < TURNS as i64 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let waiting = server.call_later(
        "execute_process",
        json!({"file": "touch", "args": ["canary"], "request_id": "late"}),
    );
    while server.call("command_status", json!({"request_id": "late"})).code() == "NOT_FOUND" {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let cancelled = server.call("command_cancel", json!({"request_id": "late"}));
    cancelled.failed("CANCELLED");
    let outcome = server.result(waiting);
    outcome.failed("CANCELLED");
    bench.recorded(&outcome);
    assert!(
        running.iter().all(|call| !server.has_answered(*call)),
        "the others go on"
    );
    assert!(server.end().success());
    assert!(!bench.work().join("canary").exists());
    assert_eq!(bench.count("SELECT count(*) FROM open_commands"), 0);
    bench.prove();
}

#[test]
fn more_calls_than_can_wait_are_turned_away() {
    let bench = Bench::configured("sleep", "answer_within_ms: 60000\n");
    let mut server = Server::start(&bench);
    let calls: Vec<i64> = (0..IN_FLIGHT + 4)
        .map(|_| {
            server.call_later(
                "execute_process",
                json!({"file": "sleep", "args": ["600"], "timeout_ms": 600_000}),
            )
        })
        .collect();
    for call in &calls[IN_FLIGHT..] {
        let outcome = server.result(*call);
        outcome.refused("QUEUE_FULL");
        assert_eq!(outcome.structured["retryable"], true);
        bench.recorded(&outcome);
    }
    server.ping();
    assert!(server.end().success());
}

#[test]
fn a_call_that_is_given_up_at_once_leaves_a_closed_record() {
    let bench = Bench::configured("sleep", "");
    let mut server = Server::start(&bench);
    for number in 0..24 {
        let id = format!("given-up-{number}");
        let call = server.call_later(
            "execute_process",
            json!({"file": "sleep", "args": ["600"], "request_id": id, "timeout_ms": 600_000}),
        );
        if number % 3 == 0 {
            server.ping();
        }
        server.notify("notifications/cancelled", json!({"requestId": call}));
    }
    for number in 0..24 {
        let outcome = server.call(
            "command_status",
            json!({"request_id": format!("given-up-{number}"), "wait_ms": 20_000}),
        );
        // Given up before it was even begun, it is unknown.
        assert!(matches!(outcome.code(), "CANCELLED" | "NOT_FOUND"), "{}", outcome.text);
    }
    assert_eq!(bench.count("SELECT count(*) FROM open_commands"), 0);
}

#[test]
fn the_shortest_timeout_ends_a_command_whatever_it_was_doing() {
    let bench = Bench::allowing("sleep");
    let mut server = Server::start(&bench);
    for _ in 0..20 {
        let outcome = server.call(
            "execute_process",
            json!({"file": "sleep", "args": ["600"], "timeout_ms": 1}),
        );
        assert_eq!(outcome.status(), "timeout", "{}", outcome.text);
    }
}
