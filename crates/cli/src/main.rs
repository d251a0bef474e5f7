//! The binary.
#![forbid(unsafe_code)]

mod config;

fn main() {}
