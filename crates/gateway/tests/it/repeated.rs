//! A request that comes again is answered with what its act came to, and acts once.

use countersign_gateway::ids::SessionId;
use countersign_gateway::policy::effective::Mode;
use countersign_gateway::service::{Answer, Origin};
use countersign_gateway::session::{Caller, Transport};
use serde_json::{Value, json};

use crate::acts::{done, equipped};
use crate::stage::Stage;
use crate::yes;

/// A request of a session, by the client's id and its content.
fn request(id: u8, content: u8) -> Origin {
    Origin {
        session: Some(SessionId::trusted("session-of-a-client")),
        rpc_id: Some(id.to_string()),
        remembered: Some([content; 32]),
        reuses_ids: false,
    }
}

async fn call(stage: &Stage, origin: Origin, tool: &str, label: &str) -> Answer {
    let caller = Caller::anonymous_agent(Transport::StreamableHttp);
    let answer = stage.answer_to(caller, origin, tool, json!({"label": label})).await;
    answer.unwrap()
}

fn said(answer: &Answer) -> (&Value, &str, bool) {
    (&answer.structured, &answer.text, answer.is_error)
}

#[tokio::test]
async fn an_act_repeated_after_its_end_is_answered_as_before_and_not_done_again() {
    for (tool, label) in [
        ("github_labels_add", "x"),
        ("github_labels_add", "broken"),
        ("github_labels_add", "half"),
        ("secret.sync.github_k8s", "y"),
    ] {
        let stage = Stage::new(Mode::Untrusted).answering(yes());
        let list = equipped(&stage);
        let first = call(&stage, request(1, 1), tool, label).await;
        let again = call(&stage, request(1, 1), tool, label).await;
        assert_eq!(said(&again), said(&first));
        assert_eq!((first.is_repeat, again.is_repeat), (false, true), "{label}");
        assert_eq!(done(&list).len(), 1, "{label}");
        assert!(stage.approvals().len() <= 1, "nobody is asked twice");
        let calls = stage
            .events()
            .into_iter()
            .filter(|event| event.event_type.as_str() == "tool.called");
        assert_eq!(calls.count(), 2, "each call leaves an invocation");
    }
}

#[tokio::test]
async fn another_request_acts_again() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    let add = |origin| call(&stage, origin, "github_labels_add", "x");
    for origin in [request(1, 1), request(2, 1), request(1, 2)] {
        assert!(!add(origin).await.is_repeat);
    }
    // A client that uses an id for several requests may mean another one by the same words.
    let reuses = Origin {
        reuses_ids: true,
        ..request(1, 1)
    };
    assert!(!add(reuses).await.is_repeat);
    // Without a session there is nothing to know a request by.
    assert!(!add(Origin::default()).await.is_repeat);
    assert_eq!(done(&list).len(), 5);
}

#[tokio::test]
async fn looking_again_looks_again() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    for _ in 0..2 {
        assert!(!call(&stage, request(1, 1), "github_labels_list", "x").await.is_repeat);
    }
    assert_eq!(done(&list).len(), 2);
}

#[tokio::test]
async fn of_two_that_come_at_once_one_acts_and_both_hear_of_it() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    let slow = || call(&stage, request(1, 1), "github_labels_add", "slow");
    let (one, other) = tokio::join!(slow(), slow());
    assert_eq!(said(&one), said(&other));
    assert!(one.is_repeat != other.is_repeat);
    assert_eq!(done(&list).len(), 1);
}

#[tokio::test]
async fn what_was_refused_before_anything_was_done_may_be_tried_again() {
    let stage = Stage::new(Mode::Untrusted);
    let list = equipped(&stage);
    let missing = || {
        let caller = Caller::anonymous_agent(Transport::StreamableHttp);
        stage.answer_to(caller, request(1, 1), "github_labels_add", json!({}))
    };
    for _ in 0..2 {
        let answer = missing().await.unwrap();
        assert_eq!(
            (&answer.structured["error_code"], answer.is_repeat),
            (&json!("INVALID_ARGUMENTS"), false)
        );
    }
    assert_eq!(done(&list).len(), 0);
}
