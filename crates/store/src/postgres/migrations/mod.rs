//! The database's shape over time, on PostgreSQL: each step applied once. Numbers and names are those
//! of SQLite up to the jobs; what came later there came here in an order of its own.
//!
//! To add one, write the next `.sql` file here as well and append it to the list; a step that has shipped is never
//! edited. Nodes may start at once: one applies the steps, the others wait for it.

use super::link::Link;
use super::trouble::Trouble;

pub(super) const STEPS: &[&str] = &[
    include_str!("0001_record.sql"),
    include_str!("0002_sessions.sql"),
    include_str!("0003_approvals.sql"),
    include_str!("0004_logins.sql"),
    include_str!("0005_jobs.sql"),
    include_str!("0006_runs.sql"),
    include_str!("0007_acts.sql"),
    include_str!("0008_runs.sql"),
    include_str!("0009_github.sql"),
    include_str!("0010_control.sql"),
    include_str!("0011_delegated_executions.sql"),
    include_str!("0012_nodes_key.sql"),
    include_str!("0013_retention_of_runs.sql"),
    include_str!("0014_held_jobs.sql"),
    include_str!("0015_request_ids_in_order.sql"),
    include_str!("0016_asked_acts.sql"),
    include_str!("0017_what_acts_confide.sql"),
    include_str!("0018_ends_wanted.sql"),
    include_str!("0019_labels_of_waiting_runs.sql"),
    include_str!("0020_sealed_heads.sql"),
];

/// Any number that nobody else uses as a lock.
const LOCK: i64 = 0x636f_756e_7465_7273;

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("the database has version {found}, this program knows {known}: it was written by a newer program")]
    Newer { found: usize, known: usize },
    #[error(
        "the database keeps text as {found}, which cannot hold every text; make one with `CREATE DATABASE … ENCODING \
         'UTF8' TEMPLATE template0`"
    )]
    Encoding { found: String },
    #[error("the database's version cannot be read")]
    Read { source: Trouble },
    #[error("the database cannot be brought to version {to}")]
    Apply { to: usize, source: Trouble },
}

/// Brings a database to the newest version, in one transaction.
pub(super) fn apply(link: &Link) -> Result<(), MigrateError> {
    if version(link)? == STEPS.len() {
        return Ok(());
    }
    let to = STEPS.len();
    let outcome = steps(link, to);
    if outcome.is_err() {
        // The connection goes with the error; the transaction with it.
        let _ = link.batch("ROLLBACK");
    }
    outcome
}

fn steps(link: &Link, to: usize) -> Result<(), MigrateError> {
    let failed = |source| MigrateError::Apply { to, source };
    link.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))
        .map_err(failed)?;
    // Another node may have been first.
    let from = version(link)?;
    if from == 0 {
        check_encoding(link)?;
    }
    for step in &STEPS[from..] {
        link.batch(step).map_err(failed)?;
    }
    let noted = format!(
        "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL);
         DELETE FROM schema_version; INSERT INTO schema_version VALUES ({to}); COMMIT"
    );
    link.batch(&noted).map_err(failed)
}

/// Found out before anything is written: a record in another encoding stops at the first command with a letter that it
/// does not have.
fn check_encoding(link: &Link) -> Result<(), MigrateError> {
    let read = |source| MigrateError::Read { source };
    let found = link
        .query_one("SELECT current_setting('server_encoding')", &[])
        .map_err(read)?;
    match found.get::<_, String>(0) {
        utf8 if utf8 == "UTF8" => Ok(()),
        found => Err(MigrateError::Encoding { found }),
    }
}

/// The number of the last step applied; 0 for an empty database.
pub(super) fn version(link: &Link) -> Result<usize, MigrateError> {
    let read = |source| MigrateError::Read { source };
    let is_there = link
        .query_one("SELECT to_regclass('schema_version') IS NOT NULL", &[])
        .map_err(read)?;
    if !is_there.get::<_, bool>(0) {
        return Ok(0);
    }
    let found = link
        .query_one("SELECT version FROM schema_version", &[])
        .map_err(read)?
        .get::<_, i64>(0);
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    if found > STEPS.len() {
        let known = STEPS.len();
        return Err(MigrateError::Newer { found, known });
    }
    Ok(found)
}
