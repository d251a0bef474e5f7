//! What SQLite's errors mean to someone who runs the gateway.

use countersign_gateway::audit::RecordError;
use rusqlite::ErrorCode;

use crate::seal::{SET_BACK, UNSEALED};

/// Says in a sentence why the record cannot be used now.
pub(super) fn unavailable(error: &rusqlite::Error) -> RecordError {
    RecordError::Unavailable(sentence(error))
}

pub(crate) fn sentence(error: &rusqlite::Error) -> String {
    let meaning = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full",
        Some(ErrorCode::ReadOnly) => "the database cannot be written, it is read-only",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "another process keeps the database locked",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => "the database file is damaged",
        Some(ErrorCode::CannotOpen) => "the database file cannot be opened",
        Some(ErrorCode::SystemIoFailure) => "the disk reports an error",
        Some(ErrorCode::PermissionDenied) => "access to the database is denied",
        _ => return error.to_string(),
    };
    format!("{meaning} ({error})")
}

/// The same of a database that is to be opened, which writes to it, for those too who only read.
pub(super) fn of_opening(error: &rusqlite::Error) -> String {
    let sentence = sentence(error);
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => format!(
            "{sentence}; make the state directory writable, or copy it to where it can be written and name that by \
             `--state-dir`"
        ),
        _ => sentence,
    }
}

/// SQLite's own word for a database that cannot be written.
pub(super) fn read_only() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY), None)
}

/// The word for a record that another one was put in the place of.
pub(super) fn replaced() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    let why = "its state directory was replaced, and has another key; start the server anew";
    rusqlite::Error::SqliteFailure(code, Some(why.to_owned()))
}

/// The word for a head that somebody without the record's key has written.
pub(super) fn unsealed() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
    rusqlite::Error::SqliteFailure(code, Some(UNSEALED.to_owned()))
}

/// The word for a record that lacks what this process wrote into it.
pub(super) fn set_back() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
    rusqlite::Error::SqliteFailure(code, Some(SET_BACK.to_owned()))
}

/// The word for a change whose events are in the record already.
pub(super) fn written_before() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CONSTRAINT);
    rusqlite::Error::SqliteFailure(code, Some("an event of this id was written before".to_owned()))
}

/// Whether the connection is worth keeping after this error. On a full disk it is: closing the last
/// one moves the log into the database, which takes the space that was freed.
pub(super) fn is_passing(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull | ErrorCode::ConstraintViolation
        )
    )
}

pub(super) fn is_refusal(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// Whether it may be for want of the right to write: what stands beside a database cannot be made then either.
pub(super) fn is_unwritable(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen)
    )
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::super::site::OpenError;
    use super::*;

    #[test]
    fn a_database_that_cannot_be_written_says_so_once_and_what_to_do() {
        let error = OpenError::Connect {
            path: "record.db".into(),
            trouble: read_only(),
        };
        let told = error.to_string();
        assert!(
            told.contains("it is read-only") && told.contains("`--state-dir`"),
            "{told}"
        );
        // A cause would be told a second time behind it.
        assert!(error.source().is_none());
    }
}
