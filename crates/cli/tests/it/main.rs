//! The product as its users and its enemies meet it: the built binary, over stdio.
//!
//! `bench` gives each test its own directories, `client` speaks to the server and holds every answer
//! against the contract, `record` reads what was left behind. The rest is one file per promise.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test says what it found by failing"
)]

#[path = "../../../server/tests/shared/mod.rs"]
mod shared;

#[path = "../../../agents/tests/shared/mod.rs"]
mod agents;

#[path = "../../../../tests/support/postgres.rs"]
mod postgres;

mod bench;
mod client;
mod outside;
mod record;
mod web;
mod witnessed;

mod execution;
mod model;

mod kernel;
mod reading;

mod hostile;
mod mounted;
mod places;
mod privacy;
mod prompt;
mod temporary;

mod descriptors;
mod pressure;
mod trees;

mod advised;
mod arguments;
mod long;
mod queue;

mod settings;
mod shown;
mod telemetry;
mod untrusted;

mod adapter;
mod approvals;
mod approvers;
mod callbacks;
mod consulted;
mod crash;
mod declared;
mod doors;
mod invocations;
mod jobs;
mod questions;
mod repeated;
mod retention;
mod rounds;
mod runs;
mod unrecorded;
mod watched;

mod exec;
mod github;
mod rest;

mod control;

mod nodes;
