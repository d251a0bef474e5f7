//! The product as other people's programs meet it: SDKs of both eras, the inspector, the conformance
//! suite and a fuzzer, over every transport they speak, and a stranger who reads the document of the REST routes.
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

#[allow(dead_code, reason = "the product's tests use the rest")]
#[path = "../it/rest/office.rs"]
mod office;

mod foreign;
mod server;

mod conformance;
mod fuzzer;
mod inspector;
mod openapi;
mod rust_sdk;
mod sdks;
