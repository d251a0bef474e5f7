//! The store's tests. What the gateway relies on is in [`behaviour`](on_sqlite) and runs on every backend; the others
//! look at what only one of them has.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod acts;
mod bench;
mod cluster;
mod files;
mod github;
mod migrations;
mod nodes;
mod on_postgres;
mod on_sqlite;
#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
mod retention;
mod run_tokens;
mod runs;
mod trouble;
