//! The Model Context Protocol, without a transport.
//!
//! A transport hands bytes to a [`dispatch::Connection`] together with an [`outlet::Outlet`], and
//! whatever has to be said comes out of that outlet as whole messages. Two eras meet here: *legacy*
//! revisions begin with `initialize` and have a session; the *modern* one has neither, each request
//! says in `_meta` how it wants to be understood.

pub(crate) mod dispatch;

mod call;
pub(crate) mod host;
mod methods;
pub(crate) mod modern;
mod progress;
mod resources;
pub(crate) mod revision;
mod tools;

pub(crate) mod jsonrpc;
mod memory;
pub(crate) mod outlet;
pub(crate) mod wire;
