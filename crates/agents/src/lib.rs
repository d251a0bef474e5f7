//! Coding agents: how each is spoken to, and how their processes are looked after.
//!
//! A *driver* knows one protocol. [`process`] starts agents, finds everything that they started, and ends it.
//! Between them is [`speech`]: agents that talk over pipes differ only in what their lines mean, so a driver
//! of that kind is a pure reading of lines.
//!
//! Nothing here decides. What an agent asks goes to whoever follows its events, and an answer comes back.

#![forbid(unsafe_code)]

pub mod limits;
pub mod process;

mod speech;
mod turns;

mod acp;
mod claude_stream;
mod codex_app_server;
mod codex_exec;
mod jsonl;

mod probe;

pub use acp::Acp;
pub use claude_stream::ClaudeStream;
pub use codex_app_server::CodexAppServer;
pub use codex_exec::CodexExec;
pub use jsonl::{Definition, EventFormat, Health, HealthMethod, InputMode, Jsonl, Parsing};
pub use process::{Household, Launcher};
