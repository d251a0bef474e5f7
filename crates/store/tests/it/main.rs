//! The store's tests. [`port`] is written against the gateway's port and runs on every backend;
//! the others look at what SQLite adds.

mod bench;
mod port;
