//! Reading the record past the product: the database itself, and a proof of its chain.

use std::time::{Duration, Instant};

use countersign_gateway::clock::Clock;
use countersign_store::sqlite::verify::Range;
use countersign_store::{Durability, Options, Store};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::bench::Bench;
use crate::client::{Outcome, PATIENCE};
use crate::postgres::cluster;

/// S0's states of a request, as events.
pub(crate) const WHOLE_WAY: [&str; 4] = [
    "command.received",
    "command.validated",
    "command.dispatched",
    "command.completed",
];

/// Names the database that the record is in.
const DATABASE: &str = "COUNTERSIGN_DATABASE";

impl Bench {
    /// Does the same with the record in a file and, where PostgreSQL is installed, in a database.
    pub(crate) fn wherever(test: impl Fn(Self)) {
        test(Self::new());
        if let Some(bench) = Self::on_postgres() {
            println!("the record is on PostgreSQL");
            test(bench);
        }
    }

    /// A bench whose record is in a database of its own.
    pub(crate) fn on_postgres() -> Option<Self> {
        let database = cluster()?.database();
        Some(Self::new().env(DATABASE, &database.url))
    }

    pub(crate) fn database(&self) -> Connection {
        self.open_database().unwrap()
    }

    fn open_database(&self) -> rusqlite::Result<Connection> {
        let path = self.state().join("record.db");
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
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
        self.column(query)[0].parse().unwrap()
    }

    /// What a question of one column finds, as text, wherever the record is.
    #[track_caller]
    pub(crate) fn column(&self, query: &str) -> Vec<String> {
        self.try_column(query).unwrap()
    }

    fn try_column(&self, query: &str) -> Result<Vec<String>, String> {
        // No server of databases is started for a test that needs none.
        if let Some(url) = self.variable(DATABASE)
            && let Some(cluster) = cluster()
        {
            // The same in its words.
            let query = query.replace("payload ->> '$.", "payload::json ->> '");
            let found = cluster.run_at(url, &query)?;
            return Ok(found.lines().map(str::to_owned).collect());
        }
        let told = |error: rusqlite::Error| error.to_string();
        let database = self.open_database().map_err(told)?;
        let mut statement = database.prepare(query).map_err(told)?;
        let rows = statement.query_map([], |row| {
            Ok(match row.get(0)? {
                rusqlite::types::Value::Integer(number) => number.to_string(),
                rusqlite::types::Value::Text(text) => text,
                other => panic!("{other:?} is no text"),
            })
        });
        rows.map_err(told)?.map(|row| row.map_err(told)).collect()
    }

    /// The one question that is open, once it is: its id, and what a person sees of it.
    #[track_caller]
    pub(crate) fn question(&self) -> (String, Value) {
        let query = "SELECT approval_id || ' ' || details FROM approvals WHERE state = 'pending'";
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Whoever asks may only just be starting.
            let found = self.try_column(query).unwrap_or_default();
            if let Some((id, details)) = found.first().and_then(|row| row.split_once(' ')) {
                return (id.to_owned(), serde_json::from_str(details).unwrap());
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
        let query = format!("SELECT state FROM approvals WHERE approval_id = '{question}'");
        self.column(&query).remove(0)
    }

    /// Proves the chain; the server must be gone.
    pub(crate) fn prove(&self) {
        let database = self.variable(DATABASE).map(str::to_owned);
        let options = Options::new(Durability::Process, Clock::system()).on(database);
        let store = Store::open(&self.state(), options).unwrap();
        store.verify(Range::ALL, &|_| {}).expect("the chain holds");
    }
}
