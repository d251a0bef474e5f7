//! The protocol over byte streams, with a service that does what each test needs.
// Helpers of tests fail as loudly as tests do.
#![allow(clippy::unwrap_used)]

#[path = "../shared/mod.rs"]
mod shared;

mod client;
mod fake;
mod web;

mod calls;
mod conversation;
mod descriptors;
mod duplicates;
mod features;
mod framing;
mod http;
mod http_conversation;
mod http_guards;
mod http_legacy;
mod http_modern;
mod http_presence;
mod http_properties;
mod http_sessions;
mod http_sse;
mod http_streams;
mod http_tls;
mod lifecycle;
mod listening;
mod modern;
mod pressure;
mod properties;
mod rounds;
mod schemas;
mod tasks;
