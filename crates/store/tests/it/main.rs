//! The store's tests. What the gateway relies on is in [`behaviour`](on_sqlite) and runs on every backend; the others
//! look at what only one of them has.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench;
mod cluster;
mod files;
mod leading;
mod leases;
mod migrations;
mod moving;
mod nodes;
mod on_postgres;
mod on_sqlite;
mod plans;
#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
mod secured;
mod shared;
mod trouble;
