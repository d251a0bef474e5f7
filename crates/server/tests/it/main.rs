//! The protocol over byte streams, with a service that does what each test needs.

mod client;
mod fake;

mod calls;
mod framing;
mod lifecycle;
