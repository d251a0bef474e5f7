//! The record on disk: the gateway's port [`Record`](countersign_gateway::audit::Record) on SQLite and on PostgreSQL.
//!
//! Rows are linked by hash, checkpoints over the chain are signed, and both can be proved without
//! trusting the database: [`prove`] walks a chain, [`export`] writes it to a file that verifies
//! alone. What an event means and what must stay out of it is decided in the gateway; this crate
//! only keeps it.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod db;
mod dump;
mod ended;
pub mod export;
mod health;
mod hex;
mod kept;
pub mod key;
mod known;
mod moved;
mod once;
pub mod postgres;
pub mod process;
pub mod prove;
mod proved;
mod random;
mod reading;
mod receipt;
mod rows;
mod run_token;
mod seal;

pub mod session_files;
pub mod sqlite;
mod store;
mod trouble;
mod waiting;
pub mod wake;
pub mod witness;

pub use postgres::PgStore;
pub use sqlite::{Durability, Options, SqliteStore};
pub use store::{OpenError, Store};
pub use trouble::Trouble;
