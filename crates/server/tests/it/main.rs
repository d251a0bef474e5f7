//! The protocol over byte streams, with a service that does what each test needs.
// Helpers of tests fail as loudly as tests do.
#![allow(clippy::unwrap_used)]

#[path = "../shared/mod.rs"]
mod shared;

mod client;
mod fake;

mod calls;
mod descriptors;
mod duplicates;
mod framing;
mod http;
mod lifecycle;
mod modern;
mod pressure;
mod properties;
mod schemas;
