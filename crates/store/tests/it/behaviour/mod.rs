//! What the gateway expects of a store, whatever keeps the record.

mod acts;
mod approvals;
mod control;
pub(crate) mod crash;
mod delegations;
mod exchanges;
mod export;
mod github;
mod jobs;
mod logins;
mod port;
mod proofs;
mod prune;
mod query;
mod questions;
mod reading;
mod retention;
mod run_tokens;
pub(crate) mod runs;
mod sessions;
mod supervise;
mod sweep;
mod tamper;
pub(crate) mod tokens;
