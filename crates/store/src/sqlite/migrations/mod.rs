//! The database's shape over time: a numbered list, each step applied once.
//!
//! To add one, write the next `.sql` file and append it to the list; a step that has shipped is
//! never edited. The number of the last step applied is the database's `user_version`.

use rusqlite::{Connection, TransactionBehavior};

const STEPS: &[&str] = &[
    include_str!("0001_record.sql"),
    include_str!("0002_sessions.sql"),
    include_str!("0003_approvals.sql"),
    include_str!("0004_logins.sql"),
    include_str!("0005_jobs.sql"),
    include_str!("0006_runs.sql"),
    include_str!("0007_github.sql"),
    include_str!("0008_acts.sql"),
    include_str!("0009_delegated_executions.sql"),
    include_str!("0010_retention_of_runs.sql"),
    include_str!("0011_held_jobs.sql"),
    include_str!("0012_asked_acts.sql"),
    include_str!("0013_what_acts_confide.sql"),
    include_str!("0014_ends_wanted.sql"),
    include_str!("0015_ended_commands_in_order.sql"),
    include_str!("0016_labels_of_waiting_runs.sql"),
    include_str!("0017_closings_by_request_id.sql"),
    include_str!("0018_sealed_heads.sql"),
];

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("the database has version {found}, this program knows {known}: it was written by a newer program")]
    Newer { found: usize, known: usize },
    #[error("the database's version cannot be read")]
    Read { source: rusqlite::Error },
    #[error(
        "the database has version {found}, this program reads {known}, and it cannot be written; copy it to where it can be \
         and name that by `--state-dir`"
    )]
    Older { found: usize, known: usize },
    #[error("the database cannot be brought to version {to}")]
    Apply { to: usize, source: rusqlite::Error },
}

/// Brings a database to the newest version, in one transaction.
pub(super) fn apply(connection: &mut Connection) -> Result<(), MigrateError> {
    if version(connection)? == STEPS.len() {
        return Ok(());
    }
    let to = STEPS.len();
    let failed = |source| MigrateError::Apply { to, source };
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Another process may have been first.
    let from = version(&transaction)?;
    for step in &STEPS[from..] {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction
        .pragma_update(None, "user_version", i64::try_from(to).unwrap_or(i64::MAX))
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Whether a database that cannot be written has the newest version.
pub(super) fn check(connection: &Connection) -> Result<(), MigrateError> {
    match (version(connection)?, STEPS.len()) {
        (found, known) if found < known => Err(MigrateError::Older { found, known }),
        _ => Ok(()),
    }
}

/// The number of the last step that this program knows.
pub(super) fn known() -> usize {
    STEPS.len()
}

/// The number of the last step applied, also by a newer program.
pub(super) fn found(connection: &Connection) -> rusqlite::Result<usize> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
    Ok(usize::try_from(found).unwrap_or(usize::MAX))
}

fn version(connection: &Connection) -> Result<usize, MigrateError> {
    let found = found(connection).map_err(|source| MigrateError::Read { source })?;
    if found > STEPS.len() {
        return Err(MigrateError::Newer {
            found,
            known: STEPS.len(),
        });
    }
    Ok(found)
}
