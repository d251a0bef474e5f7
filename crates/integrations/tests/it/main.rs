//! The adapters against stand-ins that remember.
#![allow(clippy::unwrap_used, reason = "a test says what it found by failing")]

mod github;
