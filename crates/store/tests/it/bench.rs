//! The workbench: a record in its own directory, and the things tests write into it.

use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_gateway::audit::event::{Actor, ActorType, Draft, EventType};
use countersign_gateway::audit::{Change, CloseCommand, Committed, OpenCommand, Record, RecordError};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{CorrelationId, CredentialId, IdSource, RequestId};
use countersign_store::prove::Report;
use countersign_store::sqlite::verify::{Range, VerifyError};
use countersign_store::{Durability, OpenError, Options, Store};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::postgres::{Cluster, Database, cluster};

/// The moment at which tests happen.
pub(crate) const NOON: &str = "2026-11-15T12:00:00.000Z";

pub(crate) fn noon() -> Timestamp {
    Timestamp::parse(NOON).unwrap()
}

/// Just after everything happened.
pub(crate) fn later() -> Timestamp {
    Timestamp::from_millis(noon().as_millis() + 1)
}

pub(crate) fn owner() -> CredentialId {
    CredentialId::trusted("local")
}

/// Where a workbench keeps its record.
pub(crate) trait Backend {
    /// A database of its own, where the record is in one.
    fn database() -> Option<(&'static Cluster, Database)>;
}

pub(crate) struct Sqlite;

impl Backend for Sqlite {
    fn database() -> Option<(&'static Cluster, Database)> {
        None
    }
}

/// Where PostgreSQL is not installed, and need not be, these tests run on SQLite once more.
pub(crate) struct Postgres;

impl Backend for Postgres {
    fn database() -> Option<(&'static Cluster, Database)> {
        cluster().map(|cluster| (cluster, cluster.database()))
    }
}

/// Names the database of a state directory, for processes that only know the directory.
const DATABASE_FILE: &str = "record-database";

/// A state directory that goes when the test ends.
pub(crate) struct Bench<B: Backend> {
    directory: TempDir,
    database: Option<(&'static Cluster, Database)>,
    pub(crate) ids: IdSource,
    _backend: PhantomData<B>,
}

impl<B: Backend> Bench<B> {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = B::database();
        if let Some((_, database)) = &database {
            fs::write(directory.path().join(DATABASE_FILE), &database.socket_url).unwrap();
        }
        Self {
            directory,
            database,
            ids: IdSource::random(),
            _backend: PhantomData,
        }
    }

    /// Another node of the same database, where there is one; else another process of the same directory.
    pub(crate) fn another_node(&self) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        if let Some((_, database)) = &self.database {
            fs::write(directory.path().join(DATABASE_FILE), &database.socket_url).unwrap();
        }
        directory
    }

    /// The cluster and its database, where the record is in one.
    pub(crate) fn postgres(&self) -> Option<(&'static Cluster, &Database)> {
        self.database.as_ref().map(|(cluster, database)| (*cluster, database))
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("record.db")
    }

    pub(crate) fn options(&self) -> Options {
        options_at(self.path(), Durability::Process, Clock::fixed(noon()))
    }

    pub(crate) fn open(&self) -> Store {
        Store::open(self.path(), self.options()).unwrap()
    }

    /// A connection past the store, as someone with a SQL prompt has; to a file.
    pub(crate) fn sql(&self) -> Connection {
        Connection::open(self.database()).unwrap()
    }

    /// SQL past the store, in words that every database knows. Gives the first value of a question.
    pub(crate) fn run(&self, statement: &str) -> Result<String, String> {
        if let Some((cluster, database)) = &self.database {
            return cluster.run(database, statement);
        }
        let connection = self.sql();
        if !statement.starts_with("SELECT") {
            return connection
                .execute_batch(statement)
                .map(|()| String::new())
                .map_err(|error| error.to_string());
        }
        let value = connection.query_row(statement, [], |row| row.get::<_, rusqlite::types::Value>(0));
        value.map_err(|error| error.to_string()).map(|value| match value {
            rusqlite::types::Value::Null => String::new(),
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Real(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            rusqlite::types::Value::Blob(bytes) => format!("{bytes:?}"),
        })
    }

    /// Bytes in SQL.
    pub(crate) fn bytes(&self, hex: &str) -> String {
        match self.database {
            Some(_) => format!("'\\x{hex}'::bytea"),
            None => format!("x'{hex}'"),
        }
    }

    /// Ways to put one row in the place of another without saying `UPDATE` or `DELETE`.
    pub(crate) fn replacements(&self) -> [&'static str; 2] {
        match self.database {
            Some(_) => [
                "INSERT INTO flow_events SELECT * FROM flow_events WHERE seq = 7
                     ON CONFLICT (chain, seq) DO UPDATE SET payload = '{}'",
                "TRUNCATE flow_events",
            ],
            None => [
                "INSERT OR REPLACE INTO flow_events SELECT * FROM flow_events WHERE seq = 7",
                "INSERT OR REPLACE INTO flow_events SELECT chain, 99, event_id, timestamp, correlation_id,
                     actor_type, actor_id, event_type, approval_state, payload, prev_hash, hash
                     FROM flow_events WHERE seq = 7",
            ],
        }
    }

    /// SQL by someone who also knows how to take the triggers away, and to put them back.
    pub(crate) fn force(&self, statement: &str) {
        if let Some((cluster, database)) = &self.database {
            let zeros = "CREATE OR REPLACE FUNCTION zeroblob(length INTEGER) RETURNS BYTEA LANGUAGE sql AS
                 $$ SELECT decode(repeat('00', length), 'hex') $$; SET session_replication_role = replica";
            cluster.run(database, &format!("{zeros}; {statement}")).unwrap();
            return;
        }
        let connection = self.sql();
        let triggers: Vec<(String, String)> = connection
            .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        for (trigger, _) in &triggers {
            connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
        }
        connection.execute_batch(statement).unwrap();
        for (_, text) in &triggers {
            connection.execute_batch(text).unwrap();
        }
    }

    pub(crate) fn draft(&self, payload: &Value) -> Draft {
        self.draft_at(noon(), payload)
    }

    pub(crate) fn draft_at(&self, moment: Timestamp, payload: &Value) -> Draft {
        Draft::new(
            self.ids.event(),
            moment,
            self.ids.correlation(),
            agent(),
            EventType::CommandReceived,
            payload,
        )
    }

    pub(crate) fn note(&self, number: u64) -> Change {
        events(vec![self.draft(&json!({"number": number}))])
    }

    pub(crate) fn opening(&self, request_id: &str, digest: &str) -> Change {
        let correlation_id = CorrelationId::trusted(format!("call-{request_id}"));
        let open = OpenCommand {
            owner: owner(),
            request_id: RequestId::trusted(request_id),
            digest: digest.to_owned(),
            opened_at: noon(),
            abandoned: json!({"request_id": request_id, "status": "failed", "error_code": "ABANDONED"}).to_string(),
            correlation_id: correlation_id.clone(),
            asked: None,
        };
        let opening_digest = open.opened().digest().to_hex();
        let mut draft = self.draft(&json!({"request_id": request_id, "opening_digest": opening_digest}));
        draft.correlation_id = correlation_id;
        Change {
            events: vec![draft],
            open: Some(open),
            ..Change::default()
        }
    }

    /// A closing event that tells what is kept of its command.
    pub(crate) fn closing(&self, request_id: &str, digest: &str, status: &str) -> Change {
        let correlation_id = CorrelationId::trusted(format!("call-{request_id}"));
        let close = CloseCommand {
            owner: owner(),
            request_id: RequestId::trusted(request_id),
            digest: digest.to_owned(),
            opened_at: noon(),
            correlation_id: correlation_id.clone(),
            result: json!({"status": status}).to_string(),
            stdout: Arc::new(b"out".to_vec()),
            stderr: Arc::new(b"err".to_vec()),
            asked: None,
        };
        let kept_digest = close.kept().digest().to_hex();
        let draft = Draft::new(
            self.ids.event(),
            noon(),
            correlation_id,
            agent(),
            EventType::CommandCompleted,
            &json!({"request_id": request_id, "status": status, "kept_digest": kept_digest}),
        );
        Change {
            events: vec![draft],
            close: Some(close),
            ..Change::default()
        }
    }

    /// The only events of a call that was refused before it was opened: nothing is kept of it.
    pub(crate) fn refusal(&self, request_id: &str, status: &str) -> Change {
        let mut received = self.draft(&json!({"request_id": request_id}));
        received.correlation_id = CorrelationId::trusted(format!("call-{request_id}"));
        let completed = Draft::new(
            self.ids.event(),
            noon(),
            received.correlation_id.clone(),
            agent(),
            EventType::CommandCompleted,
            &json!({"request_id": request_id, "status": status}),
        );
        events(vec![received, completed])
    }
}

/// How the record of a state directory is opened, in whichever process.
pub(crate) fn options_at(state: &Path, durability: Durability, clock: Clock) -> Options {
    let database = fs::read_to_string(state.join(DATABASE_FILE)).ok();
    Options::new(durability, clock).on(database)
}

pub(crate) fn open_at(state: &Path) -> Result<Store, OpenError> {
    Store::open(state, options_at(state, Durability::Process, Clock::fixed(noon())))
}

/// A test of a module by its full name, for a process that is to run nothing else.
pub(crate) fn this_test(module: &str, name: &str) -> String {
    let (_, module) = module.split_once("::").unwrap();
    format!("{module}::{name}")
}

pub(crate) fn agent() -> Actor {
    Actor {
        kind: ActorType::Agent,
        id: "local".to_owned(),
    }
}

pub(crate) fn events(events: Vec<Draft>) -> Change {
    Change {
        events,
        ..Change::default()
    }
}

/// Writes and waits, for tests that are not async themselves.
pub(crate) fn commit(record: &dyn Record, change: Change) -> Result<Committed, RecordError> {
    block_on(record.commit(change))
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

/// Appends `count` rows in large transactions.
pub(crate) fn fill<B: Backend>(bench: &Bench<B>, store: &Store, count: u64) {
    let drafts: Vec<_> = (1..=count)
        .map(|number| bench.draft(&json!({"number": number})))
        .collect();
    for chunk in drafts.chunks(500) {
        commit(store, events(chunk.to_vec())).unwrap();
    }
}

pub(crate) fn verify(store: &Store) -> Result<Report, VerifyError> {
    store.verify(Range::ALL, &|_| ())
}
