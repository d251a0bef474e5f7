//! Stand-ins for other people's services, for tests: they keep state as the real ones do, listen on this
//! machine only, and hold what they are asked and what they answer against what the service has published.
//!
//! Nothing that ships depends on this crate.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a stand-in in a test says what is wrong by failing")]

pub mod github;
pub mod kubernetes;

pub mod disguise;
pub mod http;
