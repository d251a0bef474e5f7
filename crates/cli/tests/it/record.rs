//! Reading the record past the product: the database file itself, and a proof of its chain.

use std::time::{Duration, Instant};

use countersign_gateway::clock::Clock;
use countersign_store::sqlite::verify::Range;
use countersign_store::{Durability, Options, SqliteStore};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::bench::Bench;
use crate::client::{Outcome, PATIENCE};

/// S0's states of a request, as events.
pub(crate) const WHOLE_WAY: [&str; 4] = [
    "command.received",
    "command.validated",
    "command.dispatched",
    "command.completed",
];

impl Bench {
    pub(crate) fn database(&self) -> Connection {
        let path = self.state().join("record.db");
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    /// The CommandAuditRecords of a request, oldest first.
    pub(crate) fn records(&self, request_id: &str) -> Vec<Value> {
        let query = "SELECT payload FROM flow_events WHERE event_type = 'command.completed' AND payload ->> '$.request_id' = ?1 ORDER BY seq";
        let database = self.database();
        let mut statement = database.prepare(query).unwrap();
        let rows = statement
            .query_map([request_id], |row| row.get::<_, String>(0))
            .unwrap();
        rows.map(|payload| serde_json::from_str(&payload.unwrap()).unwrap())
            .collect()
    }

    /// The one CommandAuditRecord of an answer, which must say what the answer said.
    #[track_caller]
    pub(crate) fn recorded(&self, outcome: &Outcome) -> Value {
        let records = self.records(outcome.id());
        assert_eq!(records.len(), 1, "{records:?}");
        for field in ["request_id", "status", "error_code", "exit_code", "audit_id", "sandbox"] {
            assert_eq!(
                records[0][field], outcome.structured[field],
                "`{field}` of {}",
                outcome.text
            );
        }
        records[0].clone()
    }

    /// The types of a request's events in order.
    pub(crate) fn states(&self, request_id: &str) -> Vec<String> {
        let query = "SELECT event_type FROM flow_events WHERE correlation_id = (SELECT correlation_id FROM flow_events \
            WHERE payload ->> '$.request_id' = ?1 LIMIT 1) ORDER BY seq";
        let database = self.database();
        let mut statement = database.prepare(query).unwrap();
        let rows = statement.query_map([request_id], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub(crate) fn count(&self, query: &str) -> i64 {
        self.database().query_row(query, [], |row| row.get(0)).unwrap()
    }

    /// The one question that is open, once it is: its id, and what a person sees of it.
    #[track_caller]
    pub(crate) fn question(&self) -> (String, Value) {
        let query = "SELECT approval_id, details FROM approvals WHERE state = 'pending'";
        let deadline = Instant::now() + PATIENCE;
        loop {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
            // Whoever asks may only just be starting.
            let found = self.state().join("record.db").exists();
            let found = found.then(|| self.database().query_row(query, [], read));
            if let Some(Ok((id, details))) = found {
                return (id, serde_json::from_str(&details).unwrap());
            }
            assert!(Instant::now() < deadline, "nothing is asked");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a question is in this state.
    #[track_caller]
    pub(crate) fn until(&self, question: &str, state: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.approval_state(question) != state {
            assert!(Instant::now() < deadline, "it stays {}", self.approval_state(question));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until somebody has decided.
    pub(crate) fn until_not_pending(&self, question: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.approval_state(question) == "pending" {
            assert!(Instant::now() < deadline, "nobody decides");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(crate) fn approval_state(&self, question: &str) -> String {
        let query = "SELECT state FROM approvals WHERE approval_id = ?1";
        self.database().query_row(query, [question], |row| row.get(0)).unwrap()
    }

    /// Proves the chain; the server must be gone.
    pub(crate) fn prove(&self) {
        let store = SqliteStore::open(&self.state(), Options::new(Durability::Process, Clock::system())).unwrap();
        store.verify(Range::ALL, &|_| {}).expect("the chain holds");
    }
}
