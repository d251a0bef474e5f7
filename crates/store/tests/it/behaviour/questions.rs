//! Questions with options, from the board into the database and back.

use std::sync::Arc;

use countersign_gateway::approval::Approvals as _;
use countersign_gateway::approval::ballot::{Ballot, Choice};
use countersign_gateway::approval::board::{Board, DecideError, Decided};
use countersign_gateway::approval::question::{AnswerError, Answered, Given, Offer};
use countersign_gateway::approval::request::{ApprovalRequest, ApprovalType};
use countersign_gateway::audit::Change;
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::{ApprovalId, CorrelationId};
use countersign_store::Store;
use serde_json::json;

use super::super::bench::{Bench, agent, block_on, commit, noon, owner, verify};
use super::approvals::{board, says};

/// Asks through the board, as a tool that wants to know something does.
fn ask(board: &Board, store: &Store, allow_custom: bool) -> ApprovalRequest {
    let options = ["main", "next"].map(str::to_owned);
    let offer = Offer::new("Which branch?", &options, allow_custom).unwrap();
    let mut question = ApprovalRequest::new(
        ApprovalId::trusted("q"),
        ApprovalType::Question,
        CorrelationId::trusted("call"),
        owner(),
        noon(),
    );
    question.tool = "owner.feedback.request".to_owned();
    question.details = offer.details();
    let opened = board.opening(question.clone(), &agent());
    let change = Change {
        events: opened.events,
        approvals: vec![opened.change],
        ..Change::default()
    };
    commit(store, change).unwrap();
    question
}

fn answers(given: Given) -> Ballot {
    Ballot {
        answer: Some(given),
        ..says("ana", Choice::Allow)
    }
}

#[test]
fn a_question_is_answered_with_what_it_offers_and_the_first_answer_stands() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let board = board(&store, Clock::fixed(noon()));
    let question = ask(&board, &store, false);
    for (ballot, error) in [
        (
            answers(Given::Option("other".to_owned())),
            "`other` was not offered; choose one of main, next",
        ),
        (
            answers(Given::Custom("mine".to_owned())),
            "this question takes no answer but its options, main, next",
        ),
        (
            says("ana", Choice::Allow),
            "this is a question: answer it with one of its options, main, next",
        ),
    ] {
        let refused = block_on(board.decide(&question.id, ballot)).unwrap_err();
        assert_eq!(refused.to_string(), error);
        assert!(block_on(store.find(&question.id)).unwrap().unwrap().is_pending());
    }
    let decided = block_on(board.decide(&question.id, answers(Given::Option("next".to_owned())))).unwrap();
    let shown = decided.approval().to_json();
    assert_eq!(
        (&shown["selected_option"], &shown["selected_index"], &shown["type"]),
        (&json!("next"), &json!(1), &json!("question"))
    );
    let late = block_on(board.decide(&question.id, answers(Given::Option("main".to_owned())))).unwrap();
    assert!(matches!(&late, Decided::Before(first) if first == decided.approval()));
    let kept = block_on(store.find(&question.id)).unwrap().unwrap();
    let next = Answered::Option {
        index: 1,
        text: "next".to_owned(),
    };
    assert_eq!(kept.answer(), Some(&next));
    assert_eq!(kept.to_json(), shown);
    verify(&store).unwrap();
}

#[test]
fn words_of_ones_own_count_where_they_are_allowed_and_a_no_has_none() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let board = board(&store, Clock::fixed(noon()));
    let question = ask(&board, &store, true);
    let denied_with_one = Ballot {
        choice: Choice::Deny,
        ..answers(Given::Custom("a third".to_owned()))
    };
    let refused = block_on(board.decide(&question.id, denied_with_one));
    assert_eq!(refused, Err(DecideError::Answer(AnswerError::Denied)));
    let decided = block_on(board.decide(&question.id, answers(Given::Custom("a third".to_owned())))).unwrap();
    let shown = decided.approval().to_json();
    assert_eq!(
        (&shown["custom"], shown.get("selected_option")),
        (&json!("a third"), None)
    );
}
