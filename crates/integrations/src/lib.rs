//! The world outside: what Countersign asks, tells and changes over the network.
#![forbid(unsafe_code)]

pub mod approver;
pub mod courier;
pub mod github;
pub mod github_secrets;
pub mod http;
mod keeper;
pub mod kubernetes;
pub mod postgres;
pub mod vault;
