//! How the file is, asked without changing it; and brought up to date by itself.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::site::{self, OpenError, Site};
use super::{BUSY_TIMEOUT, Options, migrations};
use crate::db::{ChainEnd, Condition, ConditionError, Migrated};
use crate::{Trouble, hex, moved};

pub(crate) fn of(directory: &Path) -> Result<Condition, ConditionError> {
    let read = |source: rusqlite::Error| ConditionError::Read(Trouble::from(source));
    let path = directory.join(site::FILE_NAME);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(read)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(read)?;
    let mut condition = look(&connection).map_err(read)?;
    condition.moved = moved::to(directory).map_err(|source| {
        let path = directory.to_owned();
        ConditionError::Open(OpenError::Directory { path, source }.into())
    })?;
    Ok(condition)
}

pub(crate) fn migrate(directory: &Path, options: Options) -> Result<Migrated, OpenError> {
    let path = directory.join(site::FILE_NAME);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = Connection::open_with_flags(&path, flags)
        .and_then(|connection| migrations::found(&connection))
        .map_err(|trouble| OpenError::Connect { path, trouble })?;
    // What every process does that opens the record.
    Site::prepare(directory, options)?;
    let to = migrations::known();
    Ok(Migrated { from, to })
}

fn look(connection: &Connection) -> rusqlite::Result<Condition> {
    connection.pragma_update(None, "query_only", true)?;
    let moment = connection.unchecked_transaction()?;
    let pages: i64 = moment.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let page: i64 = moment.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let mut condition = Condition {
        version: migrations::found(&moment)?,
        known: migrations::known(),
        bytes: (pages * page).cast_unsigned(),
        tables: Vec::new(),
        chains: Vec::new(),
        nodes: Vec::new(),
        moved: None,
    };
    if condition.version == 0 {
        return Ok(condition);
    }
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
         ORDER BY name";
    let mut statement = moment.prepare(sql)?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    for name in names {
        let name = name?;
        let sql = format!("SELECT count(*) FROM \"{name}\"");
        let rows: i64 = moment.query_row(&sql, [], |row| row.get(0))?;
        condition.tables.push((name, rows.cast_unsigned()));
    }
    // As the tables tell it; nothing follows from it.
    let pruned = "SELECT coalesce(max(seq), 0) FROM checkpoints WHERE kind = 'prune'";
    let pruned = moment
        .query_row(pruned, [], |row| row.get::<_, i64>(0))?
        .cast_unsigned();
    let mut statement = moment.prepare("SELECT chain, seq, hash, checkpointed FROM chain_heads ORDER BY chain")?;
    let ends = statement.query_map([], |row| {
        Ok(ChainEnd {
            chain: row.get(0)?,
            first_seq: pruned + 1,
            last_seq: row.get::<_, i64>(1)?.cast_unsigned(),
            hash: hex::encode(&row.get::<_, [u8; 32]>(2)?),
            checkpointed: row.get::<_, i64>(3)?.cast_unsigned(),
            public_key: None,
        })
    })?;
    condition.chains = ends.collect::<rusqlite::Result<_>>()?;
    Ok(condition)
}
