//! The workbench: a record in its own directory, and the things tests write into it.

use std::path::{Path, PathBuf};

use countersign_gateway::audit::event::{Actor, ActorType, Draft, EventType};
use countersign_gateway::audit::{Change, CloseCommand, Committed, OpenCommand, Record, RecordError};
use countersign_gateway::clock::{Clock, Timestamp};
use countersign_gateway::ids::{CorrelationId, CredentialId, IdSource, RequestId};
use countersign_store::prove::Report;
use countersign_store::sqlite::verify::{Range, VerifyError};
use countersign_store::{Durability, Options, SqliteStore};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

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

/// A state directory that goes when the test ends.
pub(crate) struct Bench {
    directory: TempDir,
    pub(crate) ids: IdSource,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            ids: IdSource::random(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("record.db")
    }

    pub(crate) fn options() -> Options {
        Options::new(Durability::Process, Clock::fixed(noon()))
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path(), Self::options()).unwrap()
    }

    /// A connection past the store, as someone with a SQL prompt has.
    pub(crate) fn sql(&self) -> Connection {
        Connection::open(self.database()).unwrap()
    }

    /// SQL by someone who also knows how to take the triggers away.
    pub(crate) fn force(&self, statement: &str) {
        let connection = self.sql();
        let triggers: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        for trigger in triggers {
            connection.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
        }
        connection.execute_batch(statement).unwrap();
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
        let mut draft = self.draft(&json!({"request_id": request_id}));
        draft.correlation_id = correlation_id.clone();
        let open = OpenCommand {
            owner: owner(),
            request_id: RequestId::trusted(request_id),
            digest: digest.to_owned(),
            opened_at: noon(),
            abandoned: json!({"request_id": request_id, "status": "failed", "error_code": "ABANDONED"}).to_string(),
            correlation_id,
            asked: None,
        };
        Change {
            events: vec![draft],
            open: Some(open),
            ..Change::default()
        }
    }

    pub(crate) fn closing(&self, request_id: &str, digest: &str, status: &str) -> Change {
        let correlation_id = CorrelationId::trusted(format!("call-{request_id}"));
        let draft = Draft::new(
            self.ids.event(),
            noon(),
            correlation_id.clone(),
            agent(),
            EventType::CommandCompleted,
            &json!({"request_id": request_id, "status": status}),
        );
        let close = CloseCommand {
            owner: owner(),
            request_id: RequestId::trusted(request_id),
            digest: digest.to_owned(),
            opened_at: noon(),
            correlation_id,
            result: json!({"status": status}).to_string(),
            stdout: b"out".to_vec(),
            stderr: b"err".to_vec(),
            asked: None,
        };
        Change {
            events: vec![draft],
            close: Some(close),
            ..Change::default()
        }
    }
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
pub(crate) fn fill(bench: &Bench, store: &SqliteStore, count: u64) {
    let drafts: Vec<_> = (1..=count)
        .map(|number| bench.draft(&json!({"number": number})))
        .collect();
    for chunk in drafts.chunks(500) {
        commit(store, events(chunk.to_vec())).unwrap();
    }
}

pub(crate) fn verify(store: &SqliteStore) -> Result<Report, VerifyError> {
    store.verify(Range::ALL, &|_| ())
}
