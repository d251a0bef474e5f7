//! What a database says is wrong, whichever it is, in a sentence for whoever runs the gateway.

use crate::{postgres, sqlite};

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{}", sqlite::sentence(.0))]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Postgres(#[from] postgres::Trouble),
}
