//! Acts that are no commands: one approval lets one go, and what a crash left open is ended.

use countersign_gateway::approval::Approvals as _;
use countersign_gateway::approval::lifecycle::ApprovalStep;
use countersign_gateway::approval::request::{ApprovalChange, ApprovalRequest, ApprovalType};
use countersign_gateway::audit::act::{ActChange, OpenAct, UsedApproval};
use countersign_gateway::audit::event::{ApprovalState, Draft, EventType};
use countersign_gateway::audit::reading::Filter;
use countersign_gateway::audit::{Change, RecordError};
use countersign_gateway::ids::{ApprovalId, CorrelationId};
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
    };
    let (id, correlation) = (act.id.clone(), act.correlation_id.clone());
    let event = Draft::new(id, noon(), correlation, agent(), EventType::ActRequested, &json!({}));
    let change = Change {
        events: vec![event],
        act: Some(ActChange::Open(act.clone())),
        ..Change::default()
    };
    (act, change)
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
    let told = Change {
        events: vec![bench.draft(&json!({}))],
        act: Some(ActChange::Told {
            act: act.id,
            system: "github".to_owned(),
        }),
        ..Change::default()
    };
    commit(&store, told).unwrap();
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

#[test]
fn an_act_that_ended_is_not_swept() {
    let bench = Bench::new();
    let store = bench.open();
    let (act, open) = opening(&bench, None, &[]);
    commit(&store, open).unwrap();
    let close = Change {
        events: vec![bench.draft(&json!({}))],
        act: Some(ActChange::Close { act: act.id }),
        ..Change::default()
    };
    commit(&store, close).unwrap();
    bench.force("UPDATE open_acts SET process = ''");
    store.sweep_abandoned(later(), &bench.ids).unwrap();
    assert_eq!(failures(&store).len(), 0);
}
