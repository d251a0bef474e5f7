//! Rows as they are read back, whichever database they come from.
//!
//! Both databases keep the same columns in the same order, so what a row means is said here once, and with it what is
//! decided by rows alone: who may write a job, how the command of a dead process ends. How rows are asked for and
//! written stays with each database: their languages differ just enough.

pub(crate) mod acts;
pub(crate) mod approvals;
pub(crate) mod commands;
pub(crate) mod control;
pub(crate) mod delegations;
pub(crate) mod events;
pub(crate) mod github;
pub(crate) mod jobs;
pub(crate) mod logins;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod tokens;

use countersign_gateway::clock::Timestamp;
use serde_json::Value;

/// One row, read by the places of its columns.
pub(crate) trait Cells {
    type Error;

    fn text(&self, column: usize) -> Result<String, Self::Error>;
    fn any_text(&self, column: usize) -> Result<Option<String>, Self::Error>;
    fn whole(&self, column: usize) -> Result<i64, Self::Error>;
    fn any_whole(&self, column: usize) -> Result<Option<i64>, Self::Error>;
    /// A number that is never large.
    fn number(&self, column: usize) -> Result<u32, Self::Error>;
    fn flag(&self, column: usize) -> Result<bool, Self::Error>;
    fn any_bytes(&self, column: usize) -> Result<Option<Vec<u8>>, Self::Error>;
    /// The bytes of a digest or a key.
    fn bytes(&self, column: usize) -> Result<[u8; 32], Self::Error>;

    /// A word that is none of ours where only ours may stand.
    fn damaged(column: usize) -> Self::Error;
    /// Text that is no JSON where only JSON may stand.
    fn malformed(column: usize, why: serde_json::Error) -> Self::Error;

    fn json(&self, column: usize) -> Result<Value, Self::Error> {
        serde_json::from_str(&self.text(column)?).map_err(|error| Self::malformed(column, error))
    }

    fn count(&self, column: usize) -> Result<u64, Self::Error> {
        Ok(self.whole(column)?.cast_unsigned())
    }

    fn any_count(&self, column: usize) -> Result<Option<u64>, Self::Error> {
        Ok(self.any_whole(column)?.map(i64::cast_unsigned))
    }

    fn time(&self, column: usize) -> Result<Timestamp, Self::Error> {
        Ok(Timestamp::from_millis(self.whole(column)?))
    }

    fn any_time(&self, column: usize) -> Result<Option<Timestamp>, Self::Error> {
        Ok(self.any_whole(column)?.map(Timestamp::from_millis))
    }
}

/// A limit as a database takes it.
pub(crate) fn at_most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The part of a question that names words of a closed list, or none of them. They are written into the question, one
/// alone as an equation: so the partial indexes have them.
pub(crate) fn one_of(column: &str, words: impl Iterator<Item = &'static str>) -> String {
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    match words.as_slice() {
        [] => "1 = 1".to_owned(),
        [only] => format!("{column} = {only}"),
        several => format!("{column} IN ({})", several.join(", ")),
    }
}
