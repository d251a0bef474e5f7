//! Databases of projects and secrets on their way: each change over the version it was made from, and known to be
//! under way only while somebody who lives works on it.

use countersign_gateway::audit::act::{ActChange, OpenAct};
use countersign_gateway::audit::{Change, RecordError};
use countersign_gateway::ids::{CorrelationId, EventId};
use countersign_gateway::tools::database::keeping::{DatabaseChange, Databases as _, Hold, Kept, ProjectDatabase};
use countersign_gateway::tools::secrets::keeping::{
    GithubScope, KeptSync, SecretSync, SecretSyncs as _, SyncChange, SyncState, SyncTarget, ValuePolicy,
};
use countersign_store::Store;
use serde_json::json;

use super::super::bench::{Bench, agent, block_on, commit, later, noon};

/// An act that is being done, under an id of its own.
fn open_act(bench: &Bench, store: &Store) -> EventId {
    let act = OpenAct {
        id: bench.ids.event(),
        correlation_id: CorrelationId::trusted("call"),
        actor: agent(),
        tool: "database.lifecycle".to_owned(),
        action: None,
        approval: None,
        run_id: None,
        systems: Vec::new(),
        opened_at: noon(),
        asked: None,
    };
    let id = act.id.clone();
    let change = Change {
        events: vec![bench.draft(&json!({}))],
        act: Some(ActChange::Open(act)),
        ..Change::default()
    };
    commit(store, change).unwrap();
    id
}

fn database(name: &str, act: &EventId) -> ProjectDatabase {
    ProjectDatabase {
        name: name.to_owned(),
        project: "shop".to_owned(),
        environment: "dev".to_owned(),
        hold: Hold::Creating,
        mark: "countersign:é".to_owned(),
        version: 1,
        act: act.clone(),
        correlation_id: CorrelationId::trusted("call"),
        created_at: noon(),
        updated_at: noon(),
    }
}

fn put(bench: &Bench, store: &Store, change: DatabaseChange) -> Result<(), RecordError> {
    let change = Change {
        events: vec![bench.draft(&json!({}))],
        databases: vec![change],
        ..Change::default()
    };
    commit(store, change).map(drop)
}

fn new(database: &ProjectDatabase) -> DatabaseChange {
    DatabaseChange {
        database: database.clone(),
        from: None,
        is_gone: false,
    }
}

#[test]
fn a_database_is_one_projects_and_changes_over_the_version_it_was_read_at() {
    let bench = Bench::new();
    let store = bench.open();
    let act = open_act(&bench, &store);
    let it = database("shop_dev", &act);
    put(&bench, &store, new(&it)).unwrap();
    let find = || block_on(store.find_database("shop_dev")).unwrap();
    let kept = |database: &ProjectDatabase| Kept {
        database: database.clone(),
        is_under_way: true,
    };
    assert_eq!(find(), Some(kept(&it)));
    let other = ProjectDatabase {
        project: "bank".to_owned(),
        ..it.clone()
    };
    assert_eq!(put(&bench, &store, new(&other)), Err(RecordError::TargetMoved));
    let owned = it.turned(Hold::Owned, &act, &it.correlation_id, later());
    put(&bench, &store, owned.clone()).unwrap();
    let stale = it.turned(Hold::Deleting, &act, &it.correlation_id, later());
    assert_eq!(put(&bench, &store, stale), Err(RecordError::TargetMoved));
    assert_eq!(find(), Some(kept(&owned.database)));
    assert_eq!(put(&bench, &store, it.gone()), Err(RecordError::TargetMoved));
    put(&bench, &store, owned.database.gone()).unwrap();
    assert_eq!(find(), None);
}

#[test]
fn what_a_crash_left_half_done_is_found_and_is_nobodys_any_more() {
    let bench = Bench::new();
    let store = bench.open();
    let act = open_act(&bench, &store);
    let it = database("shop_dev", &act);
    put(&bench, &store, new(&it)).unwrap();
    let left = || block_on(store.unsettled_databases()).unwrap();
    assert_eq!(left().iter().map(|it| it.is_under_way).collect::<Vec<_>>(), [true]);
    bench.force("UPDATE open_acts SET process = 'gone/1-1'");
    assert_eq!(left().iter().map(|it| it.is_under_way).collect::<Vec<_>>(), [false]);
    put(
        &bench,
        &store,
        it.turned(Hold::Owned, &act, &it.correlation_id, later()),
    )
    .unwrap();
    assert_eq!(left(), []);
}

fn sync(id: &str, key: Option<&str>, secret: &str) -> SecretSync {
    SecretSync {
        id: id.to_owned(),
        version: 1,
        state: SyncState::Open,
        project: "shop".to_owned(),
        idempotency_key: key.map(str::to_owned),
        digest: "digest".to_owned(),
        target: SyncTarget {
            repository: "acme/shop".to_owned(),
            environment: "dev".to_owned(),
            scope: GithubScope::Repository,
            github_secret: "TOKEN".to_owned(),
            namespace: "shop-dev".to_owned(),
            kubernetes_secret: secret.to_owned(),
            kubernetes_key: "token".to_owned(),
        },
        policy: ValuePolicy::Random,
        sealed: Some(vec![0, 159, 255]),
        is_at_github: true,
        is_at_kubernetes: false,
        act: EventId::trusted("act"),
        correlation_id: CorrelationId::trusted("call"),
        approval: Some("yes".to_owned()),
        created_at: noon(),
        updated_at: noon(),
    }
}

fn put_sync(bench: &Bench, store: &Store, change: SyncChange) -> Result<(), RecordError> {
    let change = Change {
        events: vec![bench.draft(&json!({}))],
        syncs: vec![change],
        ..Change::default()
    };
    commit(store, change).map(drop)
}

fn begin(bench: &Bench, store: &Store, sync: &SecretSync) -> Result<(), RecordError> {
    let sync = sync.clone();
    put_sync(bench, store, SyncChange { sync, from: None })
}

#[test]
fn a_secret_on_its_way_is_read_back_as_it_was_written_and_its_value_goes_when_it_has_arrived() {
    let bench = Bench::new();
    let store = bench.open();
    let it = sync("s1", Some("key"), "tokens");
    begin(&bench, &store, &it).unwrap();
    let by_key = || block_on(store.sync_by_key("shop", "key")).unwrap();
    let kept = |sync: &SecretSync| KeptSync {
        sync: sync.clone(),
        is_under_way: false,
    };
    assert_eq!(by_key(), Some(kept(&it)));
    assert_eq!(block_on(store.unfinished_sync_to(&it.target)).unwrap(), by_key());
    assert_eq!(block_on(store.unfinished_syncs()).unwrap(), [kept(&it)]);
    let past = bench.run("UPDATE secret_syncs SET state = 'applied'");
    assert!(past.is_err(), "the database itself keeps no value of what has arrived");
    let whole = it.after(later(), |next| {
        next.state = SyncState::Applied;
        next.is_at_kubernetes = true;
    });
    put_sync(&bench, &store, whole.clone()).unwrap();
    assert_eq!(
        put_sync(&bench, &store, whole.clone()).unwrap_err(),
        RecordError::TargetMoved
    );
    assert_eq!(by_key(), Some(kept(&whole.sync)));
    assert_eq!(block_on(store.unfinished_syncs()).unwrap(), []);
}

#[test]
fn a_key_is_used_once_and_one_act_at_a_time_writes_a_kubernetes_secret() {
    let bench = Bench::new();
    let store = bench.open();
    let first = sync("s1", Some("key"), "tokens");
    begin(&bench, &store, &first).unwrap();
    for refused in [sync("s2", Some("key"), "other"), sync("s3", None, "tokens")] {
        assert_eq!(begin(&bench, &store, &refused), Err(RecordError::TargetMoved));
    }
    let left = first.after(later(), |next| next.state = SyncState::Left);
    put_sync(&bench, &store, left.clone()).unwrap();
    let next = sync("s3", None, "tokens");
    begin(&bench, &store, &next).unwrap();
    let again = left.sync.after(later(), |next| next.state = SyncState::Open);
    assert_eq!(
        put_sync(&bench, &store, again).unwrap_err(),
        RecordError::TargetMoved,
        "another works on the same Secret"
    );
    let given_up = left.sync.after(later(), |next| next.state = SyncState::GivenUp);
    put_sync(&bench, &store, given_up).unwrap();
    begin(&bench, &store, &sync("s4", Some("key"), "other")).expect("a key of what was given up is free again");
}
