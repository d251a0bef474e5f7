//! What leads to rows is proved with them: a row that is sound and not found is as good as gone.

use countersign_store::prove::Fault;
use countersign_store::sqlite::verify::VerifyError;

use crate::bench::{commit, fill, later, verify};
use crate::on_sqlite::bench::Bench;

/// Two spans and a bit.
const ROWS: u64 = 1_100;

/// What verifying says of a record that was changed by these statements.
fn found(statements: &str) -> Option<VerifyError> {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, ROWS);
    commit(&store, bench.opening("r1", "d")).unwrap();
    commit(&store, bench.closing("r1", "d", "ok")).unwrap();
    drop(store);
    bench.sql().execute_batch(statements).unwrap();
    verify(&bench.open()).err()
}

#[test]
fn a_span_that_is_changed_added_or_gone_is_found() {
    assert!(found("").is_none());
    for (change, at) in [
        (
            "UPDATE spans SET latest = '2001-01-02T00:00:00.000Z' WHERE last_seq = 512",
            512,
        ),
        (
            "UPDATE spans SET earliest = '2001-01-02T00:00:00.000Z' WHERE last_seq = 1024",
            1_024,
        ),
        ("DELETE FROM spans WHERE last_seq = 512", 1_024),
        ("DELETE FROM spans WHERE last_seq = 1024", 1_024),
        (
            "INSERT INTO spans SELECT max(seq), '2001-01-01T00:00:00.000Z', '2001-01-02T00:00:00.000Z' FROM flow_events",
            1_102,
        ),
        (
            "INSERT INTO spans VALUES (512000, '2001-01-01T00:00:00.000Z', '2001-01-02T00:00:00.000Z')",
            512_000,
        ),
    ] {
        let Some(VerifyError::Flawed(flaw)) = found(change) else {
            panic!("{change}")
        };
        assert_eq!((flaw.seq, flaw.fault), (at, Fault::SpanChanged), "{change}");
    }
}

#[test]
fn a_span_that_a_prune_has_cut_into_is_none_that_was_changed() {
    let bench = Bench::new();
    let store = bench.open();
    fill(&bench, &store, 700);
    store.prune(later(), &bench.ids).unwrap();
    fill(&bench, &store, ROWS);
    verify(&store).unwrap();
}

#[test]
fn an_index_that_leaves_rows_out_is_found_whatever_it_says_of_itself() {
    let narrowed = "
        CREATE TABLE said AS SELECT name, sql FROM sqlite_schema WHERE name = 'flow_events_by_correlation_id';
        DROP INDEX flow_events_by_correlation_id;
        CREATE INDEX flow_events_by_correlation_id ON flow_events (correlation_id) WHERE correlation_id <> 'call-r1';
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = (SELECT sql FROM said) WHERE name = 'flow_events_by_correlation_id';
        PRAGMA writable_schema = OFF;
        DROP TABLE said;";
    let told = found(narrowed).unwrap().to_string();
    assert!(told.contains("flow_events_by_correlation_id"), "{told}");
}

#[test]
fn tables_indexes_and_triggers_are_those_that_this_program_makes() {
    for (change, told) in [
        (
            "DROP TRIGGER flow_events_refuse_update",
            "the trigger `flow_events_refuse_update` is missing",
        ),
        (
            "DROP INDEX flow_events_by_request_id;
             CREATE INDEX flow_events_by_request_id ON flow_events (payload ->> '$.request_id')
                 WHERE event_type = 'command.completed' AND seq < 5",
            "the index `flow_events_by_request_id` is not as this program makes it",
        ),
        (
            "DROP INDEX commands_by_request_id;
             CREATE UNIQUE INDEX commands_by_request_id ON commands (request_id COLLATE NOCASE, owner)",
            "the index `commands_by_request_id` is not as this program makes it",
        ),
        (
            "PRAGMA writable_schema = 1;
             UPDATE sqlite_schema SET sql = replace(sql, char(10), ' ') WHERE name = 'commands'",
            "the table `commands` is not as this program makes it",
        ),
        (
            "CREATE TRIGGER hide AFTER INSERT ON commands BEGIN DELETE FROM commands; END",
            "the trigger `hide` was added, this program does not make it",
        ),
    ] {
        assert_eq!(found(change).unwrap().to_string(), told);
    }
}
