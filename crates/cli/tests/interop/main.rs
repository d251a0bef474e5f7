//! The product as other people's programs meet it: SDKs of both eras, the inspector, the conformance
//! suite and a fuzzer, over every transport they speak.
//!
//! `tests/interop/setup` installs them. `server` is the product to talk to, `foreign` runs a program
//! that is not ours, and the rest is one file per kind of client.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test says what it found by failing"
)]

#[path = "../../../server/tests/shared/mod.rs"]
mod shared;

#[allow(dead_code, reason = "the product's tests use the rest")]
#[path = "../it/bench.rs"]
mod bench;

mod foreign;
mod server;

mod conformance;
mod fuzzer;
mod inspector;
mod rust_sdk;
mod sdks;
