//! The spine of Countersign: decides what an agent may do, and keeps the order of the stations.
//!
//! ```text
//! transport -> session -> catalog -> policy -> approval -> execution -> audit
//! ```
//!
//! No sockets, no SQL, no processes here: those are ports, declared by the station that needs them
//! and joined in the binary.
#![forbid(unsafe_code)]

pub mod service;
pub mod spine;

pub mod session;

pub mod catalog;

pub mod policy;

pub mod approval;

pub mod delegation;
pub mod execution;

pub mod audit;

pub mod job;
pub mod run;

pub mod github;

pub mod tools;

pub mod call;
pub mod commands;

pub mod clock;
pub mod error;
pub mod ids;
pub mod lease;
pub mod limits;
