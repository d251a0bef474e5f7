//! What goes wrong with a database at the other end of a connection, and what it means to someone who runs the gateway.

use countersign_gateway::audit::RecordError;
use tokio_postgres::error::{DbError, SqlState};

use crate::seal::{SET_BACK, UNSEALED};

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    // Its sentence holds the causes; as a source they would be told twice.
    #[error("{}", told(.0))]
    Database(tokio_postgres::Error),
    #[error("the database does not answer")]
    TimedOut,
    #[error("the connections to the database were ended")]
    Stopped,
    #[error("the database has no rows where one must be")]
    NoRow,
    /// The head was written by somebody without the node's key.
    #[error("{UNSEALED}")]
    Unsealed,
    /// The record lacks what this process wrote into it.
    #[error("{SET_BACK}")]
    SetBack,
    /// The word for a change whose events are in the record already.
    #[error("an event of this id was written before")]
    WrittenBefore,
    #[error("column {column} cannot be read: {why}")]
    Damaged { column: usize, why: String },
    #[error("no random numbers can be had from the system")]
    Random(#[source] std::io::Error),
    /// The connection was lost while a transaction was being committed, and nobody can be asked what became of it.
    #[error("the connection to the database was lost, and whether the change was written is not known yet")]
    Unknown,
    /// The same, and the answer is no.
    #[error("the connection to the database was lost and nothing was written")]
    Undone,
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl Trouble {
    pub(super) fn damaged(column: usize, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        Self::Damaged { column, why }
    }

    fn database(&self) -> Option<&DbError> {
        match self {
            Self::Database(error) => error.as_db_error(),
            Self::TimedOut
            | Self::Stopped
            | Self::NoRow
            | Self::Unsealed
            | Self::SetBack
            | Self::WrittenBefore
            | Self::Damaged { .. }
            | Self::Random(_)
            | Self::Unknown
            | Self::Undone => None,
        }
    }

    /// Whether the database said no to this change and would to no other: the others in a transaction must not suffer
    /// for it. A deadlock with another node is of this kind, since each alone meets none.
    pub(super) fn is_refusal(&self) -> bool {
        if matches!(self, Self::WrittenBefore) {
            return true;
        }
        self.database().is_some_and(|error| {
            let class = error.code().code().get(..2).unwrap_or_default();
            matches!(class, "22" | "23" | "40" | "54")
        })
    }

    /// Whether the connection is gone, or nobody knows.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Database(error) => match error.as_db_error() {
                // The server says so before it hangs up.
                Some(error) => is_shutdown(error.code()),
                None => true,
            },
            Self::TimedOut | Self::Stopped | Self::Unknown | Self::Undone => true,
            Self::NoRow
            | Self::Unsealed
            | Self::SetBack
            | Self::WrittenBefore
            | Self::Damaged { .. }
            | Self::Random(_) => false,
        }
    }
}

fn is_shutdown(code: &SqlState) -> bool {
    matches!(code.code().get(..2), Some("57" | "08")) && *code != SqlState::QUERY_CANCELED
}

/// Says in a sentence why the record cannot be used now.
pub(super) fn unavailable(error: &Trouble) -> RecordError {
    RecordError::Unavailable(error.to_string())
}

fn told(error: &tokio_postgres::Error) -> String {
    let Some(said) = error.as_db_error() else {
        // The library's own words name the step, its cause says why.
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        return format!("the database cannot be reached ({error}{})", cause.unwrap_or_default());
    };
    let code = said.code();
    let meaning = match code.code().get(..2) {
        _ if *code == SqlState::DISK_FULL => "the database's disk is full",
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => "the database cannot be written, it is read-only",
        _ if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::QUERY_CANCELED => {
            "another process keeps the database locked"
        }
        Some("28") => "access to the database is denied",
        Some("53") => "the database has no room for more",
        Some("57" | "08") => "the connection to the database was lost",
        _ => return said.message().to_owned(),
    };
    format!("{meaning} ({})", said.message())
}
