//! Every behaviour, on PostgreSQL.

/// What the tests of behaviour find under this name.
pub(crate) mod bench {
    pub(crate) use crate::bench::*;

    pub(crate) type Bench = crate::bench::Bench<Postgres>;
}

#[allow(clippy::duplicate_mod, reason = "one suite, every backend")]
#[path = "behaviour/mod.rs"]
pub(crate) mod behaviour;
