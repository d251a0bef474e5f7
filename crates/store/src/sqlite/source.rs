//! A record that is read to be moved: the file is this process's alone for as long as it takes.
//!
//! Whoever has the file open keeps it from being taken, an idle server included: what it wrote after the copy would be
//! in the file only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_gateway::audit::chain::Hash;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row};

use super::{CHAIN, site, trouble};

/// A command that is just ending may still have the file open.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Source {
    connection: Connection,
}

#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error(
        "other processes have the record `{path}` open; stop the server and every client that started one (`stdio`), then copy again"
    )]
    InUse { path: PathBuf },
    #[error("the record `{path}` cannot be read")]
    Read { path: PathBuf, source: rusqlite::Error },
}

impl Source {
    /// Takes the file, unless anybody else has it.
    pub(crate) fn take(directory: &Path) -> Result<Self, TakeError> {
        let path = directory.join(site::FILE_NAME);
        match open(&path) {
            Ok(connection) => Ok(Self { connection }),
            Err(error) if trouble::is_busy(&error) => Err(TakeError::InUse { path }),
            Err(source) => Err(TakeError::Read { path, source }),
        }
    }

    /// Place and hash of the chain's end.
    pub(crate) fn head(&self) -> rusqlite::Result<Option<(u64, Hash)>> {
        self.connection
            .query_row("SELECT seq, hash FROM chain_heads WHERE chain = ?1", [CHAIN], |row| {
                let hash = Hash::from_bytes(row.get(1)?);
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), hash))
            })
            .optional()
    }

    /// All tables, ours and others.
    pub(crate) fn tables(&self) -> rusqlite::Result<Vec<String>> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
        self.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    }

    pub(crate) fn columns(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        let sql = "SELECT name FROM pragma_table_info(?1)";
        self.connection
            .prepare(sql)?
            .query_map([table], |row| row.get(0))?
            .collect()
    }

    pub(crate) fn count(&self, table: &str) -> rusqlite::Result<u64> {
        let sql = format!("SELECT count(*) FROM {}", quoted(table));
        self.connection
            .query_row(&sql, [], |row| row.get::<_, i64>(0).map(i64::cast_unsigned))
    }

    /// Whether any row says something in this column.
    pub(crate) fn is_used(&self, table: &str, column: &str) -> rusqlite::Result<bool> {
        let sql = format!(
            "SELECT 1 FROM {} WHERE {} IS NOT NULL LIMIT 1",
            quoted(table),
            quoted(column)
        );
        self.connection.prepare(&sql)?.exists([])
    }

    /// Every row of a table, in the order in which they came where the table knows it.
    pub(crate) fn each<E: From<rusqlite::Error>>(
        &self,
        table: &str,
        columns: &[String],
        mut take: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let has_order: bool = self.connection.query_row(
            "SELECT NOT wr FROM pragma_table_list(?1) WHERE schema = 'main'",
            [table],
            |row| row.get(0),
        )?;
        let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
        let sql = format!(
            "SELECT {} FROM {}{}",
            columns.join(", "),
            quoted(table),
            if has_order { " ORDER BY rowid" } else { "" }
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // Before the first look: then the log is not shared, and whoever shares it already is in the way.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.execute_batch("BEGIN EXCLUSIVE; COMMIT; BEGIN")?;
    Ok(connection)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
