//! Coding agents: how each is spoken to, and how their processes are looked after.
#![forbid(unsafe_code)]
