//! Moving a record from a file into a database: whole or not at all, and its chain goes on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use countersign_gateway::audit::Record as _;
use countersign_gateway::audit::event::{Draft, EventType};
use countersign_gateway::ids::{CorrelationId, EventId, RequestId};
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::TokenName;
use countersign_store::db::{self, Copied, CopyError, CopyProgress};
use countersign_store::sqlite::site;
use countersign_store::{OpenError, Store};
use serde_json::json;

use crate::bench::{Bench, Sqlite, agent, block_on, commit, events, fill, later, noon, options_at, owner, verify};
use crate::postgres::{Cluster, Database, cluster};

/// A row for every table that the tests' own writing leaves empty.
const ROWS: &[(&str, &str)] = &[
    (
        "mcp_sessions",
        "INSERT INTO mcp_sessions VALUES ('s1', 'm1', 'stdio', 'initialized', 'c', NULL, '2025-11-25', '{}', 'local',
             1, 2, 1, 'boot/1/1')",
    ),
    (
        "logins",
        "INSERT INTO logins SELECT zeroblob(32), 'browser', 'local', 'operator', 'n', id, 1, 2 FROM tokens",
    ),
    (
        "approvals",
        "INSERT INTO approvals (approval_id, version, type, state, automatic, correlation_id, owner, requested_by, tool,
             parks, binding, arguments_digest, policy_digest, details, quorum, votes, created_at_ms, remaining_ms)
         VALUES ('a1', 1, 'tool-call', 'pending', 0, 'c', 'local', 'agent', 't', 0, 'b', 'd', 'd', '{}', 1, '[]', 1, 5)",
    ),
    (
        "jobs",
        "INSERT INTO jobs (job_id, version, status, request_id, correlation_id, session_id, agent, owner, actor_type,
             actor_id, input, created_at_ms, updated_at_ms, approval_count, approval_ms, remaining_ms, retries, holder,
             seen_at_ms)
         VALUES ('j1', 1, 'running', 'r', 'c', 'js1', 'a', 'local', 'agent', 'local', '{}', 1, 1, 0, 0, 5, 0,
             'boot/1/1', 1)",
    ),
    (
        "job_sessions",
        "INSERT INTO job_sessions VALUES ('js1', 1, 'active', NULL, 'n', 'n-day', 'j1', 'a', 'local', 1, NULL, 7, 8, NULL,
             '{}', 1, 0)",
    ),
    (
        "job_events",
        "INSERT INTO job_events VALUES ('js1', 1, 'e1', 1, 'j1', NULL, 't', '{\"text\": \"\\u0000\"}')",
    ),
    (
        "token_usage",
        "INSERT INTO token_usage VALUES (41, 'js1', 'j1', NULL, 1, 2, 3, 0.25, 1)",
    ),
    (
        "agent_processes",
        "INSERT INTO agent_processes VALUES (7, 8, 'js1', 'j1', 'a', NULL, 1)",
    ),
    (
        "job_notes",
        "INSERT INTO job_notes VALUES ('n1', 'j1', 'message', 'm', 'local', 1, 0)",
    ),
    (
        "runs",
        "INSERT INTO runs (run_id, version, correlation_id, agent_key, trigger_kind, runtime, labels, requested_by,
             status, remaining_ms, created_at_ms, updated_at_ms)
         VALUES ('run1', 1, 'c1', 'dev', 'manual', 'code-only', '[]', 'o', 'pending', 5, 1, 1)",
    ),
    (
        "links",
        "INSERT INTO links VALUES (9, 'run', 'run1', 'issue', 'r#1', 'references', '{}', 1)",
    ),
    (
        "agent_sessions",
        "INSERT INTO agent_sessions (id, run_id, correlation_id, trigger_kind, agent_key, status, session_json,
             snapshot_version, timeout_guard_disabled, created_at_ms, updated_at_ms)
         VALUES (5, 'run1', 'c1', 'manual', 'dev', 'running', '{}', 0, 1, 1, 1)",
    ),
    (
        "leases",
        "INSERT INTO leases VALUES ('l', 'boot/1/1', 5)",
    ),
    (
        "webhook_deliveries",
        "INSERT INTO webhook_deliveries VALUES ('d1', 1, 'issues', 'c', 'pending', '{}', 0, 0, 1)",
    ),
    (
        "run_messages",
        "INSERT INTO run_messages VALUES ('run1', 3, 1, 't', 1, 0, 0)",
    ),
    (
        "open_acts",
        "INSERT INTO open_acts VALUES ('act1', 'c', 'agent', 'local', 't', NULL, NULL, NULL, '[]', 1, 'boot/1/1')",
    ),
    (
        "asked_acts",
        "INSERT INTO asked_acts VALUES ('local', 'r1', 'act0', 's1', '1', x'0001', 1, 2, '{}')",
    ),
    (
        "project_databases",
        "INSERT INTO project_databases VALUES ('db1', 'p', 'dev', 'owned', 'm', 1, 'act', 'c', 1, 1)",
    ),
    (
        "secret_syncs",
        "INSERT INTO secret_syncs VALUES ('y1', 1, 'open', 'p', 'k', 'd', 'r', 'dev', 'repository', 'G', 'ns', 'ks', 'kk',
             'random', x'0001', 1, 0, 'act', 'c', NULL, 1, 1)",
    ),
    (
        "delegated_executions",
        "INSERT INTO delegated_executions VALUES ('x1', 1, 'c', 'local', 'b', 't', 1, 2, NULL, NULL, NULL, 0, x'00ff')",
    ),
];

/// A record in a file, with something in every table.
fn source() -> Bench<Sqlite> {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 1_100);
    commit(&store, bench.opening("done", "d1")).unwrap();
    commit(&store, bench.closing("done", "d1", "succeeded")).unwrap();
    commit(&store, bench.opening("left", "d2")).unwrap();
    let act = EventId::trusted("act1");
    let call = CorrelationId::trusted("c");
    let opening = Draft::new(
        act,
        noon(),
        call,
        agent(),
        EventType::ActRequested,
        &json!({"tool": "t"}),
    );
    commit(&store, events(vec![opening])).unwrap();
    let name = TokenName::parse("laptop").unwrap();
    store
        .create_token(Role::Agent, &name, None, agent(), &bench.ids)
        .unwrap();
    drop(store);
    for (table, statement) in ROWS {
        bench.run(statement).unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    bench.run("UPDATE open_commands SET process = 'boot/1/1'").unwrap();
    bench
}

fn copy(state: &Path, to: &Database) -> Result<Copied, CopyError> {
    db::copy(state, &to.socket_url, &|_| ())
}

/// The record of a state directory, in a database.
fn open_in(state: &Path, database: &Database) -> Store {
    fs::write(state.join("record-database"), &database.socket_url).unwrap();
    crate::bench::open_at(state).unwrap()
}

/// Rows and chains of a database, which may have no tables yet.
fn rows(cluster: &Cluster, database: &Database) -> String {
    db::migrate(Path::new("/nowhere"), Some(&database.socket_url)).unwrap();
    let sql = "SELECT (SELECT count(*) FROM flow_events) || ' ' || (SELECT count(*) FROM chain_heads)";
    cluster.run(database, sql).unwrap()
}

#[test]
fn a_moved_record_is_whole_and_its_chain_goes_on() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    // Whoever adds a table adds a row here, and a line to the copy.
    for told in db::condition(bench.path(), None).unwrap().tables {
        assert!(told.1 > 0 || told.0 == "spans", "{told:?}");
    }
    let last: u64 = bench.run("SELECT seq FROM chain_heads").unwrap().parse().unwrap();
    let hashes = bench
        .run("SELECT lower(group_concat(hex(hash), '')) FROM flow_events")
        .unwrap();

    let copied = copy(bench.path(), &database).unwrap();
    assert!(!copied.was_there);
    assert_eq!((copied.report.chain.as_str(), copied.report.last_seq), ("main", last));
    let kept = "SELECT string_agg(encode(hash, 'hex'), '' ORDER BY seq) FROM flow_events";
    assert_eq!(cluster.run(&database, kept).unwrap(), hashes);
    // Numbers stay as they were, and new ones come behind them; names of processes say whose they are.
    for (sql, expected) in [
        ("SELECT id FROM token_usage", "41"),
        ("SELECT holder FROM jobs", "main/boot/1/1"),
        ("SELECT process FROM mcp_sessions", "main/boot/1/1"),
        ("SELECT node FROM agent_processes", "main"),
        ("SELECT reuses_ids FROM mcp_sessions", "t"),
        ("SELECT id FROM agent_sessions", "5"),
        ("SELECT sealed_value FROM secret_syncs", "\\x0001"),
        ("SELECT count(*) FROM leases", "0"),
        (
            "INSERT INTO token_usage (session_id, job_id, prompt_tokens, completion_tokens, total_tokens, created_at_ms)
             VALUES ('js1', 'j1', 1, 1, 1, 1) RETURNING id",
            "42",
        ),
    ] {
        assert_eq!(cluster.run(&database, sql).unwrap(), expected, "{sql}");
    }

    let store = open_in(bench.path(), &database);
    assert_eq!(store.tokens().unwrap().len(), 1);
    let done = block_on(store.command(&owner(), &RequestId::trusted("done")))
        .unwrap()
        .unwrap();
    assert_eq!(done.end.unwrap().stdout, b"out");
    // What a process of the file left open is closed by whoever goes on.
    assert_eq!(store.sweep_abandoned(later(), &bench.ids).unwrap(), 1);
    commit(&store, bench.note(1)).unwrap();
    let report = verify(&store).unwrap();
    assert_eq!((report.chain.as_str(), report.others.len()), ("main", 0));
    assert!(report.last_seq > last + 1, "{report:?}");
}

#[test]
fn what_was_signed_before_a_move_counts_after_it_on_every_node() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    let in_file = bench.open();
    let name = TokenName::parse("agent-of-run1").unwrap();
    let made = in_file
        .create_run_token(&name, "run1", Duration::from_secs(3_600), agent(), &bench.ids)
        .unwrap();
    let sealed = in_file.shared_key("what clients carry");
    drop(in_file);
    // A database that a node looked at before has a secret of its own already.
    db::migrate(bench.path(), Some(&database.socket_url)).unwrap();
    let own = "INSERT INTO shared_secret (is_only, secret) VALUES (true, decode(repeat('ab', 32), 'hex'))";
    cluster.run(&database, own).unwrap();
    copy(bench.path(), &database).unwrap();
    let other = tempfile::tempdir().unwrap();
    for state in [bench.path(), other.path()] {
        let store = open_in(state, &database);
        let caller = store.credentials().authenticate(&made.token).expect("it is in force");
        assert_eq!(caller.run.as_deref(), Some("run1"));
        assert_eq!(store.shared_key("what clients carry"), sealed);
    }
}

#[test]
fn the_file_of_a_moved_record_is_kept_and_not_gone_on_with() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    copy(bench.path(), &database).unwrap();
    let options = options_at(
        bench.path(),
        countersign_store::Durability::Process,
        countersign_gateway::clock::Clock::system(),
    );
    match Store::open(bench.path(), options) {
        Err(OpenError::Sqlite(site::OpenError::Moved { to, .. })) => assert!(to.contains(&database.name), "{to}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("two continuations of one chain"),
    }
    assert_eq!(
        db::condition(bench.path(), None).unwrap().version,
        db::condition(bench.path(), None).unwrap().known
    );
    assert!(db::condition(bench.path(), None).unwrap().moved.is_some());
    assert!(matches!(copy(bench.path(), &database), Err(CopyError::Moved { .. })));
    // The way back is in the operator's hands.
    fs::remove_file(bench.path().join("record-moved")).unwrap();
    verify(&bench.open()).unwrap();
}

#[test]
fn a_record_in_use_is_not_moved() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    let store = bench.open();
    let refused = copy(bench.path(), &database);
    assert!(matches!(&refused, Err(CopyError::Take(_))), "{:?}", refused.err());
    commit(&store, bench.note(1)).unwrap();
    drop(store);
    assert_eq!(rows(cluster, &database), "0 0");
    copy(bench.path(), &database).unwrap();
}

#[test]
fn a_database_with_something_in_it_is_not_copied_into() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    let other = tempfile::tempdir().unwrap();
    drop(open_in(other.path(), &database));
    match copy(bench.path(), &database) {
        Err(CopyError::NotEmpty { table }) => assert_eq!(table, "chain_heads"),
        other => panic!("{:?}", other.err()),
    }
    verify(&bench.open()).unwrap();
}

#[test]
fn an_interrupted_copy_leaves_nothing_and_can_be_begun_again() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    let cut = |progress: CopyProgress| {
        if progress.table == "flow_events" {
            cluster.cut_connections(&database);
        }
    };
    let cut_short = db::copy(bench.path(), &database.socket_url, &cut);
    assert!(matches!(&cut_short, Err(CopyError::Write(_))), "{:?}", cut_short.err());
    assert_eq!(rows(cluster, &database), "0 0");
    assert!(!bench.path().join("record-moved").exists());
    assert!(!copy(bench.path(), &database).unwrap().was_there);
}

#[test]
fn a_copy_that_was_complete_is_recognised_when_it_is_begun_again() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    copy(bench.path(), &database).unwrap();
    let before = rows(cluster, &database);
    // As after a crash between the last two steps.
    fs::remove_file(bench.path().join("record-moved")).unwrap();
    assert!(copy(bench.path(), &database).unwrap().was_there);
    assert_eq!(rows(cluster, &database), before);
}

#[test]
fn what_has_no_place_in_the_database_ends_the_copy() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    for (statement, expected) in [
        (
            "CREATE TABLE strangers (x TEXT); INSERT INTO strangers VALUES ('x')",
            "`strangers`",
        ),
        (
            "DROP TABLE strangers; ALTER TABLE jobs ADD COLUMN mood TEXT; UPDATE jobs SET mood = 'm'",
            "`jobs`",
        ),
    ] {
        bench.run(statement).unwrap();
        match copy(bench.path(), &database) {
            Err(CopyError::Unsound(error)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{:?}", other.err()),
        }
    }
    bench.run("ALTER TABLE jobs DROP COLUMN mood").unwrap();
    copy(bench.path(), &database).unwrap();
}

#[test]
fn a_record_that_is_not_sound_is_not_moved() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    bench.force("UPDATE flow_events SET payload = '{}' WHERE seq = 7");
    let refused = copy(bench.path(), &database);
    assert!(matches!(&refused, Err(CopyError::Unsound(_))), "{:?}", refused.err());
    assert_eq!(rows(cluster, &database), "0 0");
}

#[test]
fn a_node_of_another_database_is_not_renamed() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let bench = source();
    fs::write(bench.path().join("record-node"), "node-elsewhere\n").unwrap();
    let refused = copy(bench.path(), &database);
    assert!(
        matches!(&refused, Err(CopyError::OtherNode { .. })),
        "{:?}",
        refused.err()
    );
}

#[test]
fn a_database_tells_how_it_is_and_is_brought_up_to_date_by_itself() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let url = Some(database.socket_url.as_str());
    let state = tempfile::tempdir().unwrap();
    let empty = db::condition(state.path(), url).unwrap();
    assert_eq!((empty.version, empty.pending().count()), (0, empty.known));
    let migrated = db::migrate(state.path(), url).unwrap();
    assert_eq!((migrated.from, migrated.to), (0, empty.known));
    assert_eq!(db::migrate(state.path(), url).unwrap().from, empty.known);

    let store = open_in(state.path(), &database);
    commit(&store, Bench::<Sqlite>::new().note(1)).unwrap();
    let told = db::condition(state.path(), url).unwrap();
    assert_eq!((told.pending().count(), told.chains.len(), told.nodes.len()), (0, 1, 1));
    assert_eq!(told.chains[0].last_seq, 1);
    assert_eq!(told.nodes[0].processes, 1);
    assert!(told.nodes[0].last_seen.is_some() && told.bytes > 0);
    assert!(told.tables.contains(&("flow_events".to_owned(), 1)));

    cluster
        .run(&database, "UPDATE schema_version SET version = 999")
        .unwrap();
    assert_eq!(db::condition(state.path(), url).unwrap().version, 999);
    let newer = db::migrate(state.path(), url).unwrap_err().to_string();
    assert!(newer.contains("999"), "{newer}");
}

#[test]
fn a_file_tells_how_it_is_and_is_not_changed_by_that() {
    let bench = Bench::<Sqlite>::new();
    let store = bench.open();
    fill(&bench, &store, 3);
    let told = db::condition(bench.path(), None).unwrap();
    assert_eq!((told.version, told.pending().count()), (told.known, 0));
    assert_eq!((told.chains[0].chain.as_str(), told.chains[0].last_seq), ("main", 3));
    assert!(told.tables.contains(&("flow_events".to_owned(), 3)));
    drop(store);
    bench.run("PRAGMA user_version = 999").unwrap();
    assert_eq!(db::condition(bench.path(), None).unwrap().version, 999);
    assert!(db::migrate(bench.path(), None).unwrap_err().to_string().contains("999"));
}

#[test]
fn a_backup_made_while_others_write_is_whole_verifies_and_can_be_gone_on_with() {
    let bench = Bench::<Sqlite>::new();
    let store = bench.open();
    fill(&bench, &store, 1_200);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("record.db");
    db::backup(bench.path(), &file).unwrap();
    fill(&bench, &store, 3);
    assert!(matches!(
        db::backup(bench.path(), &file),
        Err(db::BackupError::Make { .. })
    ));
    // Restored: the copy and the key, in a new state directory.
    fs::copy(bench.path().join("record-key"), place.path().join("record-key")).unwrap();
    let restored = crate::bench::open_at(place.path()).unwrap();
    assert_eq!(verify(&restored).unwrap().last_seq, 1_200);
    commit(&restored, bench.note(1)).unwrap();
    assert_eq!(verify(&restored).unwrap().last_seq, 1_201);
    assert_eq!(verify(&store).unwrap().last_seq, 1_203);
}
