//! Acts that are no commands: one approval lets one go, and what a crash left open is ended.

use countersign_gateway::approval::Approvals as _;
use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::approval::request::{ApprovalChange, ApprovalRequest, ApprovalType};
use countersign_gateway::audit::act::{ActChange, EXECUTOR, Ending, OpenAct, UsedApproval};
use countersign_gateway::audit::event::{Actor, ApprovalState, Draft, EventType};
use countersign_gateway::audit::outcome::{AskedAct, KeptOutcome, StoredAct};
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::{Asked, Change, Record as _, RecordError, SessionChange};
use countersign_gateway::error::ErrorCode;
use countersign_gateway::ids::{ApprovalId, CorrelationId, CredentialId, RequestId, SessionId};
use countersign_gateway::session::lifetime::{KeptRequest, Session};
use countersign_gateway::session::{Caller, Transport};
use countersign_store::Store;
use serde_json::{Value, json};

use super::super::bench::{Bench, agent, block_on, commit, later, noon, owner, verify};

/// A question that was answered with yes.
fn approved(bench: &Bench, store: &Store) -> ApprovalRequest {
    let mut asked = ApprovalRequest::new(
        ApprovalId::trusted("yes"),
        ApprovalType::ToolCall,
        CorrelationId::trusted("call"),
        owner(),
        noon(),
    );
    asked.binding = "binding".to_owned();
    let put = |approval: &ApprovalRequest, from| Change {
        events: vec![bench.draft(&json!({}))],
        approvals: vec![ApprovalChange {
            approval: approval.clone(),
            from,
        }],
        ..Change::default()
    };
    commit(store, put(&asked, None)).unwrap();
    let given = asked.clone().step(ApprovalStep::Approve, noon()).unwrap();
    commit(store, put(&given, Some(asked.version))).unwrap();
    given
}

fn opening(bench: &Bench, approval: Option<&ApprovalRequest>, systems: &[&str]) -> (OpenAct, Change) {
    let act = OpenAct {
        id: bench.ids.event(),
        correlation_id: CorrelationId::trusted("call"),
        actor: agent(),
        tool: "secret.sync.github_k8s".to_owned(),
        action: None,
        approval: approval.map(|approval| UsedApproval {
            id: approval.id.clone(),
            version: approval.version,
        }),
        run_id: Some("run-1".to_owned()),
        systems: systems.iter().map(|system| (*system).to_owned()).collect(),
        opened_at: noon(),
        asked: None,
    };
    let (id, correlation) = (act.id.clone(), act.correlation_id.clone());
    let approval_id = act.approval.as_ref().map(|used| used.id.as_str());
    let said = json!({
        "tool": act.tool, "approval_id": approval_id, "run_id": act.run_id, "systems": act.systems,
    });
    let event = Draft::new(id, noon(), correlation, agent(), EventType::ActRequested, &said);
    let change = Change {
        events: vec![event],
        act: Some(ActChange::Open(act.clone())),
        ..Change::default()
    };
    (act, change)
}

/// An act that a request of a session asks for.
fn asked(bench: &Bench, request: &str) -> (OpenAct, Change) {
    asked_upon(bench, request, &[])
}

fn asked_upon(bench: &Bench, request: &str, systems: &[&str]) -> (OpenAct, Change) {
    let (mut act, mut change) = opening(bench, None, systems);
    act.asked = Some(Box::new(AskedAct {
        owner: owner(),
        request_id: RequestId::trusted(request),
        asked: Some(Asked {
            session: SessionId::trusted("session-of-a-client"),
            rpc_id: "7".to_owned(),
            digest: [7; 32],
        }),
    }));
    change.act = Some(ActChange::Open(act.clone()));
    (act, change)
}

fn close(bench: &Bench, act: &OpenAct, kept: Option<KeptOutcome>) -> Change {
    let act = act.id.clone();
    Change {
        events: vec![bench.draft(&json!({}))],
        act: Some(ActChange::Close { act, kept }),
        ..Change::default()
    }
}

fn stored(store: &Store, request: &str) -> Option<StoredAct> {
    block_on(store.act(&owner(), &RequestId::trusted(request))).unwrap()
}

#[test]
fn a_request_is_done_once_and_what_it_came_to_is_kept() {
    let bench = Bench::new();
    let store = bench.open();
    let (act, first) = asked(&bench, "r1");
    assert_eq!(stored(&store, "r1"), None);
    commit(&store, first.clone()).unwrap();
    commit(&store, first).expect("the same change again is the same act");
    assert_eq!(stored(&store, "r1"), Some(StoredAct::Open));
    let (_, second) = asked(&bench, "r1");
    let taken = Err(RecordError::RequestIdTaken(RequestId::trusted("r1")));
    assert_eq!(commit(&store, second.clone()), taken);
    let outcome = KeptOutcome::trusted(r#"{"result":{"jobId":"j1"}}"#.to_owned());
    commit(&store, close(&bench, &act, Some(outcome.clone()))).unwrap();
    let late = KeptOutcome::trusted(r#"{"result":{"jobId":"j2"}}"#.to_owned());
    commit(&store, close(&bench, &act, Some(late))).unwrap();
    assert_eq!(
        stored(&store, "r1"),
        Some(StoredAct::Ended(outcome)),
        "the first end stands"
    );
    assert_eq!(commit(&store, second), taken);
    let stranger = CredentialId::trusted("somebody-else");
    assert_eq!(block_on(store.act(&stranger, &RequestId::trusted("r1"))).unwrap(), None);
    assert_eq!(verify(&store).unwrap().rows, 3);
}

#[test]
fn a_request_whose_act_was_never_done_may_do_it_yet() {
    let bench = Bench::new();
    let store = bench.open();
    let (act, first) = asked(&bench, "r1");
    commit(&store, first).unwrap();
    commit(&store, close(&bench, &act, None)).unwrap();
    assert_eq!(stored(&store, "r1"), None);
    let (_, second) = asked(&bench, "r1");
    commit(&store, second).unwrap();
}

#[test]
fn the_request_of_an_act_that_a_crash_left_open_hears_so() {
    let bench = Bench::new();
    let store = bench.open();
    let (_, open) = asked(&bench, "r1");
    commit(&store, open).unwrap();
    bench.force("UPDATE open_acts SET process = ''");
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    let Some(StoredAct::Ended(kept)) = stored(&store, "r1") else {
        panic!("the act is open");
    };
    assert_eq!(kept.read().unwrap_err().code, ErrorCode::Abandoned);
    assert_eq!(failures(&store).len(), 1);
}

#[test]
fn an_act_of_a_service_that_a_crash_left_open_is_closed_and_nobody_tells_in_its_place() {
    let bench = Bench::new();
    let store = bench.open();
    let (_, open) = asked_upon(&bench, "r1", &[EXECUTOR]);
    commit(&store, open).unwrap();
    bench.force("UPDATE open_acts SET process = ''");
    for _ in 0..2 {
        store.sweep_abandoned(later(), &bench.ids).unwrap();
    }
    assert!(matches!(stored(&store, "r1"), Some(StoredAct::Ended(_))));
    assert_eq!(failures(&store).len(), 0);
    assert_eq!(verify(&store).unwrap().rows, 1);
}

#[test]
fn a_session_knows_the_requests_of_its_acts_again() {
    let bench = Bench::new();
    let store = bench.open();
    let caller = Caller::anonymous_agent(Transport::StreamableHttp);
    let session = Session::new(SessionId::trusted("session-of-a-client"), &caller, noon());
    let begun = Change {
        events: vec![bench.draft(&json!({}))],
        session: Some(SessionChange {
            session: session.clone(),
            from: None,
        }),
        ..Change::default()
    };
    commit(&store, begun).unwrap();
    commit(&store, asked(&bench, "r1").1).unwrap();
    let kept = block_on(store.session(&session.id)).unwrap().unwrap();
    let request = KeptRequest {
        rpc_id: "7".to_owned(),
        digest: [7; 32],
        command: None,
        waits: false,
    };
    assert_eq!(kept.requests, [request]);
}

fn failures(store: &Store) -> Vec<Value> {
    let filter = Filter {
        event_type: Some(EventType::ActFailed),
        ..Filter::everything()
    };
    let rows = store.query_events(&filter).unwrap();
    rows.iter().map(|row| row.payload().unwrap()).collect()
}

#[test]
fn one_approval_lets_one_act_go() {
    let bench = Bench::new();
    let store = bench.open();
    let given = approved(&bench, &store);
    let (_, first) = opening(&bench, Some(&given), &[]);
    commit(&store, first.clone()).unwrap();
    commit(&store, first).expect("the same change again is the same act");
    let (_, second) = opening(&bench, Some(&given), &[]);
    assert_eq!(commit(&store, second), Err(RecordError::ApprovalMoved));
}

#[test]
fn an_approval_that_was_given_up_lets_nothing_go() {
    let bench = Bench::new();
    let store = bench.open();
    let given = approved(&bench, &store);
    let change = Change {
        events: vec![bench.draft(&json!({}))],
        approvals: vec![ApprovalChange {
            approval: given.clone().step(ApprovalStep::Fail, noon()).unwrap(),
            from: Some(given.version),
        }],
        ..Change::default()
    };
    commit(&store, change).unwrap();
    let (_, late) = opening(&bench, Some(&given), &[]);
    assert_eq!(commit(&store, late), Err(RecordError::ApprovalMoved));
}

#[test]
fn an_act_that_a_crash_left_open_is_ended_once_in_each_system_that_had_not_told() {
    let bench = Bench::new();
    let store = bench.open();
    let given = approved(&bench, &store);
    let (act, open) = opening(&bench, Some(&given), &["github", "kubernetes"]);
    commit(&store, open).unwrap();
    commit(&store, told(&bench, &act, "github")).unwrap();
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    assert_eq!(failures(&store).len(), 0, "its process lives");
    bench.force("UPDATE open_acts SET process = ''");
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    let failures = failures(&store);
    let said = |name: &str| failures.iter().map(|it| it[name].clone()).collect::<Vec<_>>();
    assert_eq!(said("system"), [json!("kubernetes")]);
    assert_eq!(said("code"), [json!("ABANDONED")]);
    assert_eq!(said("run_id"), [json!("run-1")]);
    let approval = block_on(store.find(&given.id)).unwrap().unwrap();
    assert_eq!(approval.state(), ApprovalState::Failed);
    verify(&store).unwrap();
}

/// How it went in one of its systems.
fn told(bench: &Bench, act: &OpenAct, system: &str) -> Change {
    Change {
        events: vec![act.ended(Some(system), Ending::Applied, agent(), noon(), &bench.ids)],
        act: Some(ActChange::Told {
            act: act.id.clone(),
            system: system.to_owned(),
        }),
        ..Change::default()
    }
}

/// How it went as a whole.
fn ended(bench: &Bench, act: &OpenAct) -> Change {
    Change {
        events: vec![act.ended(None, Ending::Applied, agent(), noon(), &bench.ids)],
        ..close(bench, act, None)
    }
}

#[test]
fn nothing_is_signed_that_somebody_put_among_open_acts_and_no_approval_is_given_up_for_it() {
    for forged in [
        "UPDATE open_acts SET process = '', act_id = 'forged'",
        "UPDATE open_acts SET process = '', correlation_id = 'another'",
    ] {
        let bench = Bench::new();
        let store = bench.open();
        let given = approved(&bench, &store);
        commit(&store, opening(&bench, Some(&given), &[]).1).unwrap();
        bench.force(forged);
        store.sweep_abandoned(later(), &bench.ids).unwrap();
        assert_eq!(failures(&store).len(), 0, "{forged}");
        let approval = block_on(store.find(&given.id)).unwrap().unwrap();
        assert_eq!(approval.state(), ApprovalState::Approved, "{forged}");
        let told = verify(&store).unwrap_err().to_string();
        assert!(told.contains("was added, no event tells of it"), "{told}");
    }
}

#[test]
fn an_act_that_a_crash_left_open_is_ended_as_its_opening_tells_of_it_whatever_its_row_says() {
    for forged in [
        "tool = 'database.lifecycle'",
        "action = 'drop'",
        "run_id = 'run-2'",
        "approval_id = 'another'",
        "systems = '[\"vault\"]'",
        "systems = '[]'",
    ] {
        let bench = Bench::new();
        let store = bench.open();
        let given = approved(&bench, &store);
        let (act, open) = opening(&bench, Some(&given), &["github", "kubernetes"]);
        commit(&store, open).unwrap();
        verify(&store).unwrap();
        bench.force(&format!("UPDATE open_acts SET process = '', {forged}"));
        if !forged.starts_with("systems") {
            let told = verify(&store).unwrap_err().to_string();
            assert!(told.contains("is not what its opening tells of"), "{told}");
        }
        store.sweep_abandoned(later(), &bench.ids).unwrap();
        let failures = failures(&store);
        let systems: Vec<_> = failures.iter().map(|it| it["system"].clone()).collect();
        assert_eq!(systems, [json!("github"), json!("kubernetes")], "{forged}");
        for failure in failures {
            let said = (
                &failure["act_id"],
                &failure["tool"],
                &failure["action"],
                &failure["run_id"],
            );
            let own = (&json!(act.id.as_str()), &json!(act.tool), &Value::Null, &json!("run-1"));
            assert_eq!(said, own, "{forged}");
        }
        let approval = block_on(store.find(&given.id)).unwrap().unwrap();
        assert_eq!(approval.state(), ApprovalState::Failed, "{forged}");
        verify(&store).unwrap();
    }
}

#[test]
fn an_act_that_has_ended_is_not_ended_again_by_its_open_row_put_back() {
    let bench = Bench::new();
    let store = bench.open();
    let (whole, open) = opening(&bench, None, &[]);
    commit(&store, open).unwrap();
    let (parts, open) = opening(&bench, None, &["github", "kubernetes"]);
    commit(&store, open).unwrap();
    bench.force("CREATE TABLE saved AS SELECT * FROM open_acts");
    commit(&store, ended(&bench, &whole)).unwrap();
    for system in ["github", "kubernetes"] {
        commit(&store, told(&bench, &parts, system)).unwrap();
    }
    let all_told = Change {
        act: Some(ActChange::Close {
            act: parts.id,
            kept: None,
        }),
        events: vec![bench.draft(&json!({}))],
        ..Change::default()
    };
    commit(&store, all_told).unwrap();
    bench.force(
        "INSERT INTO open_acts SELECT * FROM saved; DROP TABLE saved;
         UPDATE open_acts SET process = '', systems = '[\"vault\"]'",
    );
    let flaw = verify(&store).unwrap_err().to_string();
    assert!(flaw.contains("has ended, somebody put its open row back"), "{flaw}");
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    assert_eq!(failures(&store).len(), 0);
}

#[test]
fn a_second_end_of_an_act_is_told() {
    for (system, again) in [(None, Some("vault")), (None, None), (Some("github"), Some("github"))] {
        let bench = Bench::new();
        let store = bench.open();
        let (act, open) = opening(&bench, None, &["github"]);
        commit(&store, open).unwrap();
        let end = |system: Option<&str>, by: Actor| {
            let event = act.ended(system, Ending::ABANDONED, by, noon(), &bench.ids);
            let change = close(&bench, &act, None);
            let events = vec![event];
            Change { events, ..change }
        };
        commit(&store, end(system, agent())).unwrap();
        verify(&store).unwrap();
        commit(&store, end(again, Actor::system("sweeper"))).unwrap();
        let told = verify(&store).unwrap_err().to_string();
        assert!(told.contains("row 3") && told.contains("a second time"), "{told}");
    }
}

#[test]
fn a_process_that_was_taken_for_gone_may_still_tell_how_its_act_went() {
    let bench = Bench::new();
    let store = bench.open();
    let (act, open) = opening(&bench, None, &[]);
    commit(&store, open).unwrap();
    bench.force("UPDATE open_acts SET process = ''");
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    commit(&store, ended(&bench, &act)).unwrap();
    verify(&store).unwrap();
}

#[test]
fn an_act_that_ended_is_not_swept() {
    let bench = Bench::new();
    let store = bench.open();
    let (act, open) = opening(&bench, None, &[]);
    commit(&store, open).unwrap();
    let close = Change {
        events: vec![bench.draft(&json!({}))],
        act: Some(ActChange::Close {
            act: act.id,
            kept: None,
        }),
        ..Change::default()
    };
    commit(&store, close).unwrap();
    bench.force("UPDATE open_acts SET process = ''");
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    assert_eq!(failures(&store).len(), 0);
}
