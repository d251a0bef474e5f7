//! The console as a person meets it: the real binary, and a real browser that clicks and types.
//!
//! `tests/console/setup` installs what drives the browser; the cases themselves are in `tests/console`,
//! in the browser's own language. Here is the server they meet, and the list of what must hold.
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
#[allow(dead_code, reason = "the tests with other clients use the rest")]
#[path = "../interop/foreign.rs"]
mod foreign;
#[allow(dead_code, reason = "the tests with other clients use the rest")]
#[path = "../interop/server.rs"]
mod server;

mod browser;

use browser::Site;

#[test]
fn a_token_logs_in_and_out() {
    Site::new().case("a_token_logs_in_and_out");
}

#[test]
fn approving_by_mouse_lets_the_call_run() {
    Site::new().case("approving_by_mouse_lets_the_call_run");
}
