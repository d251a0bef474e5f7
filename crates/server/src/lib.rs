//! The edge that speaks: MCP over standard input and output, and a small HTTP listener.
//!
//! Transports are thin. They cut bytes into messages and carry answers back; what a message means is
//! said once, in `mcp`, over a call key of our own, so that a client's ids never decide where an
//! answer goes. What a tool does is the gateway's business.
#![forbid(unsafe_code)]

mod mcp;

mod console;
pub mod http;
pub mod office;
mod rest;
pub mod stdio;
mod strict;

pub mod limits;
mod logged;
mod metrics;
