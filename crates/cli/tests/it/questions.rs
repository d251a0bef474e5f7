//! Questions that are about no act, answered over HTTP and on the terminal.

use std::sync::Arc;

use countersign_gateway::approval::Alone;
use countersign_gateway::approval::board::{Board, BoardParts};
use countersign_gateway::approval::question::Offer;
use countersign_gateway::approval::request::{ApprovalRequest, ApprovalType};
use countersign_gateway::audit::event::Actor;
use countersign_gateway::audit::redact::{Config, Redactor};
use countersign_gateway::audit::{Change, Record as _};
use countersign_gateway::clock::Clock;
use countersign_gateway::ids::{CredentialId, IdSource};
use countersign_store::{Durability, Options, SqliteStore};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::client::Server;
use crate::web::Web;

/// Asks through the board, as a tool that wants to know something does; gives the question's id.
fn ask(bench: &Bench) -> String {
    let options = Options::new(Durability::Process, Clock::system());
    let store = Arc::new(SqliteStore::open(&bench.state(), options).unwrap());
    let ids = IdSource::random();
    let board = Board::new(BoardParts {
        record: store.clone(),
        approvals: store.clone(),
        bell: Arc::new(Alone),
        approvers: Vec::new(),
        redactor: Redactor::new(Config::default()),
        clock: Clock::system(),
        ids: ids.clone(),
    });
    let mut question = ApprovalRequest::new(
        ids.approval(),
        ApprovalType::Question,
        ids.correlation(),
        CredentialId::trusted("local"),
        Clock::system().now(),
    );
    question.tool = "owner.feedback.request".to_owned();
    question.details = Offer::new("Which branch?", &["main", "next"].map(str::to_owned), true)
        .unwrap()
        .details();
    let opened = board.opening(question.clone(), &Actor::system("test"));
    let change = Change {
        events: opened.events,
        approvals: vec![opened.change],
        ..Change::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.commit(change)).unwrap();
    question.id.as_str().to_owned()
}

#[test]
fn whoever_asks_hears_what_is_missing_and_how_a_person_answers() {
    let bench = Bench::new().config("answer_within_ms: 300\n");
    let mut server = Server::start(&bench);
    let mut asked = |arguments: Value| {
        let id = server.call_later("owner.feedback.request", arguments);
        server.answer(id)["result"]["content"][0]["text"].to_string()
    };
    let question = "Which of the branches is it to be?";
    let told = asked(json!({"question": question}));
    assert!(
        told.contains("`options` is missing") && !told.contains("`[]`"),
        "{told}"
    );
    let told = asked(json!({"question": question, "options": ["main", "next"]}));
    assert!(told.contains("--option …`, one of `main`, `next`"), "{told}");
}

#[test]
fn a_question_is_answered_over_http_with_what_it_offers() {
    let bench = Bench::new();
    let made = bench
        .command()
        .args(["tokens", "create", "--role", "approver", "--name", "ana", "--json"])
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let bearer = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let id = ask(&bench);
    let web = Web::serve(&bench);
    let decide = |body: Value| web.rest(&format!("/api/v1/approvals/{id}/decision"), &bearer, &body);
    for wrong in [
        json!({"selected_option": "other"}),
        json!({"decision": "approve"}),
        json!({"selected_option": "main", "custom": "mine"}),
        json!({"decision": "deny", "selected_option": "main"}),
        json!({"custom": ""}),
        json!({}),
    ] {
        let (status, told) = decide(wrong.clone());
        assert_eq!(
            (status, &told["error"]["errorCode"]),
            (400, &json!("INVALID_ARGUMENTS")),
            "{wrong}: {told}"
        );
    }
    let (status, answered) = decide(json!({"decision": "approve", "selected_option": "next", "reason": "newer"}));
    assert_eq!(
        (
            status,
            &answered["selected_option"],
            &answered["selected_index"],
            &answered["decided_by"]
        ),
        (200, &json!("next"), &json!(1), &json!("ana")),
        "{answered}"
    );
    let (status, late) = decide(json!({"custom": "another"}));
    assert_eq!(
        (status, &late["selected_option"]),
        (200, &json!("next")),
        "the first answer stands"
    );
    web.stop();
    bench.prove();
}

#[test]
fn a_question_is_answered_on_the_terminal() {
    let bench = Bench::new();
    let id = ask(&bench);
    let run = |arguments: &[&str]| {
        let output = bench.command().args(arguments).env("USER", "ana").output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), said(&output.stdout), said(&output.stderr))
    };
    let shown = run(&["approvals", "show", &id]).1;
    for part in ["Which branch?", "main", "next", "--custom"] {
        assert!(shown.contains(part), "`{part}` is not in: {shown}");
    }
    let (code, _, told) = run(&["approve", &id]);
    assert_eq!(
        (code, told.as_str()),
        (
            Some(2),
            "countersign: this is a question; answer it by `--option` with one of main, next, or by `--custom` in words of \
             your own\n"
        )
    );
    let (code, _, told) = run(&["approve", &id, "--option", "other"]);
    assert_eq!((code, told.contains("was not offered")), (Some(2), true), "{told}");
    let (code, told, _) = run(&["approve", &id, "--custom", "neither", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["custom"]), (Some(0), &json!("neither")), "{told}");
    assert!(run(&["approvals", "show", &id]).1.contains("neither"));
}
