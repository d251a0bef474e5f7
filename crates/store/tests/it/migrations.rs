//! A record of an older program is taken over as it is.

use countersign_gateway::audit::Record as _;
use countersign_gateway::ids::RequestId;
use countersign_gateway::session::Role;
use countersign_gateway::session::credential::TokenName;
use rusqlite::Connection;

use crate::bench::{agent, block_on, commit, owner, verify};
use crate::on_sqlite::bench::Bench;

/// Takes everything back that came with later steps, which leaves a database of the first.
const WITHOUT_LATER_STEPS: &str = "
    DROP TABLE asked_acts;
    DROP TABLE delegated_executions;
    DROP TABLE open_acts;
    DROP TABLE secret_syncs;
    DROP TABLE project_databases;
    DROP TABLE leases;
    DROP TABLE webhook_deliveries;
    DROP TABLE run_messages;
    DROP TABLE runs;
    DROP TABLE links;
    DROP TABLE agent_sessions;
    DROP TABLE jobs;
    DROP TABLE job_sessions;
    DROP TABLE job_events;
    DROP TABLE job_notes;
    DROP TABLE token_usage;
    DROP TABLE agent_processes;
    DROP TABLE logins;
    DROP TABLE approvals;
    DROP TABLE mcp_sessions;
    DROP TABLE tokens;
    DROP TABLE tokens_version;
    ALTER TABLE commands RENAME TO later_commands;
    CREATE TABLE commands (
        owner TEXT NOT NULL,
        request_id TEXT NOT NULL,
        digest TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        opened_at_ms INTEGER NOT NULL,
        closed_at_ms INTEGER NOT NULL,
        result TEXT NOT NULL,
        stdout BLOB NOT NULL,
        stderr BLOB NOT NULL,
        PRIMARY KEY (owner, request_id)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO commands
        SELECT owner, request_id, digest, correlation_id, opened_at_ms, closed_at_ms, result, stdout, stderr
        FROM later_commands;
    DROP TABLE later_commands;
    ALTER TABLE open_commands DROP COLUMN session_id;
    ALTER TABLE open_commands DROP COLUMN rpc_id;
    ALTER TABLE open_commands DROP COLUMN rpc_digest;
    ALTER TABLE open_commands DROP COLUMN end_wanted;
    ALTER TABLE chain_heads DROP COLUMN sealed_seq;
    ALTER TABLE chain_heads DROP COLUMN seal;
    PRAGMA user_version = 1;";

/// What a database is made of, in a form that compares.
fn shape(connection: &Connection) -> Vec<String> {
    let mut statement = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .unwrap();
    let texts = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    texts
        .map(|text| text.unwrap().split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn a_record_of_the_first_version_goes_on() {
    let bench = Bench::new();
    let store = bench.open();
    commit(&store, bench.opening("r1", "d")).unwrap();
    commit(&store, bench.closing("r1", "d", "ok")).unwrap();
    drop(store);
    let sql = bench.sql();
    sql.execute_batch(WITHOUT_LATER_STEPS).unwrap();
    let first = Connection::open_in_memory().unwrap();
    first
        .execute_batch(include_str!("../../src/sqlite/migrations/0001_record.sql"))
        .unwrap();
    assert_eq!(shape(&sql), shape(&first), "this is what the first version made");
    drop(sql);
    std::fs::remove_file(bench.path().join("record-sealed")).unwrap();

    let store = bench.open();
    assert_eq!(verify(&store).unwrap().rows, 2);
    let kept = block_on(store.command(&owner(), &RequestId::trusted("r1"))).unwrap();
    assert_eq!(kept.unwrap().end.unwrap().stdout, b"out");
    commit(&store, bench.opening("r2", "d")).unwrap();
    let name = TokenName::parse("ada").unwrap();
    store
        .create_token(Role::Viewer, &name, None, agent(), &bench.ids)
        .unwrap();
    assert_eq!(verify(&store).unwrap().rows, 4);
}
