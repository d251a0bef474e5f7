//! Execution: what runs, and what it left.

pub mod output;
