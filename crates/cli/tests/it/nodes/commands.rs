//! A command that runs at one node is looked at and ended at any other, by its caller alone.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use super::field::{A, B, C, Field, attempt};
use crate::bench::Bench;
use crate::client::eventually;
use crate::web::legacy;

fn field() -> Option<Field> {
    Field::of(3, Bench::configured("sh, sleep", "answer_within_ms: 20000\n"))
}

/// A call that would take for ever; its sleep can be told from others.
fn endless(mark: &str) -> Value {
    json!({"file": "sh", "args": ["-c", format!("echo begun; sleep {mark}; echo late >> acts")]})
}

/// How many processes of the machine have this argument.
fn sleepers(mark: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let has_it = |line: &Vec<u8>| line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes());
    lines.filter(has_it).count()
}

/// A number of seconds that no other test sleeps for.
fn mark(number: u32) -> String {
    format!("300.{number}{}", std::process::id())
}

#[test]
fn a_long_command_is_looked_at_and_ended_at_another_node_by_its_caller_alone() {
    let Some(field) = field() else { return };
    let mark = mark(1);
    let session = field.session(A);
    let mut call = endless(&mark);
    call["request_id"] = "the-long-one".into();
    let named = json!({"request_id": "the-long-one"});
    let told = thread::scope(|scope| {
        let (field, session) = (&field, &session);
        let asked = scope.spawn(move || field.call(A, session, 1, "execute_process", call));
        eventually("it is at work", || sleepers(&mark) == 1);
        let seen = field.call(B, session, 2, "command_status", named.clone());
        assert_eq!(
            (&seen["status"], &seen["finished_at"]),
            (&json!("running"), &Value::Null)
        );
        // Somebody else does not even learn that it is there.
        let ben = field.token("agent", "ben");
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let bens = format!("{ben}{}", field.web(C).session_with(&ben, &hello));
        for tool in ["command_status", "command_cancel"] {
            let refused = field.call(C, &bens, 1, tool, named.clone());
            assert_eq!(refused["error_code"], "NOT_FOUND", "{refused}");
        }
        assert_eq!(sleepers(&mark), 1);
        let ended = field.call(B, session, 3, "command_cancel", named.clone());
        assert_eq!(
            (&ended["status"], &ended["error_code"]),
            (&json!("failed"), &json!("CANCELLED")),
            "{ended}"
        );
        assert_eq!(sleepers(&mark), 0);
        (asked.join().unwrap(), ended)
    });
    assert_eq!(told.0, told.1, "who called hears the same");
    for node in [A, B, C] {
        assert_eq!(field.call(node, &session, 4, "command_status", named.clone()), told.0);
        assert_eq!(field.call(node, &session, 5, "command_cancel", named.clone()), told.0);
    }
    assert!(!field.bench.work().join("acts").exists());
    field.prove();
}

#[test]
fn a_request_that_is_cancelled_at_another_node_ends() {
    let Some(field) = field() else { return };
    let mark = mark(2);
    let session = field.session(A);
    let told = thread::scope(|scope| {
        let (field, session, call) = (&field, &session, endless(&mark));
        let asked = scope.spawn(move || field.call(A, session, 7, "execute_process", call));
        eventually("it is at work", || sleepers(&mark) == 1);
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        assert_eq!(attempt(&field.web(B).address, session, &cancelled).unwrap().0, 202);
        asked.join().unwrap()
    });
    assert_eq!(told["error_code"], "CANCELLED", "{told}");
    assert_eq!(sleepers(&mark), 0);
    field.prove();
}

#[test]
fn a_command_whose_node_is_gone_is_ended_by_the_sweeper_and_told_so() {
    let Some(mut field) = field() else { return };
    let mark = mark(3);
    let session = field.session(A);
    let (address, headers) = (field.web(A).address.clone(), session.clone());
    let mut call = endless(&mark);
    call["request_id"] = "the-lost-one".into();
    let message = legacy(1, "tools/call", json!({"name": "execute_process", "arguments": call}));
    let cut = thread::spawn(move || attempt(&address, &headers, &message));
    eventually("it is at work", || sleepers(&mark) == 1);
    field.kill(A);
    drop(cut.join());
    let told = thread::scope(|scope| {
        let (field, session) = (&field, &session);
        let named = json!({"request_id": "the-lost-one"});
        let asked = scope.spawn(move || field.call(B, session, 2, "command_cancel", named));
        field.age(A);
        asked.join().unwrap()
    });
    assert_eq!(told["error_code"], "ABANDONED", "{told}");
    eventually("nothing of it runs", || sleepers(&mark) == 0);
    field.prove();
}
