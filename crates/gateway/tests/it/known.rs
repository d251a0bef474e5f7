//! What calls and questions are known again by: nobody else can find out from it what they were.

use std::time::Duration;

use countersign_gateway::policy::effective::Mode;
use countersign_gateway::tools::exec::request::{self, CommandTool};
use serde_json::{Value, json};

use crate::acts::equipped;
use crate::stage::Stage;

/// All digests that a call with a secret leaves behind under a key.
async fn left_behind(key: [u8; 32]) -> Vec<String> {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.digest_key = key;
    stage.answer_within = Duration::from_millis(1);
    let arguments = json!({"file": "true", "args": ["--password", "7391"], "env": {"PIN": "1234"}});
    stage.call("execute_process", arguments).await;
    let command = stage.asked().await;
    let told = stage.payload("approval.requested")["arguments_digest"].clone();
    assert_eq!(told, Value::from(command.arguments_digest.as_str()));
    let mut left = stage.known_by();
    left.extend([command.arguments_digest, command.binding]);
    left
}

#[tokio::test]
async fn hidden_arguments_cannot_be_tried_out_against_a_digest() {
    let ours = left_behind([7; 32]).await;
    assert_eq!(ours.len(), 3);
    assert_eq!(
        ours,
        left_behind([7; 32]).await,
        "with the key the same call is known again"
    );
    // Whoever reads the record and has a server of their own has another key.
    for (ours, theirs) in ours.iter().zip(left_behind([8; 32]).await) {
        assert_ne!(*ours, theirs);
    }
}

#[tokio::test]
async fn hidden_arguments_of_an_act_cannot_be_tried_out_either() {
    let mut left = Vec::new();
    for key in [[7; 32], [7; 32], [8; 32]] {
        let mut stage = Stage::new(Mode::Untrusted);
        (stage.digest_key, stage.answer_within) = (key, Duration::from_millis(1));
        equipped(&stage);
        stage.call("secret.sync.github_k8s", json!({"label": "x"})).await;
        let question = stage.asked().await;
        left.push((question.arguments_digest, question.binding));
    }
    assert_eq!(left[0], left[1]);
    assert!(left[0].0 != left[2].0 && left[0].1 != left[2].1);
}

#[tokio::test]
async fn a_command_that_an_earlier_version_wrote_is_known_again() {
    let stage = Stage::new(Mode::Never);
    let call = json!({"file": "true", "args": [], "request_id": "mine"});
    let first = stage.call("execute_process", call.clone()).await;
    let read = request::read(CommandTool::ExecuteProcess, call.as_object().unwrap()).unwrap();
    stage.rewrite_known_by(&read.digest);
    // It is not in memory there.
    let later = stage.beside();
    assert_eq!(later.call("execute_process", call).await, first);
    let other = json!({"file": "true", "args": ["x"], "request_id": "mine"});
    assert_eq!(later.call("execute_process", other).await["error_code"], "CONFLICT");
    assert_eq!(stage.runs(), 1);
}
