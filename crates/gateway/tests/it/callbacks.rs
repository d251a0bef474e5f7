//! Answers that come back from outside: which question they mean, and that each counts at most once and
//! lets nothing go.

use std::time::Duration;

use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::board::{DecideError, Decided};
use countersign_gateway::approval::callback::{Callback, CallbackError, Meant, Route, Word};
use countersign_gateway::audit::RecordError;
use countersign_gateway::audit::event::{ApprovalState, Draft, EventType};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{ApprovalId, CorrelationId};
use countersign_gateway::policy::effective::Mode;
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::yes;

fn act(word: &str) -> Value {
    json!({"file": "true", "args": [word]})
}

/// A stage with one question that waits.
async fn asked(stage: &mut Stage) -> ApprovalId {
    stage.answer_within = Duration::from_millis(1);
    stage.call("execute_process", act("x")).await;
    stage.asked().await.id
}

fn about(id: &ApprovalId, word: &str) -> Callback {
    Callback {
        route: Route::Approver,
        meant: Meant::Question {
            id: id.clone(),
            correlation_id: None,
        },
        word: Word::parse(word).expect("a word"),
        reason: None,
        actor_id: None,
        tool: None,
        request_id: None,
        metadata: None,
        answer: None,
        result: None,
    }
}

fn callbacks(stage: &Stage) -> Vec<Draft> {
    let events = stage.events().into_iter();
    events
        .filter(|event| event.event_type == EventType::CallbackReceived)
        .collect()
}

#[tokio::test]
async fn either_vocabulary_decides() {
    for (word, state) in [
        ("approve", ApprovalState::Approved),
        ("approved", ApprovalState::Approved),
        ("deny", ApprovalState::Denied),
        ("denied", ApprovalState::Denied),
        ("error", ApprovalState::Denied),
        ("failed", ApprovalState::Denied),
        ("expired", ApprovalState::Denied),
    ] {
        let mut stage = Stage::new(Mode::Untrusted);
        let id = asked(&mut stage).await;
        let decided = stage.board().called_back(about(&id, word)).await.unwrap();
        assert!(matches!(decided, Decided::Now(_)), "{word}");
        assert_eq!(decided.approval().state(), state, "{word}");
        assert_eq!(decided.approval().decided_by.as_deref(), Some("mcp-callback"));
        assert_eq!((callbacks(&stage).len(), stage.runs()), (1, 0), "{word}");
    }
}

#[tokio::test]
async fn the_one_question_of_a_call_is_found_by_its_correlation() {
    let mut stage = Stage::new(Mode::Untrusted);
    let id = asked(&mut stage).await;
    let correlation = stage.approvals()[0].correlation_id.clone();
    let by_call = Callback {
        meant: Meant::Call(correlation.clone()),
        actor_id: Some("ana".into()),
        reason: Some("fine".into()),
        ..about(&id, "approve")
    };
    let decided = stage.board().called_back(by_call).await.unwrap();
    assert_eq!(decided.approval().id, id);
    let [event] = &callbacks(&stage)[..] else {
        panic!("one callback")
    };
    assert_eq!((&event.correlation_id, event.actor.id.as_str()), (&correlation, "ana"));
    let said: Value = serde_json::from_str(event.payload()).unwrap();
    assert_eq!(
        (&said["decision"], &said["reason"], &said["route"]),
        (&json!("approved"), &json!("fine"), &json!("approver"))
    );
}

#[tokio::test]
async fn a_call_that_asked_twice_is_not_guessed_at() {
    let mut stage = Stage::new(Mode::Untrusted);
    asked(&mut stage).await;
    let first = stage.approvals()[0].clone();
    // A second question of the same call, as a command that asks to run once more has.
    let mut second = countersign_gateway::approval::request::ApprovalRequest::new(
        ApprovalId::trusted("second"),
        first.kind,
        first.correlation_id.clone(),
        first.owner.clone(),
        first.created_at,
    );
    second.tool = first.tool.clone();
    stage.put(second.clone());
    let meant = Meant::Call(first.correlation_id.clone());
    let refused = stage
        .board()
        .called_back(Callback {
            meant,
            ..about(&first.id, "approve")
        })
        .await;
    assert!(matches!(refused, Err(CallbackError::Ambiguous(_))), "{refused:?}");
    // Settled or not: what is sent again about the first must not answer the second.
    stage.board().called_back(about(&first.id, "approve")).await.unwrap();
    let again = stage
        .board()
        .called_back(Callback {
            meant: Meant::Call(first.correlation_id.clone()),
            ..about(&first.id, "approve")
        })
        .await;
    assert!(matches!(again, Err(CallbackError::Ambiguous(_))), "{again:?}");
    let open = stage.approvals().into_iter().find(|it| it.id == second.id).unwrap();
    assert!(open.is_pending());
    assert_eq!(callbacks(&stage).len(), 3, "refused ones are recorded too");
}

#[tokio::test]
async fn a_repeated_or_late_callback_is_told_the_first_decision() {
    let mut stage = Stage::new(Mode::Untrusted);
    let id = asked(&mut stage).await;
    let board = stage.board();
    board.called_back(about(&id, "deny")).await.unwrap();
    for word in ["deny", "approve", "expired", "deny"] {
        let told = board.called_back(about(&id, word)).await.unwrap();
        assert!(matches!(told, Decided::Before(_)), "{word}");
        assert_eq!(told.approval().state(), ApprovalState::Denied, "{word}");
    }
    assert_eq!(callbacks(&stage).len(), 5, "every one is recorded");
    let denials = stage.events().into_iter();
    let denials = denials.filter(|event| event.event_type == EventType::ApprovalDenied);
    assert_eq!(denials.count(), 1);
}

#[tokio::test]
async fn nobody_outside_says_that_an_act_was_done() {
    let mut stage = Stage::new(Mode::Untrusted);
    let id = asked(&mut stage).await;
    for before in ["open", "approved"] {
        for route in [Route::Approver, Route::Executor] {
            let said = Callback {
                route,
                ..about(&id, "applied")
            };
            let refused = stage.board().called_back(said).await;
            assert_eq!(refused, Err(CallbackError::NotDelegated), "{before}");
        }
        stage.board().decide(&id, yes()).await.unwrap();
    }
    assert_eq!(stage.approvals()[0].state(), ApprovalState::Approved);
    assert_eq!((stage.runs(), callbacks(&stage).len()), (0, 4));
}

#[tokio::test]
async fn unknown_questions_and_wrong_names_decide_nothing_and_are_recorded() {
    let mut stage = Stage::new(Mode::Untrusted);
    let id = asked(&mut stage).await;
    let elsewhere = CorrelationId::trusted("elsewhere");
    let wrong = [
        about(&ApprovalId::trusted("nothing"), "approve"),
        // The beginning of an id is enough for a person at a terminal, not here.
        about(&ApprovalId::trusted(&id.as_str()[..8]), "approve"),
        Callback {
            meant: Meant::Call(elsewhere.clone()),
            ..about(&id, "approve")
        },
        Callback {
            meant: Meant::Question {
                id: id.clone(),
                correlation_id: Some(elsewhere),
            },
            ..about(&id, "approve")
        },
        Callback {
            tool: Some("execute_command".into()),
            ..about(&id, "approve")
        },
    ];
    for callback in &wrong {
        let refused = stage.board().called_back(callback.clone()).await;
        assert!(refused.is_err(), "{callback:?}");
    }
    assert!(stage.approvals()[0].is_pending());
    assert_eq!(callbacks(&stage).len(), wrong.len());
}

#[tokio::test]
async fn a_callback_that_cannot_be_recorded_decides_nothing() {
    let mut stage = Stage::new(Mode::Untrusted);
    let id = asked(&mut stage).await;
    stage.fail_commits(RecordError::Unavailable("the disk is full".into()));
    let refused = stage.board().called_back(about(&id, "approve")).await;
    assert!(
        matches!(refused, Err(CallbackError::Decide(DecideError::Record(_)))),
        "{refused:?}"
    );
    assert!(stage.approvals()[0].is_pending());
}

#[tokio::test]
async fn a_callback_at_the_moment_of_expiry_comes_too_late() {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.policy.approval.timeout = Some(Duration::from_millis(5));
    let id = asked(&mut stage).await;
    let at = |millis| {
        let mut later = stage.beside();
        later.clock = Clock::fixed(Timestamp::from_millis(millis));
        later.board()
    };
    let (before, then) = (at(4), at(5));
    let late = then.called_back(about(&id, "approve")).await.unwrap();
    assert_eq!(late.approval().state(), ApprovalState::Expired);
    // Also for one whose clock is behind.
    let behind = before.called_back(about(&id, "approve")).await.unwrap();
    assert_eq!(behind.approval().state(), ApprovalState::Expired);
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn all_who_hold_the_callback_token_are_one_voice() {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.policy.approval.quorum = 2;
    let id = asked(&mut stage).await;
    let board = stage.board();
    for actor in ["ana", "ben", "cleo"] {
        let said = Callback {
            actor_id: Some(actor.into()),
            ..about(&id, "approve")
        };
        let counted = board.called_back(said).await.unwrap();
        assert!(matches!(counted, Decided::Counted(_)), "{actor}");
    }
    let person = Ballot {
        choice: Choice::Allow,
        by: Decider::person("dana", OwnRequests::Refused),
        reason: String::new(),
        answer: None,
    };
    let decided = board.decide(&id, person).await.unwrap();
    assert_eq!(decided.approval().decided_by.as_deref(), Some("ana, dana"));
}
