//! Rows of PostgreSQL, as [`crate::rows`] reads them.

use tokio_postgres::Row;

use super::trouble::Trouble;
use crate::rows::Cells;

impl Cells for Row {
    type Error = Trouble;

    fn text(&self, column: usize) -> Result<String, Trouble> {
        Ok(self.try_get(column)?)
    }

    fn any_text(&self, column: usize) -> Result<Option<String>, Trouble> {
        Ok(self.try_get(column)?)
    }

    fn whole(&self, column: usize) -> Result<i64, Trouble> {
        Ok(self.try_get(column)?)
    }

    fn any_whole(&self, column: usize) -> Result<Option<i64>, Trouble> {
        Ok(self.try_get(column)?)
    }

    fn number(&self, column: usize) -> Result<u32, Trouble> {
        let found: i64 = self.try_get(column)?;
        u32::try_from(found).map_err(|error| Trouble::damaged(column, error))
    }

    fn flag(&self, column: usize) -> Result<bool, Trouble> {
        Ok(self.try_get(column)?)
    }

    fn any_bytes(&self, column: usize) -> Result<Option<Vec<u8>>, Trouble> {
        Ok(self.try_get(column)?)
    }

    fn bytes(&self, column: usize) -> Result<[u8; 32], Trouble> {
        let found: &[u8] = self.try_get(column)?;
        found.try_into().map_err(|error| Trouble::damaged(column, error))
    }

    fn damaged(column: usize) -> Trouble {
        Trouble::damaged(column, "a word that is not known")
    }

    fn malformed(column: usize, why: serde_json::Error) -> Trouble {
        Trouble::damaged(column, why)
    }
}
