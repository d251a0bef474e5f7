//! The sandbox against the real kernel: every layer, every attack we know, every way to end.
//!
//! Tests run in each setting this machine allows (root or ordinary user, with namespaces or without). A
//! setting or layer that is missing is skipped loudly; with COUNTERSIGN_REQUIRE_LAYERS=all it fails.

// Helpers of tests may fail as loudly as tests.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod agents;
mod attacks;
mod ending;
mod exec_list;
mod files;
mod kernel;
mod launching;
mod limits;
mod runner;
mod setting;
mod support;
mod tools;
