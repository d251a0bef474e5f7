//! The commands for people at a terminal, run as the built binary with a home and a state directory
//! of their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod approvals;
mod audit;
mod backup;
mod config;
mod connect;
mod damage;
mod database;
mod db;
mod demo;
mod doctor;
mod help;
mod login;
mod policy;
#[path = "../../../../tests/support/postgres.rs"]
mod postgres;
mod pty;
mod serve;
mod stage;
mod standing;
mod streams;
mod tokens;
