//! Acts that services outside perform: the first end stands, whoever writes it.

use std::time::Duration;

use countersign_gateway::audit::{Change, RecordError};
use countersign_gateway::delegation::{Confided, Delegation, DelegationChange, Delegations, Outcome};
use countersign_gateway::ids::{CorrelationId, DelegationId};
use countersign_store::Store;
use serde_json::json;

use super::super::bench::{Bench, block_on, commit, later, noon, owner};

fn delegation(id: &str) -> Delegation {
    Delegation {
        id: DelegationId::trusted(id),
        version: 1,
        correlation_id: CorrelationId::trusted("call"),
        owner: owner(),
        binding: "binding".to_owned(),
        tool: "deploy".to_owned(),
        created_at: noon(),
        deadline: noon().after(Duration::from_secs(60)),
        end: None,
        told: false,
        confided: Confided::Sealed(vec![0, 1, 255]),
    }
}

fn put(bench: &Bench, store: &Store, delegation: &Delegation, from: Option<u64>) -> Result<(), RecordError> {
    let change = Change {
        events: vec![bench.draft(&json!({}))],
        delegations: vec![DelegationChange {
            delegation: delegation.clone(),
            from,
        }],
        ..Change::default()
    };
    commit(store, change).map(drop)
}

#[test]
fn an_act_of_a_service_ends_once_and_waits_until_somebody_has_heard_of_it() {
    let bench = Bench::new();
    let (store, other) = (bench.open(), bench.open());
    let it = delegation("d1");
    put(&bench, &store, &it, None).unwrap();
    let find = || block_on(store.find_delegation(&it.id)).unwrap();
    assert_eq!(find().as_ref(), Some(&it));
    let applied = it
        .clone()
        .finished(Outcome::Applied(json!({"url": "é"})), later())
        .unwrap();
    let late = it.clone().finished(Outcome::TimedOut, later()).unwrap();
    put(&bench, &other, &applied, Some(1)).unwrap();
    assert_eq!(put(&bench, &store, &late, Some(1)), Err(RecordError::DelegationMoved));
    let turned = Delegation { version: 3, ..late };
    assert_eq!(
        put(&bench, &store, &turned, Some(2)),
        Err(RecordError::DelegationMoved),
        "nor over the version at which it ended"
    );
    assert_eq!(find().as_ref(), Some(&applied));
    assert_eq!(
        applied.confided,
        Confided::Erased,
        "what it confided is kept no longer than needed"
    );
    let untold = || block_on(Delegations::untold(&store, &owner(), "binding")).unwrap();
    assert_eq!(untold().as_ref(), Some(&applied));
    let heard = applied.clone().heard();
    put(&bench, &store, &heard, Some(applied.version)).unwrap();
    assert_eq!(untold(), None);
    assert_eq!(find(), Some(heard));
}

#[test]
fn those_whose_time_is_over_are_found_and_those_of_one_call_in_their_order() {
    let bench = Bench::new();
    let store = bench.open();
    let mut second = delegation("d2");
    second.created_at = later();
    second.deadline = noon().after(Duration::from_secs(90));
    let failed = delegation("d3")
        .finished(Outcome::Failed("no".to_owned()), later())
        .unwrap();
    for it in [&second, &delegation("d1"), &failed] {
        put(&bench, &store, it, None).unwrap();
    }
    let overdue = |seconds| {
        let now = noon().after(Duration::from_secs(seconds));
        let due = block_on(store.overdue(now, 9)).unwrap();
        due.iter().map(|it| it.id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(overdue(59), Vec::<String>::new());
    assert_eq!(overdue(60), ["d1"]);
    assert_eq!(overdue(90), ["d1", "d2"]);
    let of_call = block_on(store.delegations_of(&second.correlation_id)).unwrap();
    let names: Vec<_> = of_call.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(names, ["d1", "d3", "d2"]);
    assert_eq!(of_call[1], failed);
}
