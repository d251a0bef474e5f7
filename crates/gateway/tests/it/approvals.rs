//! Waiting for a person: what an answer is bound to, who may give it, and that an act runs once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::approval::ballot::{Ballot, Choice, Decider, OwnRequests};
use countersign_gateway::approval::board::{DecideError, Decided};
use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::approval::request::ApprovalRequest;
use countersign_gateway::audit::event::ApprovalState;
use countersign_gateway::error::ErrorCode;
use countersign_gateway::execution::How;
use countersign_gateway::policy::effective::Mode;
use countersign_gateway::service::{Cancel, Origin, Progress, Service as _, ToolCall};
use countersign_gateway::session::{Caller, Role, Transport};
use serde_json::{Value, json};

use crate::stage::{Stage, others_turn};
use crate::{no, yes};

fn act() -> Value {
    json!({"file": "true", "args": ["x"]})
}

/// A gateway that answers `pending` at once, and whose approver leaves the question to others.
fn impatient() -> Stage {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.answer_within = Duration::from_millis(1);
    stage
}

async fn call(stage: &Stage) -> Value {
    stage.call("execute_process", act()).await
}

async fn decide(stage: &Stage, ballot: Ballot) -> ApprovalRequest {
    let asked = stage.asked().await;
    let decided = stage.board().decide(&asked.id, ballot).await.unwrap();
    decided.approval().clone()
}

fn says(user: &str, choice: Choice) -> Ballot {
    Ballot {
        choice,
        by: Decider::person(user, OwnRequests::Refused),
        reason: "so it is".into(),
        answer: None,
    }
}

#[tokio::test]
async fn a_call_that_waits_too_long_answers_pending_and_the_same_call_runs_it_once() {
    let stage = impatient();
    let first = call(&stage).await;
    let asked = stage.asked().await;
    assert_eq!(
        (&first["status"], &first["error_code"], &first["finished_at"]),
        (&json!("pending"), &json!("APPROVAL_PENDING"), &Value::Null)
    );
    assert_eq!(first["approval_id"], asked.id.as_str());
    assert_eq!(
        call(&stage).await["approval_id"],
        asked.id.as_str(),
        "the same question"
    );
    let status = json!({"request_id": first["request_id"]});
    assert_eq!(stage.call("command_status", status.clone()).await["status"], "pending");

    decide(&stage, yes()).await;
    let told = stage.call("command_status", status.clone()).await;
    assert!(told["error_message"].as_str().unwrap().contains("repeat"), "{told}");
    assert_eq!(stage.runs(), 0, "nothing runs before somebody waits for it");
    let patient = patient(&stage);
    let done = call(&patient).await;
    assert_eq!(
        (&done["status"], &done["request_id"]),
        (&json!("ok"), &first["request_id"])
    );
    assert_eq!(stage.runs(), 1);
    assert_eq!(stage.approvals()[0].state(), ApprovalState::Applied);
    assert_eq!(patient.call("command_status", status).await, done);

    // An approval is used once.
    assert_eq!(call(&stage).await["status"], "pending");
    assert_eq!((stage.runs(), stage.approvals().len()), (1, 2));
}

#[tokio::test]
async fn a_question_that_only_the_table_calls_approved_lets_no_command_go() {
    let stage = impatient();
    let first = call(&stage).await;
    stage.forge(|asked| {
        let at = asked.created_at;
        asked.step(ApprovalStep::Approve, at).unwrap()
    });
    let refused = call(&patient(&stage)).await;
    assert_eq!(
        (&refused["status"], &refused["error_code"], &refused["request_id"]),
        (&json!("rejected"), &json!("APPROVAL_DENIED"), &first["request_id"])
    );
    let message = refused["error_message"].as_str().unwrap();
    assert!(message.contains("the record does not prove"), "{message}");
    assert_eq!(stage.runs(), 0);
    assert_eq!(stage.approvals()[0].state(), ApprovalState::Failed);
    assert_eq!(stage.closings().len(), 1, "and it is in the record");
}

#[tokio::test]
async fn a_yes_for_one_act_is_not_moved_to_another_in_the_table() {
    let stage = impatient();
    let other = stage
        .call("execute_process", json!({"file": "true", "args": ["other"]}))
        .await;
    decide(&stage, yes()).await;
    let harmless = stage.approvals()[0].clone();
    call(&stage).await;
    // The row of the first act says that it is about the second, whose own row is gone.
    stage.forge(|mut asked| {
        asked.id = harmless.id.clone();
        asked.version = harmless.version;
        asked.correlation_id = harmless.correlation_id.clone();
        asked.votes = harmless.votes.clone();
        asked.resolved_at = harmless.resolved_at;
        ApprovalRequest::restored(ApprovalState::Approved, asked)
    });
    let refused = call(&patient(&stage)).await;
    assert_eq!(refused["error_code"], "APPROVAL_DENIED", "{other} {refused}");
    assert_eq!(stage.runs(), 0);
}

/// The same store, with time to wait for an end.
fn patient(stage: &Stage) -> Stage {
    let mut other = stage.beside();
    other.answer_within = Duration::from_secs(30);
    other
}

#[tokio::test]
async fn a_denial_is_told_once_and_then_the_question_is_a_new_one() {
    let stage = impatient();
    let first = call(&stage).await;
    decide(&stage, no()).await;
    let denied = call(&patient(&stage)).await;
    assert_eq!(
        (&denied["status"], &denied["error_code"], &denied["request_id"]),
        (&json!("rejected"), &json!("APPROVAL_DENIED"), &first["request_id"])
    );
    assert!(denied["error_message"].as_str().unwrap().contains("not today"));
    assert_eq!(call(&stage).await["status"], "pending");
    assert_eq!((stage.runs(), stage.approvals().len()), (0, 2));
}

#[tokio::test]
async fn one_who_waits_gets_the_answer_when_it_comes() {
    for (ballot, status) in [(yes(), "ok"), (no(), "rejected")] {
        let stage = Arc::new(Stage::new(Mode::Untrusted));
        let waiting = tokio::spawn({
            let stage = stage.clone();
            async move { call(&stage).await }
        });
        let decided = decide(&stage, ballot).await;
        assert_eq!(waiting.await.unwrap()["status"], status);
        assert_eq!(decided.decided_by.as_deref(), Some("ana"));
    }
}

#[tokio::test]
async fn calls_at_the_same_moment_ask_one_question_and_run_once() {
    let stage = Arc::new(Stage::new(Mode::Untrusted));
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let stage = stage.clone();
            tokio::spawn(async move { call(&stage).await })
        })
        .collect();
    decide(&stage, yes()).await;
    let mut ids = std::collections::BTreeSet::new();
    for call in calls {
        let done = call.await.unwrap();
        assert_eq!(done["status"], "ok", "{done}");
        ids.insert(done["request_id"].to_string());
    }
    assert_eq!((stage.runs(), stage.approvals().len(), ids.len()), (1, 1, 1));
}

#[tokio::test]
async fn an_answer_counts_for_this_act_this_caller_and_this_policy_only() {
    let stage = impatient();
    call(&stage).await;
    decide(&stage, yes()).await;
    let pending = |answer: Value| {
        assert_eq!(answer["status"], "pending", "{answer}");
    };
    for other in [
        json!({"file": "true", "args": ["y"]}),
        json!({"file": "true", "args": ["x", ""]}),
        json!({"file": "true", "args": ["x"], "env": {"A": "b"}}),
        json!({"file": "true", "args": ["x"], "input": "z"}),
        json!({"file": "true", "args": ["x"], "timeout_ms": 1_000}),
        json!({"file": "true", "args": ["x"], "cwd": "src"}),
    ] {
        pending(stage.call("execute_process", other).await);
    }
    pending(
        stage
            .call(
                "run_command",
                json!({"command": "true", "args": ["x"], "working_directory": "."}),
            )
            .await,
    );
    let stranger = Caller {
        credential: countersign_gateway::ids::CredentialId::trusted("tok_other"),
        ..Caller::anonymous_agent(Transport::Stdio)
    };
    let strangers = stage
        .call_as(stranger, Origin::default(), "execute_process", act())
        .await;
    pending(strangers.unwrap());
    let mut stricter = stage.beside();
    stricter.policy.command.timeout_max = Duration::from_secs(9);
    pending(call(&stricter).await);
    assert_eq!(stage.runs(), 0);
    assert_eq!(call(&patient(&stage)).await["status"], "ok");
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn another_process_on_the_same_store_goes_on_with_it() {
    let stage = impatient();
    let first = call(&stage).await;
    stage.stop().await;
    let other = patient(&stage);
    decide(&other, yes()).await;
    let done = call(&other).await;
    assert_eq!(
        (&done["status"], &done["request_id"]),
        (&json!("ok"), &first["request_id"])
    );
    let closings = stage.events();
    let closings = closings
        .iter()
        .filter(|event| event.event_type.as_str() == "command.completed");
    assert_eq!((stage.runs(), closings.count()), (1, 1));
}

#[tokio::test]
async fn two_processes_that_both_see_the_answer_run_it_once() {
    for _ in 0..20 {
        let one = Arc::new(patient(&Stage::new(Mode::Untrusted)));
        let two = Arc::new(one.beside());
        let calls: Vec<_> = [one.clone(), two]
            .into_iter()
            .map(|stage| tokio::spawn(async move { call(&stage).await }))
            .collect();
        decide(&one, yes()).await;
        for call in calls {
            assert_eq!(call.await.unwrap()["status"], "ok");
        }
        assert_eq!(one.runs(), 1);
    }
}

#[tokio::test]
async fn stopping_the_server_leaves_the_question_and_cancelling_withdraws_it() {
    let stage = Arc::new(Stage::new(Mode::Untrusted));
    let waiting = tokio::spawn({
        let stage = stage.clone();
        async move { call(&stage).await }
    });
    let asked = stage.asked().await;
    stage.stop().await;
    assert_eq!(waiting.await.unwrap()["status"], "pending");
    assert!(stage.approvals()[0].is_pending());

    let other = stage.beside();
    let request = asked.command.unwrap().request_id;
    let cancelled = other
        .call("command_cancel", json!({"request_id": request.as_str()}))
        .await;
    assert_eq!(
        (&cancelled["status"], &cancelled["error_code"]),
        (&json!("failed"), &json!("CANCELLED"))
    );
    assert_eq!(stage.approvals()[0].state(), ApprovalState::Withdrawn);
    let status = other
        .call("command_status", json!({"request_id": request.as_str()}))
        .await;
    assert_eq!(status, cancelled);
}

#[tokio::test]
async fn a_command_that_is_watched_begins_as_soon_as_somebody_says_yes() {
    let stage = Stage::new(Mode::Untrusted);
    let told = stage
        .call_within("execute_process", act(), Duration::from_millis(1))
        .await;
    assert_eq!(told.structured["status"], "pending");
    let command = told.command.unwrap();
    assert_eq!(stage.glance(command.clone()).await["status"], "pending");
    decide(&stage, yes()).await;
    let done = loop {
        let seen = stage.glance(command.clone()).await;
        if seen["status"] == "ok" {
            break seen;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!((done["request_id"].as_str(), stage.runs()), (Some(command.as_str()), 1));
}

#[tokio::test]
async fn a_call_that_its_transport_drops_leaves_its_question_and_its_place() {
    let stage = Arc::new(Stage::new(Mode::Untrusted));
    let waiting = tokio::spawn({
        let stage = stage.clone();
        async move { call(&stage).await }
    });
    let asked = stage.asked().await;
    let request = asked.command.unwrap().request_id;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    others_turn().await;
    decide(&stage, yes()).await;
    let told = stage.glance(request.clone()).await;
    assert!(told["error_message"].as_str().unwrap().contains("to run it"), "{told}");
    assert_eq!(stage.runs(), 0, "nothing runs before somebody waits for it");
    assert_eq!(call(&stage).await["request_id"], request.as_str());
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_cancelled_call_withdraws_its_question() {
    let stage = Stage::new(Mode::Untrusted);
    let (handle, cancel) = Cancel::new();
    let arguments = act().as_object().unwrap().clone();
    let waiting = stage.gateway().call(
        Caller::anonymous_agent(Transport::Stdio),
        ToolCall {
            answer_within: None,
            user: None,
            tool: "execute_process".into(),
            arguments,
            progress: None,
            cancel,
            origin: Origin::default(),
        },
    );
    let waiting = tokio::spawn(waiting);
    stage.asked().await;
    handle.cancel();
    let answer = waiting.await.unwrap().unwrap().structured;
    assert_eq!(answer["error_code"], "CANCELLED");
    assert_eq!(stage.approvals()[0].state(), ApprovalState::Withdrawn);
    let late = stage.board().decide(&stage.approvals()[0].id, yes()).await.unwrap();
    assert!(matches!(late, Decided::Before(_)), "{late:?}");
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn the_first_decision_wins_and_a_later_one_is_told_what_it_was() {
    let stage = Stage::new(Mode::Untrusted);
    let waiting = impatient_call(&stage).await;
    let id = waiting;
    let board = stage.board();
    let races: Vec<_> = (0..100)
        .map(|number| {
            let (board, id) = (board.clone(), id.clone());
            let choice = if number % 2 == 0 { Choice::Allow } else { Choice::Deny };
            tokio::spawn(async move { board.decide(&id, says(&format!("p{number}"), choice)).await.unwrap() })
        })
        .collect();
    let (mut first, mut told) = (0, Vec::new());
    for race in races {
        let decided = race.await.unwrap();
        first += usize::from(matches!(decided, Decided::Now(_)));
        told.push(decided.approval().decided_by.clone());
    }
    told.dedup();
    assert_eq!((first, told.len()), (1, 1), "{told:?}");
}

/// Asks and gives up at once; the question stays.
async fn impatient_call(stage: &Stage) -> countersign_gateway::ids::ApprovalId {
    let mut impatient = stage.beside();
    impatient.answer_within = Duration::from_millis(1);
    call(&impatient).await;
    stage.asked().await.id
}

#[tokio::test]
async fn a_client_decides_what_was_asked_through_it_and_nothing_else() {
    let stage = Stage::new(Mode::Untrusted);
    let id = impatient_call(&stage).await;
    let anothers = Caller {
        credential: countersign_gateway::ids::CredentialId::trusted("other"),
        ..Caller::anonymous_agent(Transport::Stdio)
    };
    let by = |caller: &Caller| Ballot {
        by: Decider::client(caller),
        ..yes()
    };
    let refused = stage.board().decide(&id, by(&anothers)).await;
    assert_eq!(refused, Err(DecideError::AnothersRequest));
    let own = Caller::anonymous_agent(Transport::Stdio);
    let decided = stage.board().decide(&id, by(&own)).await.unwrap();
    assert_eq!(decided.approval().decided_by.as_deref(), Some("client:local"));
}

#[tokio::test]
async fn nobody_decides_their_own_request_and_agents_decide_nothing() {
    let stage = Stage::new(Mode::Untrusted);
    let id = impatient_call(&stage).await;
    let own = Decider {
        credential: Caller::anonymous_agent(Transport::Stdio).credential,
        ..Decider::person("local", OwnRequests::Refused)
    };
    let ballot = Ballot { by: own, ..yes() };
    assert_eq!(stage.board().decide(&id, ballot).await, Err(DecideError::OwnRequest));
    for role in Role::ALL {
        let caller = Caller {
            role,
            ..Caller::person("ana")
        };
        let decider = Decider::of(&caller);
        assert_eq!(
            decider.is_ok(),
            matches!(role, Role::Operator | Role::Approver),
            "{role:?}"
        );
        if let Err(refusal) = decider {
            assert_eq!(refusal.code, ErrorCode::Forbidden);
        }
    }
    assert!(stage.approvals()[0].is_pending());
}

#[tokio::test]
async fn silence_is_a_no_when_its_time_is_over_whoever_notices() {
    let mut stage = impatient();
    stage.policy.approval.timeout = Some(Duration::from_secs(60));
    call(&stage).await;
    let id = stage.asked().await.id;
    stage.clock.advance(Duration::from_secs(59));
    stage.board().expire_due().await.unwrap();
    assert!(stage.approvals()[0].is_pending());
    stage.clock.advance(Duration::from_secs(1));
    let late = stage.board().decide(&id, yes()).await.unwrap();
    assert_eq!(
        late.approval().state(),
        ApprovalState::Expired,
        "a yes that is too late is none"
    );
    let answer = call(&patient(&stage)).await;
    assert_eq!(
        (&answer["status"], &answer["error_code"]),
        (&json!("rejected"), &json!("APPROVAL_EXPIRED"))
    );
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn an_approval_that_nobody_used_for_a_day_no_longer_counts() {
    let stage = impatient();
    call(&stage).await;
    decide(&stage, yes()).await;
    stage.clock.advance(Duration::from_secs(24 * 3_600));
    assert_eq!(call(&stage).await["status"], "pending");
    assert_eq!(stage.approvals()[0].state(), ApprovalState::Failed);
    assert_eq!(stage.runs(), 0);
}

#[tokio::test]
async fn two_hours_of_thinking_leave_the_commands_own_time_untouched() {
    let stage = impatient();
    let first = call(&stage).await;
    stage.clock.advance(Duration::from_secs(2 * 3_600));
    let decided = decide(&stage, yes()).await;
    assert_eq!((decided.waiting_ms(), decided.remaining_ms), (Some(7_200_000), 5_000));
    let done = call(&patient(&stage)).await;
    assert_eq!(
        (&done["status"], &done["request_id"]),
        (&json!("ok"), &first["request_id"])
    );
    let events = stage.events();
    let payload = |kind: &str| -> Value {
        let event = events.iter().find(|event| event.event_type.as_str() == kind).unwrap();
        serde_json::from_str(event.payload()).unwrap()
    };
    assert_eq!(payload("run.wait.paused")["remaining_ms"], 5_000);
    assert_eq!(payload("run.wait.resumed")["remaining_ms"], 5_000);
    assert_eq!(payload("run.wait.resumed")["waited_ms"], 7_200_000);
    assert_eq!(payload("command.dispatched")["timeout_ms"], 5_000);
}

#[tokio::test]
async fn several_people_must_agree_where_policy_says_so() {
    let mut stage = impatient();
    stage.policy.approval.quorum = 2;
    call(&stage).await;
    let id = stage.asked().await.id;
    let board = stage.board();
    for _ in 0..2 {
        let one = board.decide(&id, says("ana", Choice::Allow)).await.unwrap();
        assert!(matches!(one, Decided::Counted(_)), "one person is one voice: {one:?}");
    }
    assert_eq!(call(&stage).await["status"], "pending");
    let two = board.decide(&id, says("ben", Choice::Allow)).await.unwrap();
    assert!(matches!(two, Decided::Now(_)), "{two:?}");
    assert_eq!(call(&patient(&stage)).await["status"], "ok");
}

#[tokio::test]
async fn programs_and_places_are_shown_whatever_the_call_calls_a_secret() {
    let stage = impatient();
    let cwd = stage.policy.places.workspace_root.clone().unwrap();
    let cwd = cwd.to_str().unwrap();
    let env = json!({"API_KEY": "/bin/true", "TOKEN": cwd});
    stage
        .call("execute_process", json!({"file": "true", "args": ["a b"], "env": env}))
        .await;
    let details = Value::Object(stage.asked().await.details.clone());
    assert_eq!(details["programs"], json!(["/bin/true"]));
    assert_eq!(details["cwd"], json!(cwd));
}

#[tokio::test]
async fn what_is_asked_shows_what_will_run_and_the_events_say_who_decided() {
    let stage = impatient();
    let arguments =
        json!({"file": "true", "args": ["a b"], "justification": "because", "env": {"A": "1", "API_KEY": "hush"}});
    stage.call("execute_process", arguments).await;
    let asked = stage.asked().await;
    let details = Value::Object(asked.details.clone());
    assert_eq!(details["command"], "true 'a b'");
    assert_eq!(details["programs"], json!(["/bin/true"]));
    assert_eq!(
        (&details["rule"], &details["source"], &details["justification"]),
        (&json!("mode untrusted"), &json!("test"), &json!("because"))
    );
    assert_eq!(details["env"]["A"], "1");
    assert!(!details.to_string().contains("hush"), "{details}");
    assert!(details["cwd"].is_string() && details["risks"].is_array());
    decide(&stage, yes()).await;
    let events = stage.events();
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| {
            Some((
                event.event_type.as_str(),
                event.approval_state?.as_str(),
                event.actor.id.as_str(),
            ))
        })
        .collect();
    assert_eq!(
        told,
        [
            ("approval.requested", "pending", "local"),
            ("run.wait.paused", "pending", "timer"),
            ("approval.approved", "approved", "ana"),
            ("run.wait.resumed", "approved", "timer"),
        ]
    );
}

#[tokio::test]
async fn a_second_run_that_is_asked_about_is_joined_by_the_same_call() {
    let mut stage =
        Stage::new(Mode::OnFailure).ending(&[(How::Exited(1), "x: Permission denied\n"), (How::Exited(0), "done\n")]);
    stage.answer_within = Duration::from_millis(300);
    let first = call(&stage).await;
    assert_eq!(first["status"], "pending", "{first}");
    decide(&stage, yes()).await;
    let done = call(&stage).await;
    assert_eq!(
        (&done["stdout"], &done["request_id"]),
        (&json!("done\n"), &first["request_id"])
    );
    assert_eq!(stage.runs(), 2);
}

struct Told(Mutex<Vec<String>>);

impl Progress for Told {
    fn report(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

#[tokio::test]
async fn one_who_is_streamed_to_hears_of_the_question_and_is_answered_at_the_limit_too() {
    let mut stage = Stage::new(Mode::Untrusted);
    stage.answer_within = Duration::from_millis(50);
    let told = Arc::new(Told(Mutex::default()));
    let call = ToolCall {
        answer_within: None,
        user: None,
        tool: "execute_process".into(),
        arguments: act().as_object().unwrap().clone(),
        progress: Some(told.clone()),
        cancel: Cancel::never(),
        origin: Origin::default(),
    };
    let caller = Caller::anonymous_agent(Transport::Stdio);
    let answer = stage.gateway().call(caller, call).await.unwrap().structured;
    assert_eq!(answer["status"], "pending");
    let id = stage.asked().await.id;
    let heard = told.0.lock().unwrap().clone();
    assert!(heard.contains(&format!("waiting for approval {id}")), "{heard:?}");
}

struct Fed;

impl Progress for Fed {
    fn report(&self, _message: &str) {}

    fn feeds(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn an_answer_for_what_is_read_from_somewhere_counts_once_and_for_nothing_else() {
    let stage = impatient();
    let fed = async || {
        let call = ToolCall {
            answer_within: None,
            user: None,
            tool: "execute_process".into(),
            arguments: act().as_object().unwrap().clone(),
            progress: Some(Arc::new(Fed)),
            cancel: Cancel::never(),
            origin: Origin::default(),
        };
        let caller = Caller::anonymous_agent(Transport::Stdio);
        stage.gateway().call(caller, call).await.unwrap().structured
    };
    assert_eq!(fed().await["status"], "pending");
    let details = stage.asked().await.details;
    assert_eq!(details["input_streamed"], true);
    let risks = details["risks"].to_string();
    assert!(risks.contains("reads what is piped into it while it runs"), "{risks}");
    decide(&stage, yes()).await;
    for answer in [fed().await, call(&stage).await] {
        assert_eq!(answer["status"], "pending", "{answer}");
    }
    assert_eq!(stage.approvals().len(), 3);
}

#[tokio::test]
async fn an_agent_cannot_fill_the_board() {
    use countersign_gateway::limits::QUESTIONS_OPEN_MAX;
    let stage = impatient();
    for number in 0..QUESTIONS_OPEN_MAX {
        let answer = stage
            .call("execute_process", json!({"file": "true", "args": [number.to_string()]}))
            .await;
        assert_eq!(answer["status"], "pending", "{answer}");
    }
    let full = call(&stage).await;
    assert_eq!(
        (&full["error_code"], &full["retryable"]),
        (&json!("QUEUE_FULL"), &json!(true))
    );
    let again = stage
        .call("execute_process", json!({"file": "true", "args": ["0"]}))
        .await;
    assert_eq!(again["status"], "pending", "what was asked is joined");
    decide(&stage, no()).await;
    assert_eq!(call(&stage).await["status"], "pending");
}

#[tokio::test]
async fn every_call_that_joins_leaves_its_own_trace() {
    let stage = Arc::new(Stage::new(Mode::Untrusted));
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let stage = stage.clone();
            tokio::spawn(async move { call(&stage).await })
        })
        .collect();
    decide(&stage, yes()).await;
    for call in calls {
        call.await.unwrap();
    }
    let events = stage.events();
    let count = |kind: &str| events.iter().filter(|event| event.event_type.as_str() == kind).count();
    assert_eq!((count("command.completed"), count("tool.called")), (1, 2));
}

#[tokio::test]
async fn the_beginning_of_an_id_is_enough_where_it_names_one() {
    let stage = impatient();
    call(&stage).await;
    let board = stage.board();
    let id = stage.asked().await.id;
    assert_eq!(board.named(&id.as_str()[..36]).await.unwrap().id, id);
    assert_eq!(board.named("0000").await.unwrap().id, id);
    for nothing in ["", "zz", "%", "0000_"] {
        assert!(board.named(nothing).await.is_err(), "{nothing}");
    }
    stage
        .call("execute_process", json!({"file": "true", "args": ["y"]}))
        .await;
    let several = board.named("0000").await.unwrap_err().to_string();
    assert!(
        several.contains("several approvals") && several.contains(id.as_str()),
        "{several}"
    );
}
