//! Agent jobs: whole coding agents run as supervised work.
//!
//! What a job is and which steps it takes is said here; how a particular agent is spoken to is the
//! business of a [`driver`].

pub mod driver;
mod sink;
