//! What the gateway expects of a store, whatever keeps the record.

mod approvals;
mod crash;
mod exchanges;
mod export;
mod jobs;
mod logins;
mod port;
mod prune;
mod query;
mod questions;
mod reading;
mod sessions;
mod supervise;
mod sweep;
mod tamper;
pub(crate) mod tokens;
