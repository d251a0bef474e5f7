//! Ports: whose databases are whose, as a store keeps it, and the server that the databases are in.

use crate::audit::{Pending, RecordError};
use crate::clock::Timestamp;
use crate::ids::{CorrelationId, EventId};
use crate::job::lifecycle::words;

/// Port: S4's `project_databases`. Rows change through the record only.
pub trait Databases: Send + Sync + 'static {
    fn find_database(&self, name: &str) -> Pending<Result<Option<Kept>, RecordError>>;

    /// Those that something was begun with and not ended.
    fn unsettled_databases(&self) -> Pending<Result<Vec<Kept>, RecordError>>;
}

/// A row, and whether the act that last touched it is being done at this moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    pub database: ProjectDatabase,
    pub is_under_way: bool,
}

words! {
    /// How a project has a database.
    Hold {
        /// It is written down before it is made.
        Creating "creating",
        Owned "owned",
        /// It is written down before it is dropped.
        Deleting "deleting",
    }
}

/// A database that belongs to a project.
#[derive(Clone, PartialEq, Debug)]
pub struct ProjectDatabase {
    pub name: String,
    pub project: String,
    pub environment: String,
    pub hold: Hold,
    /// What the database itself carries, so that one which somebody else made under this name is known.
    pub mark: String,
    /// Counts its changes; a change is made over the version it was made from.
    pub version: u64,
    /// The act that last touched it.
    pub act: EventId,
    pub correlation_id: CorrelationId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A row after a change.
#[derive(Clone, PartialEq, Debug)]
pub struct DatabaseChange {
    pub database: ProjectDatabase,
    /// The version that it was made from; none for a new one, which is refused where the name is taken.
    pub from: Option<u64>,
    /// The row goes.
    pub is_gone: bool,
}

impl ProjectDatabase {
    /// The row in another state, by an act.
    pub fn turned(&self, hold: Hold, act: &EventId, correlation: &CorrelationId, now: Timestamp) -> DatabaseChange {
        let database = Self {
            hold,
            version: self.version + 1,
            act: act.clone(),
            correlation_id: correlation.clone(),
            updated_at: now,
            ..self.clone()
        };
        DatabaseChange {
            database,
            from: Some(self.version),
            is_gone: false,
        }
    }

    /// The row taken away.
    pub fn gone(&self) -> DatabaseChange {
        DatabaseChange {
            database: self.clone(),
            from: Some(self.version),
            is_gone: true,
        }
    }

    pub fn belongs_to(&self, project: &str, environment: &str) -> bool {
        (self.project.as_str(), self.environment.as_str()) == (project, environment)
    }
}

/// Port: the server in which databases are made.
pub trait DatabaseServer: Send + Sync + 'static {
    fn look(&self, name: &str) -> Pending<Result<Seen, ServerError>>;

    /// Makes a database that carries the mark from the moment it has the name.
    fn create(&self, name: &str, mark: &str) -> Pending<Result<Made, ServerError>>;

    /// Drops a database if it carries the mark.
    fn delete(&self, name: &str, mark: &str) -> Pending<Result<(), ServerError>>;

    /// Resolves once the server is at nothing that was asked of it under this mark, by whomever: a statement goes on
    /// when whoever sent it is gone.
    fn finished(&self, mark: &str) -> Pending<Result<(), ServerError>>;

    /// Drops what a creation that broke off left under no name yet.
    fn clear(&self, mark: &str) -> Pending<Result<(), ServerError>>;
}

/// A database as the server shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    pub exists: bool,
    /// A template, the server's own, or the one that this program is connected to.
    pub is_reserved: bool,
    pub mark: Option<String>,
}

#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    Now,
    /// Somebody else has a database of this name.
    Taken,
}

/// Why a server did not do something; free of secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServerError(pub String);
