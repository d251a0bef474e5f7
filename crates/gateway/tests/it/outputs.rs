//! Output that is long: what is told of it while it is in memory, and what once it is not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_gateway::execution::How;
use countersign_gateway::limits;
use countersign_gateway::policy::effective::Mode;
use countersign_gateway::service::Origin;
use countersign_gateway::session::{Caller, Transport};
use serde_json::{Value, json};

use crate::stage::Stage;

const LONG: usize = 1 << 20;

/// A stage whose commands print these, one after the other.
fn printing(outputs: &[String]) -> Stage {
    let endings: Vec<_> = outputs.iter().map(|output| (How::Exited(0), output.as_str())).collect();
    let mut stage = Stage::new(Mode::Never).ending(&endings);
    stage.output_limit = LONG;
    stage
}

async fn run(stage: &Stage, id: &str) -> Value {
    let arguments = json!({"file": "true", "args": [], "request_id": id});
    stage.call("execute_process", arguments).await
}

/// Everything that `command_status` tells of a command: whole, and by pages that meet where its middle is missing.
async fn told(stage: &Stage, id: &str) -> Vec<Value> {
    let half = LONG / 2;
    let pages = [
        json!({"request_id": id}),
        json!({"request_id": id, "offset": 0, "limit": 10}),
        json!({"request_id": id, "offset": half - 5, "limit": 10}),
        json!({"request_id": id, "offset": half + 5, "limit": 10}),
        json!({"request_id": id, "offset": 10 * LONG}),
        json!({"request_id": id, "stream": "stderr"}),
    ];
    let mut told = Vec::new();
    for arguments in pages {
        told.push(stage.call("command_status", arguments).await);
    }
    told
}

/// Compares field by field: a megabyte that differs is not worth printing.
fn check(told: &Value, expected: &Value) {
    let fields = |value: &Value| value.as_object().unwrap().clone();
    for ((name, told), (expected_name, expected)) in fields(told).iter().zip(&fields(expected)) {
        assert!(
            name == expected_name && told == expected,
            "{name}: {:.200} instead of {expected_name}: {:.200}",
            told.to_string(),
            expected.to_string()
        );
    }
}

#[tokio::test]
async fn a_long_answer_waits_for_room_and_its_command_does_not() {
    let outputs: Vec<_> = (0..5).map(|_| "x".repeat(LONG)).collect();
    let stage = printing(&outputs);
    let call = || {
        let caller = Caller::anonymous_agent(Transport::Stdio);
        let arguments = json!({"file": "true", "args": []});
        stage.answer_to(caller, Origin::default(), "execute_process", arguments)
    };
    let mut held = Vec::new();
    while (held.len() + 1) * LONG <= limits::ANSWERS_BYTES_MAX {
        held.push(call().await.unwrap());
    }
    let mut waits = std::pin::pin!(call());
    let all_closed = async {
        while stage.closings().len() <= held.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = &mut waits => panic!("there was room"),
        () = all_closed => {}
    }
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut waits).await;
    assert!(waited.is_err(), "there was room");
    // A short one needs none.
    let answer = stage.call("command_cancel", json!({"request_id": "unknown"})).await;
    assert_eq!(answer["error_code"], "NOT_FOUND");
    drop(held.pop());
    let answer = waits.await.unwrap();
    assert_eq!(answer.structured["stdout"].as_str().map(str::len), Some(LONG));
}

#[tokio::test]
async fn what_is_no_longer_in_memory_is_told_from_the_record_as_before() {
    // No word goes over the place where the middle is left out: in the record its halves would be hidden.
    let lines = |bytes: usize| (0..bytes / 8).map(|at| format!(" {at:06}\n")).collect::<String>();
    let (whole, cut) = (lines(LONG), lines(2 * LONG));
    // What is in the record has no secrets, which tells where an answer is from.
    let marked = "password=hunter2\n".to_owned();
    let mut outputs = vec![marked, whole, cut];
    outputs.extend(std::iter::repeat_n(lines(LONG), 7));
    let stage = printing(&outputs);
    let first = ["marked", "whole", "cut"];
    let mut before = Vec::new();
    for id in first {
        let answer = run(&stage, id).await;
        before.push(told(&stage, id).await);
        assert_eq!(before.last().unwrap()[0], answer);
    }
    assert_eq!(before[0][0]["stdout"], "password=hunter2\n");
    for at in 0..7 {
        run(&stage, &at.to_string()).await;
    }
    assert_eq!(told(&stage, "marked").await[0]["stdout"], "password=[redacted]\n");
    for (id, before) in first.into_iter().zip(before).skip(1) {
        for (now, before) in told(&stage, id).await.iter().zip(&before) {
            check(now, before);
        }
        check(&run(&stage, id).await, &before[0]);
    }
    assert_eq!(stage.runs(), 10, "each ran once");
}

#[tokio::test]
async fn taking_secrets_out_of_a_long_output_keeps_nobody_else_waiting() {
    // Long, and with secrets of the call all over it.
    let secret = "hunter2222 ".repeat(LONG / 11);
    let stage = printing(&[secret]);
    let ended = AtomicBool::new(false);
    let long = async {
        let arguments = json!({"file": "true", "args": ["--password", "hunter2222"], "request_id": "long"});
        let answer = stage.call("execute_process", arguments).await;
        ended.store(true, Ordering::Relaxed);
        answer
    };
    let others = async {
        while !ended.load(Ordering::Relaxed) {
            stage.call("command_status", json!({"request_id": "other"})).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let (answer, ()) = tokio::join!(long, others);
    assert_eq!(answer["status"], "ok");
    let story = stage.story();
    let at = |line: &str| story.iter().position(|it| it == line).unwrap();
    let meanwhile = &story[at("run true")..at("commit command.completed (close)")];
    assert!(
        meanwhile.iter().any(|line| line == "commit tool.called"),
        "others were served: {meanwhile:?}"
    );
    let kept = stage
        .beside()
        .call("command_status", json!({"request_id": "long"}))
        .await;
    let kept = kept["stdout"].as_str().unwrap();
    assert!(
        kept.starts_with("[redacted] [redacted] ") && !kept.contains("hunter"),
        "{:.100}",
        kept
    );
}
