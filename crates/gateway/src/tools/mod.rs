//! The tools, one file or folder each.

pub mod exec;
