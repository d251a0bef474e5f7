//! The store's tests. What the gateway relies on is in [`behaviour`](on_sqlite) and runs on every backend; the others
//! look at what only one of them has.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench;
mod cluster;
mod files;
mod leases;
mod migrations;
mod nodes;
mod on_postgres;
mod on_sqlite;
#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
mod shared;
mod trouble;
