//! Agent jobs: whole coding agents run as supervised work.
//!
//! What a [`Job`](state::Job) is and which steps it takes is said here, without touching the world. How a
//! particular agent is spoken to is the business of a [`driver`]; jobs are kept by a store ([`keeping`])
//! and told in files for people and scripts ([`files`]).

pub mod lifecycle;

pub mod branch;
pub mod effort;
pub mod guidance;
pub mod input;
pub mod session;
pub mod state;

pub mod event;
mod words;

pub mod desk;
pub mod driver;
pub mod files;
pub mod keeping;
pub mod metrics;
pub mod news;
mod sink;

pub mod supervise;
