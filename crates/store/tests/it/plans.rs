//! How the database finds what is asked for: by the index that is there for it, never by reading everything.
//!
//! The plans are those of the statements that the store really sends, told by the server itself (`auto_explain`).

use std::fs;
use std::path::PathBuf;

use countersign_gateway::audit::event::EventType;
use countersign_gateway::audit::reading::{Filter, Pick};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_store::{Durability, Options, Store};

use crate::postgres::Cluster;

/// Enough that the planner would not rather read everything.
const ROWS: u32 = 40_000;
/// The moment of the first row: 2026-01-01; a row on every tenth of a second.
const FIRST_MS: i64 = 1_767_225_600_000;

const FILL: &str = "
    INSERT INTO flow_events (chain, seq, event_id, timestamp, correlation_id, actor_type, actor_id, event_type, payload,
        prev_hash, hash)
    SELECT 'filled', n, 'e-' || n,
        to_char(to_timestamp(1767225600 + n * 0.1) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),
        'c-' || n / 4, 'agent', 'local',
        CASE WHEN n % 1000 = 1 THEN 'token.created' ELSE
            (ARRAY['command.received', 'command.validated', 'command.dispatched', 'command.completed'])[n % 4 + 1] END,
        '{\"request_id\":\"r-' || n / 4 || '\"}', decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex')
    FROM generate_series(1, ROWS) AS n";

#[test]
fn questions_to_a_long_record_are_answered_by_an_index() {
    // A server of its own: plans are read from its log.
    let Some(cluster) = Cluster::start() else { return };
    let database = cluster.database();
    let state = tempfile::tempdir().unwrap();
    let told = "options=-c%20session_preload_libraries%3Dauto_explain%20-c%20auto_explain.log_min_duration%3D0";
    let url = format!("{}?{told}", database.socket_url);
    let store = Store::open(
        state.path(),
        Options::new(Durability::Process, Clock::system()).on(Some(url)),
    )
    .unwrap();
    cluster
        .run(&database, &FILL.replace("ROWS", &ROWS.to_string()))
        .unwrap();
    cluster.run(&database, "VACUUM ANALYZE flow_events").unwrap();
    let log = PathBuf::from(cluster.run(&database, "SHOW data_directory").unwrap()).join("../log");

    let limit = 100;
    let minute = |at: i64| Timestamp::from_millis(FIRST_MS + at);
    let questions = [
        (
            "by_correlation_id",
            Filter {
                correlation_id: Some("c-77".to_owned()),
                ..Filter::everything()
            },
        ),
        (
            "by_request_id",
            Filter {
                request_id: Some("r-77".to_owned()),
                limit,
                ..Filter::everything()
            },
        ),
        (
            "by_place",
            Filter {
                after: Some(20_000),
                limit,
                ..Filter::everything()
            },
        ),
        (
            "by_place",
            Filter {
                limit,
                pick: Pick::Newest,
                ..Filter::everything()
            },
        ),
        (
            "by_rare_type",
            Filter {
                event_type: Some(EventType::TokenCreated),
                limit,
                pick: Pick::Newest,
                ..Filter::everything()
            },
        ),
        (
            "by_timestamp",
            Filter {
                from: Some(minute(2_000_000)),
                to: Some(minute(2_060_000)),
                limit,
                ..Filter::everything()
            },
        ),
    ];
    for (index, filter) in questions {
        // More than once: after a few times the server plans for all values alike.
        for _ in 0..7 {
            let before = fs::read_to_string(&log).unwrap().len();
            assert!(!store.query_events(&filter).unwrap().is_empty(), "{index}");
            let plans = fs::read_to_string(&log).unwrap().split_off(before);
            assert!(plans.contains(&format!("flow_events_{index}")), "{index}: {plans}");
            assert!(!plans.contains("Seq Scan on flow_events"), "{index}: {plans}");
            // Found first and then looked up: joined, a long record would be walked in order of place instead.
            assert!(index != "by_request_id" || plans.contains("InitPlan"), "{plans}");
        }
    }
    // An index that has the rows in order is taken however many of them the planner expects: of what is inside a payload it
    // knows nothing, and would rather walk ten million rows in order of place.
    let before = fs::read_to_string(&log).unwrap().len();
    let filter = Filter {
        request_id: Some("r-77".to_owned()),
        limit,
        ..Filter::everything()
    };
    assert_eq!(store.query_commands(&filter).unwrap().len(), 1);
    let plans = fs::read_to_string(&log).unwrap().split_off(before);
    assert!(plans.contains("flow_events_by_request_id"), "{plans}");
    assert!(!plans.contains("Sort Key"), "{plans}");
}

#[test]
fn an_index_over_payloads_is_made_again_by_several_workers_as_a_restore_does() {
    let Some(cluster) = crate::postgres::cluster() else {
        return;
    };
    let database = cluster.database();
    let state = tempfile::tempdir().unwrap();
    countersign_store::db::migrate(state.path(), Some(&database.socket_url)).unwrap();
    cluster.run(&database, &FILL.replace("ROWS", "5000")).unwrap();
    let willing = "SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0";
    for statement in [
        "REINDEX INDEX flow_events_by_request_id",
        "SELECT count(*) FROM flow_events WHERE payload_text(payload, 'status') = 'x'",
    ] {
        cluster.run(&database, &format!("{willing}; {statement}")).unwrap();
    }
}
