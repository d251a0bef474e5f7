//! S4's `project_databases`: each change over the version it was made from.

use countersign_gateway::audit::{Pending, RecordError};
use countersign_gateway::tools::database::keeping::{DatabaseChange, Databases, Kept};
use rusqlite::{Connection, Params, params};

use super::ledger::Ledger;
use super::{SqliteStore, acts, trouble};
use crate::rows::control::{DATABASE_COLUMNS, database};

const INSERT: &str = "INSERT INTO project_databases (database_name, project_id, environment, hold, mark, version,
         act_id, correlation_id, created_at_ms, updated_at_ms)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";
const ADVANCE: &str = "UPDATE project_databases SET hold = ?3, mark = ?4, version = ?5, act_id = ?6,
         correlation_id = ?7, updated_at_ms = ?8
     WHERE database_name = ?1 AND version = ?2";
const REMOVE: &str = "DELETE FROM project_databases WHERE database_name = ?1 AND version = ?2";

impl Ledger<'_> {
    /// False when the row does not stand where the change expects it, or the name is taken.
    pub(super) fn write_database(&self, change: &DatabaseChange) -> rusqlite::Result<bool> {
        let it = &change.database;
        let version = it.version.cast_signed();
        let rows = match change.from {
            Some(from) if change.is_gone => self.statement(REMOVE)?.execute(params![it.name, from.cast_signed()])?,
            Some(from) => self.statement(ADVANCE)?.execute(params![
                it.name,
                from.cast_signed(),
                it.hold.as_str(),
                it.mark,
                version,
                it.act.as_str(),
                it.correlation_id.as_str(),
                it.updated_at.as_millis(),
            ])?,
            None => self.statement(INSERT)?.execute(params![
                it.name,
                it.project,
                it.environment,
                it.hold.as_str(),
                it.mark,
                version,
                it.act.as_str(),
                it.correlation_id.as_str(),
                it.created_at.as_millis(),
                it.updated_at.as_millis(),
            ])?,
        };
        Ok(rows == 1)
    }
}

impl Databases for SqliteStore {
    fn find_database(&self, name: &str) -> Pending<Result<Option<Kept>, RecordError>> {
        let name = name.to_owned();
        self.read(move |readers| {
            let found = readers.read(|connection| select(connection, "WHERE database_name = ?1", [name.as_str()]));
            Ok(found.map_err(|error| trouble::unavailable(&error))?.pop())
        })
    }

    fn unsettled_databases(&self) -> Pending<Result<Vec<Kept>, RecordError>> {
        self.read(|readers| {
            let rest = "WHERE hold <> 'owned' ORDER BY updated_at_ms LIMIT 500";
            let found = readers.read(|connection| select(connection, rest, []));
            found.map_err(|error| trouble::unavailable(&error))
        })
    }
}

fn select(connection: &Connection, rest: &str, values: impl Params) -> rusqlite::Result<Vec<Kept>> {
    let sql = format!("SELECT {DATABASE_COLUMNS} FROM project_databases {rest}");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement
        .query_map(values, |row| database(row))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    rows.into_iter()
        .map(|database| {
            let is_under_way = acts::is_under_way(connection, database.act.as_str())?;
            Ok(Kept { database, is_under_way })
        })
        .collect()
}
