//! The spine with ports that a test holds in its hand: what is recorded, in which order, and what runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod acts;
mod approvals;
mod callbacks;
mod consulting;
mod invocations;
mod joining;
mod known;
mod outputs;
mod policy;
mod repeated;
mod stage;
mod unclosed;

use std::time::Duration;

use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::audit::RecordError;
use countersign_gateway::execution::How;
use countersign_gateway::policy::effective::Mode;
use serde_json::{Value, json};

use stage::Stage;

fn yes() -> Ballot {
    Ballot {
        choice: Choice::Allow,
        by: Decider::person("ana", OwnRequests::Refused),
        reason: "fine".into(),
        answer: None,
    }
}

fn no() -> Ballot {
    Ballot {
        choice: Choice::Deny,
        by: Decider::person("ana", OwnRequests::Refused),
        reason: "not today".into(),
        answer: None,
    }
}

#[tokio::test]
async fn an_allowed_command_is_recorded_before_it_runs_and_closed_before_it_answers() {
    let stage = Stage::new(Mode::Never);
    let answer = stage.call("execute_process", json!({"file": "true", "args": []})).await;
    assert_eq!(answer["status"], "ok");
    assert_eq!(
        stage.story(),
        [
            "commit command.received command.validated command.dispatched (open)",
            "run true",
            "commit command.completed (close)"
        ]
    );
}

#[tokio::test]
async fn a_refused_command_never_reaches_the_executor() {
    let stage = Stage::new(Mode::Never);
    let answer = stage.call("execute_process", json!({"file": "id", "args": []})).await;
    assert_eq!(
        (&answer["status"], &answer["error_code"]),
        (&json!("rejected"), &json!("COMMAND_NOT_ALLOWED"))
    );
    assert_eq!(stage.story(), ["commit command.received command.completed (close)"]);
}

#[tokio::test]
async fn a_closing_event_tells_a_digest_of_what_is_kept() {
    let stage = Stage::new(Mode::Never).ending(&[(How::Exited(0), "done\n")]);
    stage.call("execute_process", json!({"file": "true", "args": []})).await;
    stage.call("execute_process", json!({"file": "id", "args": []})).await;
    let closings = stage.closings();
    assert_eq!((closings.len(), closings[0].0.stdout.as_slice()), (2, &b"done\n"[..]));
    for (close, event) in closings {
        assert_eq!(event["kept_digest"], close.kept().digest().to_hex());
        // An output of few characters is not found by trying out the digest.
        let result: Value = serde_json::from_str(&close.result).unwrap();
        assert_eq!(result["kept"]["salt"].as_str().map(str::len), Some(32));
    }
}

#[tokio::test]
async fn without_a_record_nothing_runs() {
    let stage = Stage::new(Mode::Never);
    stage.fail_commits(RecordError::Unavailable("the disk is full".into()));
    let answer = stage.call("execute_process", json!({"file": "true", "args": []})).await;
    assert_eq!(
        (&answer["status"], &answer["error_code"]),
        (&json!("rejected"), &json!("AUDIT_UNAVAILABLE"))
    );
    assert_eq!(answer["retryable"], true);
    assert!(
        !stage.story().iter().any(|line| line.starts_with("run")),
        "{:?}",
        stage.story()
    );
}

#[tokio::test]
async fn a_question_is_recorded_before_anybody_is_asked() {
    for (decision, status) in [(yes(), "ok"), (no(), "rejected")] {
        let stage = Stage::new(Mode::Untrusted).answering(decision);
        let answer = stage
            .call("execute_process", json!({"file": "true", "args": ["x"]}))
            .await;
        assert_eq!(answer["status"], status);
        let expected: &[&str] = match status {
            "ok" => &[
                "commit command.received command.validated approval.requested run.wait.paused (open)",
                "ask true x",
                "commit approval.approved run.wait.resumed",
                "commit command.dispatched mcp.tool.applied",
                "run true",
                "commit command.completed (close)",
            ],
            _ => &[
                "commit command.received command.validated approval.requested run.wait.paused (open)",
                "ask true x",
                "commit approval.denied run.wait.resumed",
                "commit command.completed (close)",
            ],
        };
        assert_eq!(stage.story(), expected);
    }
}

#[tokio::test]
async fn on_failure_asks_to_run_again_without_confinement() {
    let stage = Stage::new(Mode::OnFailure).answering(yes()).ending(&[
        (How::Exited(1), "touch: x: Permission denied\n"),
        (How::Exited(0), "done\n"),
    ]);
    let answer = stage.call("execute_process", json!({"file": "true", "args": []})).await;
    assert_eq!((&answer["status"], &answer["stdout"]), (&json!("ok"), &json!("done\n")));
    assert_eq!(
        stage.story(),
        [
            "commit command.received command.validated command.dispatched (open)",
            "run true",
            "commit approval.requested run.wait.paused",
            "ask true",
            "commit approval.approved run.wait.resumed",
            "commit command.dispatched mcp.tool.applied",
            "run true unconfined",
            "commit command.completed (close)",
        ]
    );
}

#[tokio::test]
async fn on_failure_keeps_the_first_result_when_the_answer_is_no_or_the_failure_was_its_own() {
    let refused = Stage::new(Mode::OnFailure)
        .answering(no())
        .ending(&[(How::Exited(1), "Permission denied\n")]);
    let answer = refused
        .call("execute_process", json!({"file": "true", "args": []}))
        .await;
    assert_eq!(
        (&answer["error_code"], &answer["stdout"]),
        (&json!("COMMAND_EXIT_NON_ZERO"), &json!("Permission denied\n"))
    );
    assert_eq!(refused.story().iter().filter(|line| line.starts_with("run")).count(), 1);

    let own = Stage::new(Mode::OnFailure)
        .answering(yes())
        .ending(&[(How::Exited(1), "3 tests failed\n")]);
    assert_eq!(
        own.call("execute_process", json!({"file": "true", "args": []})).await["exit_code"],
        1
    );
    assert!(
        !own.story().iter().any(|line| line.starts_with("ask")),
        "{:?}",
        own.story()
    );
}

#[tokio::test]
async fn the_same_request_id_runs_once() {
    let stage = Stage::new(Mode::Never);
    let call = json!({"file": "true", "args": [], "request_id": "mine"});
    let first = stage.call("execute_process", call.clone()).await;
    assert_eq!(stage.call("execute_process", call).await, first);
    let other = stage
        .call(
            "execute_process",
            json!({"file": "true", "args": ["x"], "request_id": "mine"}),
        )
        .await;
    assert_eq!(other["error_code"], "CONFLICT");
    assert_eq!(stage.story().iter().filter(|line| line.starts_with("run")).count(), 1);
}

#[tokio::test]
async fn a_tool_that_is_turned_off_is_unknown() {
    let stage = Stage::new(Mode::Never).without_tool("run_*");
    let refusal = stage
        .try_call("run_command", json!({"command": "true", "working_directory": "."}))
        .await
        .unwrap_err();
    assert_eq!(refusal.code.name(), "UNKNOWN_TOOL");
    assert_eq!(stage.story(), ["commit tool.called"]);
}

#[tokio::test]
async fn a_command_under_which_the_server_breaks_is_answered_and_gives_its_place_back() {
    let stage = Stage::new(Mode::Never).ending(&[(How::Exited(0), stage::BREAKS)]);
    let arguments = json!({"file": "true", "args": [], "request_id": "r"});
    let answer = stage.call("execute_process", arguments).await;
    assert_eq!(answer["error_code"], "INTERNAL_ERROR");
    // Nothing is at work here that would have to be waited for.
    stage.stop().await;
}

#[tokio::test]
async fn who_will_not_wait_hears_that_the_command_goes_on() {
    let stage = Stage::new(Mode::Never).ending(&[(How::Exited(0), stage::GOES_ON)]);
    let patience = Duration::from_millis(1);
    let arguments = json!({"file": "true", "args": []});
    let answer = stage.call_within("execute_process", arguments, patience).await;
    assert_eq!(answer.structured["status"], "running");
    assert!(!answer.is_error);
    let command = answer.command.expect("the command it became");
    let before = stage.story();
    let glance = stage.glance(command).await;
    assert_eq!(glance["status"], "running");
    assert_eq!(glance["started_at"], answer.structured["started_at"]);
    assert_eq!(stage.story(), before, "looking leaves no entry");
}
