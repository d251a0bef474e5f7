//! The store's tests. [`port`] is written against the gateway's port and runs on every backend;
//! the others look at what SQLite adds.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod acts;
mod approvals;
mod bench;
mod cluster;
mod crash;
mod exchanges;
mod export;
mod jobs;
mod logins;
mod migrations;
mod port;
#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
mod prune;
mod query;
mod questions;
mod reading;
mod runs;
mod sessions;
mod supervise;
mod sweep;
mod tamper;
mod tokens;
mod trouble;
