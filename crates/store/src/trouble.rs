//! What a database says is wrong, whichever it is, in a sentence for whoever runs the gateway.

use crate::{postgres, sqlite};

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The sentence has all that SQLite says, which as a cause of it would be told once more.
    #[error("{}", sqlite::sentence(.0))]
    Sqlite(rusqlite::Error),
    #[error(transparent)]
    Postgres(#[from] postgres::Trouble),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}
