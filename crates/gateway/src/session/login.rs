//! Logins: how a person's browser is known again.
//!
//! A browser comes in with a code that works once, printed by whoever can use the state directory, or with
//! a token. It leaves with a secret of its own in a cookie. Only digests of codes and secrets are kept; a
//! login ends by itself, by logging out, and with the token that it was made from.

use std::time::Duration;

use super::Caller;
use super::credential::Credential;
use crate::audit::{Pending, RecordError};

/// How long a code waits for its browser.
pub const CODE_LIVES: Duration = Duration::from_secs(15 * 60);
/// A working day; then a person logs in again.
pub const BROWSER_LIVES: Duration = Duration::from_secs(12 * 60 * 60);

/// A browser that has just come in: the only moment at which its secret can be read.
#[derive(Debug)]
pub struct Entered {
    pub secret: String,
    pub caller: Caller,
}

/// Port: logins as a store keeps them, for every process of a state directory.
pub trait Logins: Send + Sync + 'static {
    /// Makes a code that lets one browser in, once and soon, as the person who asks for it.
    fn issue(&self, person: &Caller) -> Pending<Result<String, RecordError>>;

    /// Uses a code up. None when it was never made, was used before, or is too old.
    fn redeem(&self, code: &str) -> Pending<Result<Option<Entered>, RecordError>>;

    /// Lets a browser in by a token.
    fn enter(&self, credential: &Credential) -> Pending<Result<Entered, RecordError>>;

    /// Whose browser this is; none when its login has ended.
    fn who(&self, secret: &str) -> Pending<Result<Option<Caller>, RecordError>>;

    /// Ends a login.
    fn leave(&self, secret: &str) -> Pending<Result<(), RecordError>>;
}
