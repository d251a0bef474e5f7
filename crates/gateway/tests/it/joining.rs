//! Calls that meet the same question, or the same command, in another hand.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::policy::effective::Mode;
use serde_json::{Value, json};

use crate::policy::{allowing, ana};
use crate::stage::{Stage, outlook};
use crate::yes;

async fn call(stage: &Stage) -> Value {
    stage
        .call("execute_process", json!({"file": "true", "args": ["x"]}))
        .await
}

/// A stage with a question that waits, and that the next looks do not find.
async fn overlooking(looks: usize) -> Stage {
    let mut first = Stage::new(Mode::Untrusted);
    first.answer_within = Duration::from_millis(1);
    assert_eq!(call(&first).await["status"], "pending");
    first.overlook(looks);
    let mut second = first.beside();
    second.answer_within = Duration::from_secs(30);
    second
}

#[tokio::test]
async fn one_whose_question_another_asked_first_hears_when_the_policy_changed_meanwhile() {
    let stage = overlooking(1).await;
    let gateway = stage.gateway();
    let changing = async {
        let next = allowing(&stage.policy, "^true x$");
        gateway.adopt(next, outlook(), &ana()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(call(&stage), changing);
    let said = answer["error_message"].as_str().unwrap();
    assert_eq!(answer["error_code"], "CONFLICT", "{answer}");
    assert!(said.contains("the policy changed") && said.contains("again"), "{said}");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn a_question_that_was_settled_at_the_same_moment_is_a_conflict_and_no_trouble_with_the_record() {
    let stage = overlooking(2).await;
    let answer = call(&stage).await;
    assert_eq!(answer["error_code"], "CONFLICT", "{answer}");
    assert!(answer["audit_id"].is_string(), "{answer}");
}

#[tokio::test]
async fn a_server_stops_though_a_command_of_another_process_cannot_be_looked_at() {
    let one = Arc::new(Stage::new(Mode::Untrusted).holding_on());
    let two = Arc::new(one.beside());
    let calls: Vec<_> = [one.clone(), two.clone()]
        .into_iter()
        .map(|stage| tokio::spawn(async move { call(&stage).await }))
        .collect();
    let question = one.asked().await;
    one.fail_lookups();
    one.board().decide(&question.id, yes()).await.unwrap();
    while one.runs() == 0 || one.vain_looks() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let stopping = async {
        one.stop().await;
        two.stop().await;
    };
    tokio::time::timeout(Duration::from_secs(20), stopping)
        .await
        .expect("nobody waits for a record that is away");
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.unwrap()["error_code"].as_str().unwrap().to_owned());
    }
    codes.sort();
    assert_eq!(codes, ["AUDIT_UNAVAILABLE", "CANCELLED"]);
}
