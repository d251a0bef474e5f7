//! The commands, one file or folder each.

pub(crate) mod exec;
pub(crate) mod hook;
pub(crate) mod serve;
pub(crate) mod stdio;

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod db;
pub(crate) mod jobs;
pub(crate) mod metrics;
pub(crate) mod policy;
pub(crate) mod runs;
pub(crate) mod sessions;
pub(crate) mod tokens;

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod demo;
pub(crate) mod doctor;
