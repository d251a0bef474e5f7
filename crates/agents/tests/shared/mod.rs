//! What tests of several crates use to run real coding agents: the programs that `tests/agents/setup`
//! installs, and model servers of ours on loopback.
//!
//! A test binary takes it in by its path:
//!
//!     #[path = "../../../agents/tests/shared/mod.rs"]
//!     mod agents;
#![allow(dead_code, reason = "no test binary uses all of it")]
#![allow(clippy::print_stderr, reason = "a skip is said aloud")]

pub(crate) mod fakes;
pub(crate) mod installed;
pub(crate) mod marked;
