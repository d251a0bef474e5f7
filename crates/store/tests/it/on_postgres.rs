//! Every behaviour, on PostgreSQL.

/// What the tests of behaviour find under this name.
mod bench {
    pub(crate) use crate::bench::*;

    pub(crate) type Bench = crate::bench::Bench<Postgres>;
}

#[allow(clippy::duplicate_mod, reason = "one suite, every backend")]
#[path = "behaviour/mod.rs"]
mod behaviour;
