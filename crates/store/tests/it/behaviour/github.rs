//! Leases, deliveries and comments in the database.

use std::sync::Arc;
use std::time::Duration;

use countersign_gateway::audit::event::{Actor, Draft, EventType};
use countersign_gateway::audit::{Change, RecordError};
use countersign_gateway::clock::Clock;
use countersign_gateway::github::delivery::{Deliveries as _, Delivery, DeliveryChange, DeliveryState};
use countersign_gateway::github::message::{KeptMessage, Messages as _};
use countersign_gateway::github::reception::{Incoming, Received, Reception};
use countersign_gateway::github::task::{LabelTask, Task};
use countersign_gateway::github::{IssueRef, Repository};
use countersign_gateway::ids::CorrelationId;
use countersign_gateway::lease::LeaseChange;
use countersign_gateway::run::keeping::RunChange;
use countersign_gateway::run::lifecycle::RunStep;
use countersign_store::Store;
use serde_json::json;

use super::super::bench::{Bench, block_on, commit, noon};
use super::runs::{run, told};

const NAME: &str = "labels:octo/shop#7";

fn take(store: &Store, holder: &str) -> Result<(), RecordError> {
    let change = Change {
        leases: vec![LeaseChange::Take {
            name: NAME.to_owned(),
            holder: holder.to_owned(),
            now: noon(),
            time: Duration::from_secs(3_600),
        }],
        ..Change::default()
    };
    commit(store, change).map(drop)
}

fn give_back(store: &Store, holder: &str) {
    let change = Change {
        leases: vec![LeaseChange::Return {
            name: NAME.to_owned(),
            holder: holder.to_owned(),
        }],
        ..Change::default()
    };
    commit(store, change).unwrap();
}

/// As if the time of every lease were over.
fn let_time_pass(bench: &Bench) {
    bench.run("UPDATE leases SET until_ms = 1").unwrap();
}

#[test]
fn a_lease_is_one_holders_until_it_is_given_back_or_ends() {
    let bench = Bench::new();
    let (store, other) = (bench.open(), bench.open());
    take(&store, "one").unwrap();
    assert!(matches!(take(&other, "two"), Err(RecordError::LeaseTaken(_))));
    let_time_pass(&bench);
    // Its holder may have it longer.
    take(&store, "one").unwrap();
    assert!(take(&other, "two").is_err());
    let_time_pass(&bench);
    take(&other, "two").unwrap();
    // Whoever lost it cannot give it back for another.
    give_back(&store, "one");
    assert!(take(&store, "one").is_err());
    give_back(&other, "two");
    take(&store, "one").unwrap();
}

#[test]
fn racing_holders_of_one_lease_leave_one() {
    let bench = Bench::new();
    let stores = [Arc::new(bench.open()), Arc::new(bench.open())];
    for round in 0..4 {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let store = stores[number % 2].clone();
                std::thread::spawn(move || take(&store, &format!("holder-{round}-{number}")).is_ok())
            })
            .collect();
        let taken = threads.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(taken.filter(|taken| *taken).count(), 1);
        let_time_pass(&bench);
    }
}

#[test]
fn whoever_slept_past_their_lease_writes_nothing_once_another_had_it() {
    let bench = Bench::new();
    let (store, other) = (bench.open(), bench.open());
    let done = |holder: &str| Change {
        events: vec![bench.draft(&json!({"by": holder}))],
        leases: vec![LeaseChange::Has {
            name: NAME.to_owned(),
            holder: holder.to_owned(),
        }],
        ..Change::default()
    };
    let lost = |outcome| matches!(outcome, Err(RecordError::LeaseTaken(_)));
    take(&store, "one").unwrap();
    commit(&store, done("one")).unwrap();
    let_time_pass(&bench);
    commit(&store, done("one")).expect("nobody else began, so what was done may be told");
    take(&other, "two").unwrap();
    assert!(lost(commit(&store, done("one"))), "another has it");
    give_back(&other, "two");
    assert!(lost(commit(&store, done("one"))), "another has had it since");
    assert_eq!(told(&store, EventType::CommandReceived).len(), 2, "nothing of it");
}

#[test]
fn events_that_need_a_lease_are_not_written_without_it() {
    let bench = Bench::new();
    let store = bench.open();
    take(&store, "one").unwrap();
    let event = Draft::new(
        bench.ids.event(),
        noon(),
        CorrelationId::trusted("c"),
        Actor::system("t"),
        EventType::LabelRequested,
        &json!({}),
    );
    let change = Change {
        events: vec![event],
        leases: vec![LeaseChange::Take {
            name: "labels:octo/shop#7".to_owned(),
            holder: "two".to_owned(),
            now: noon(),
            time: Duration::from_secs(30),
        }],
        ..Change::default()
    };
    assert!(commit(&store, change).is_err());
    assert!(told(&store, EventType::LabelRequested).is_empty());
}

fn delivery(id: &str) -> Delivery {
    Delivery {
        id: id.to_owned(),
        version: 1,
        event: "issues".to_owned(),
        correlation_id: CorrelationId::trusted("c"),
        state: DeliveryState::Pending,
        task: Some(Task::Label(LabelTask {
            issue: IssueRef {
                repository: Repository::parse("acme/shop").unwrap(),
                number: 12,
            },
            title: "é".to_owned(),
            body: String::new(),
            label: "run:dev".to_owned(),
            sender: "ana".to_owned(),
        })),
        tries: 0,
        not_before: noon(),
        received_at: noon(),
    }
}

fn new(delivery: &Delivery) -> Change {
    Change {
        deliveries: vec![DeliveryChange {
            delivery: delivery.clone(),
            from: None,
        }],
        ..Change::default()
    }
}

fn done(delivery: &Delivery) -> DeliveryChange {
    DeliveryChange {
        delivery: Delivery {
            version: delivery.version + 1,
            state: DeliveryState::Done,
            task: None,
            ..delivery.clone()
        },
        from: Some(delivery.version),
    }
}

fn pending(store: &Store) -> Vec<Delivery> {
    block_on(store.pending_deliveries(noon(), 9)).unwrap()
}

#[test]
fn a_delivery_is_taken_once_and_worked_off_once() {
    let bench = Bench::new();
    let store = bench.open();
    let one = delivery("d-1");
    commit(&store, new(&one)).unwrap();
    assert!(matches!(commit(&store, new(&one)), Err(RecordError::DeliveryKnown(_))));
    assert_eq!(pending(&store), std::slice::from_ref(&one));
    let mut later = one.clone();
    later.version = 2;
    later.tries = 1;
    later.not_before = noon().after(Duration::from_secs(1));
    let postponed = Change {
        deliveries: vec![DeliveryChange {
            delivery: later.clone(),
            from: Some(1),
        }],
        ..Change::default()
    };
    commit(&store, postponed).unwrap();
    assert!(pending(&store).is_empty(), "its time has not come");
    let end = Change {
        deliveries: vec![done(&later)],
        ..Change::default()
    };
    commit(&store, end.clone()).unwrap();
    assert!(commit(&store, end).is_err(), "it is done");
    assert!(commit(&store, new(&one)).is_err(), "it came before");
    let past = bench.run("UPDATE webhook_deliveries SET tries = 9");
    assert!(past.is_err(), "the database itself says so");
}

#[test]
fn a_delivery_ends_with_the_run_that_it_sets_off_or_not_at_all() {
    let bench = Bench::new();
    let store = bench.open();
    let (first, second) = (delivery("d-1"), delivery("d-2"));
    commit(&store, new(&first)).unwrap();
    commit(&store, new(&second)).unwrap();
    let set_off = |delivery: &Delivery, name: &str| Change {
        runs: vec![RunChange::new(run(name, "run:dev", Some(12)))],
        deliveries: vec![done(delivery)],
        ..Change::default()
    };
    commit(&store, set_off(&first, "r1")).unwrap();
    // One of this label waits for this issue already: the delivery stays, for whoever knows what to do.
    assert_eq!(
        commit(&store, set_off(&second, "r2")).unwrap_err(),
        RecordError::RunMoved
    );
    assert_eq!(pending(&store).len(), 1);
    // A delivery that is done sets off nothing more.
    let again = Change {
        runs: vec![RunChange::new(run("r3", "run:qa", Some(12)))],
        deliveries: vec![done(&first)],
        ..Change::default()
    };
    assert!(commit(&store, again).is_err());
    assert_eq!(bench.run("SELECT count(*) FROM runs").unwrap(), "1");
}

#[test]
fn a_run_is_told_of_when_it_has_changed_and_until_its_labels_are_right() {
    let bench = Bench::new();
    let store = bench.open();
    let one = run("r1", "run:dev", Some(12));
    let without_issue = run("r2", "run:ops", None);
    for new in [&one, &without_issue] {
        let change = Change {
            runs: vec![RunChange::new(new.clone())],
            ..Change::default()
        };
        commit(&store, change).unwrap();
    }
    let untold = || block_on(store.untold(noon(), 9)).unwrap();
    assert_eq!(untold(), [(one.clone(), None)]);
    let mut message = KeptMessage {
        run_id: one.id.clone(),
        comment_id: Some(5),
        run_version: 1,
        text: "é".to_owned(),
        labels_done: false,
        tries: 0,
        not_before: noon(),
    };
    let keep = |message: &KeptMessage| {
        let change = Change {
            messages: vec![message.clone()],
            ..Change::default()
        };
        commit(&store, change).unwrap();
    };
    keep(&message);
    assert_eq!(untold(), []);
    let ended = one.after(RunStep::Cancel, noon()).unwrap();
    let change = Change {
        runs: vec![RunChange::over(1, ended.clone())],
        ..Change::default()
    };
    commit(&store, change).unwrap();
    assert_eq!(untold(), [(ended.clone(), Some(message.clone()))]);
    message.run_version = ended.version;
    keep(&message);
    assert_eq!(untold().len(), 1, "its labels are still to be put right");
    message.not_before = noon().after(Duration::from_secs(1));
    keep(&message);
    assert_eq!(untold(), [], "not now");
    message.labels_done = true;
    message.not_before = noon();
    keep(&message);
    assert_eq!(untold(), []);
}

fn reception(bench: &Bench, store: &Arc<Store>) -> Arc<Reception> {
    Reception::new(store.clone(), Clock::fixed(noon()), bench.ids.clone())
}

#[test]
fn deliveries_that_come_at_once_and_in_any_order_are_taken_once_each() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let reception = reception(&bench, &store);
    let payload = json!({
        "action": "labeled", "label": {"name": "run:dev"}, "repository": {"full_name": "acme/shop"},
        "issue": {"number": 12, "labels": []}, "sender": {"login": "ana", "type": "User"},
    });
    let take = |id: &'static str| {
        let incoming = Incoming {
            id,
            event: "issues",
            payload: &payload,
        };
        block_on(reception.take(incoming)).unwrap()
    };
    let taken: Vec<Received> = ["b", "a", "b", "a", "b"].into_iter().map(take).collect();
    assert_eq!(taken.iter().filter(|it| **it == Received::Accepted).count(), 2);
    assert_eq!(pending(&store).len(), 2);
    assert_eq!(told(&store, EventType::WebhookDuplicate).len(), 3);
}

#[test]
fn a_flood_of_refused_deliveries_does_not_fill_the_record() {
    let bench = Bench::new();
    let store = Arc::new(bench.open());
    let reception = reception(&bench, &store);
    for _ in 0..200 {
        block_on(reception.refused(Some("d"), "it is not signed")).unwrap();
    }
    assert_eq!(told(&store, EventType::WebhookRefused).len(), 30);
}
