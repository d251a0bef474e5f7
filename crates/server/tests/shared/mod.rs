//! What tests of several crates use: whatever `tests/interop/setup` installs, and the published schemas.
//!
//! A test binary takes it in by its path:
//!
//!     #[path = "../../../server/tests/shared/mod.rs"]
//!     mod shared;
#![allow(dead_code, reason = "no test binary uses all of it")]
#![allow(clippy::print_stderr, reason = "a skip is said aloud")]

pub(crate) mod installed;
pub(crate) mod schema;
