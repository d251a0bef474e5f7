//! The drivers with real agents: their own programs, against model servers of ours on loopback.
//!
//! Agents are installed by `tests/agents/setup`. Without them these tests say that they are skipped; with
//! COUNTERSIGN_REQUIRE_AGENTS=1 or CI=true they fail. Nothing here reaches a network.

// Helpers of tests may fail as loudly as tests.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "../shared/mod.rs"]
mod shared;

mod acp;
mod claude;
mod codex;
mod codex_exec;
mod drift;
mod house;
mod jsonl;
