//! Rows of SQLite, as [`crate::rows`] reads them.

use rusqlite::Row;
use rusqlite::types::Type;

use crate::rows::Cells;

impl Cells for Row<'_> {
    type Error = rusqlite::Error;

    fn text(&self, column: usize) -> rusqlite::Result<String> {
        self.get(column)
    }

    fn any_text(&self, column: usize) -> rusqlite::Result<Option<String>> {
        self.get(column)
    }

    fn whole(&self, column: usize) -> rusqlite::Result<i64> {
        self.get(column)
    }

    fn any_whole(&self, column: usize) -> rusqlite::Result<Option<i64>> {
        self.get(column)
    }

    fn number(&self, column: usize) -> rusqlite::Result<u32> {
        self.get(column)
    }

    fn flag(&self, column: usize) -> rusqlite::Result<bool> {
        self.get(column)
    }

    fn any_bytes(&self, column: usize) -> rusqlite::Result<Option<Vec<u8>>> {
        self.get(column)
    }

    fn bytes(&self, column: usize) -> rusqlite::Result<[u8; 32]> {
        self.get(column)
    }

    fn damaged(column: usize) -> rusqlite::Error {
        rusqlite::Error::InvalidColumnType(column, "a word that is not known".to_owned(), Type::Text)
    }

    fn malformed(column: usize, why: serde_json::Error) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(why))
    }
}
