//! Ends that cannot be written: what their callers hear, what begins meanwhile, and what becomes of them.

use countersign_gateway::audit::RecordError;
use countersign_gateway::execution::How;
use countersign_gateway::policy::effective::Mode;
use serde_json::{Value, json};

use crate::stage::Stage;

fn full() -> RecordError {
    RecordError::Unavailable("the disk is full".into())
}

async fn run(stage: &Stage) -> Value {
    stage.call("execute_process", json!({"file": "true", "args": []})).await
}

/// The exit codes of all ends in the record.
fn ends(stage: &Stage) -> Vec<Value> {
    let closings = stage.closings().into_iter();
    closings.map(|(_, event)| event["exit_code"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_command_that_ran_is_not_said_to_be_worth_another_try_when_its_end_cannot_be_written() {
    let stage = Stage::new(Mode::Never).ending(&[(How::Exited(0), "done\n")]);
    stage.fail_closings(full());
    let answer = run(&stage).await;
    assert_eq!(
        (&answer["status"], &answer["error_code"], &answer["retryable"]),
        (&json!("failed"), &json!("AUDIT_UNAVAILABLE"), &json!(false))
    );
    let message = answer["error_message"].as_str().unwrap();
    assert!(
        message.contains("the command ran, but its end could not be recorded"),
        "{message}"
    );
    let next = "`command_status` with this `request_id` tells how it ended once the record can be written";
    assert!(message.contains(next), "{message}");
    assert_eq!((stage.runs(), ends(&stage).len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_while_an_end_waits_to_be_written() {
    let stage = Stage::new(Mode::Never);
    stage.fail_closings(full());
    run(&stage).await;
    for _ in 0..3 {
        let answer = run(&stage).await;
        assert_eq!(
            (&answer["status"], &answer["error_code"], &answer["retryable"]),
            (&json!("rejected"), &json!("AUDIT_UNAVAILABLE"), &json!(true))
        );
    }
    assert_eq!(stage.runs(), 1);
    stage.mend_commits();
    assert_eq!(run(&stage).await["status"], "ok");
    assert_eq!((stage.runs(), ends(&stage)), (2, vec![json!(0), json!(0)]));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_before_a_caller_lost_patience_does_not_begin_either() {
    let stage = Stage::new(Mode::Never);
    stage.fail_closings(full());
    let (first, second) = tokio::join!(run(&stage), async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        run(&stage).await
    });
    assert_eq!(
        (&first["status"], &second["status"]),
        (&json!("failed"), &json!("rejected"))
    );
    assert_eq!(stage.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_can_be_written_after_a_moment_is_told_as_it_is() {
    let stage = Stage::new(Mode::Never);
    stage.fail_closings(full());
    let (answer, ()) = tokio::join!(run(&stage), async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        stage.mend_commits();
    });
    assert_eq!((&answer["status"], ends(&stage)), (&json!("ok"), vec![json!(0)]));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_writes_the_ends_that_wait_first() {
    let stage = Stage::new(Mode::Never).ending(&[(How::Exited(7), "")]);
    stage.fail_closings(full());
    run(&stage).await;
    tokio::join!(stage.stop(), async {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        stage.mend_commits();
    });
    assert_eq!(ends(&stage), [json!(7)]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_does_not_wait_for_ever_for_a_record() {
    let stage = Stage::new(Mode::Never);
    stage.fail_closings(full());
    run(&stage).await;
    stage.stop().await;
    assert!(ends(&stage).is_empty());
}
