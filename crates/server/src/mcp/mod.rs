//! The Model Context Protocol, without a transport.
//!
//! A transport hands bytes to a [`connection::Connection`] together with an [`outlet::Outlet`], and
//! whatever has to be said comes out of that outlet as whole messages. Two eras meet here: *legacy*
//! revisions begin with `initialize` and have a session; the *modern* one has neither, each request
//! says in `_meta` how it wants to be understood.
//!
//! A request is either answered at once (`methods`) or is a [`job::Job`], which runs in a task of its
//! own and may hold a [`conversation::Conversation`] with its client meanwhile.

pub(crate) mod connection;
mod dispatch;

mod call;
mod following;
pub(crate) mod host;
mod refusing;
mod session;

pub(crate) mod methods;
pub(crate) mod modern;
pub(crate) mod revision;

mod completion;
mod prompts;
mod resources;
mod tools;

mod approving;
pub(crate) mod changes;
mod client;
mod conversation;
mod form;
mod job;
mod listening;
mod lists;
mod question;
pub(crate) mod questions;
mod rounds;
pub(crate) mod seal;
mod tasks;

mod extras;
mod fixtures;

pub(crate) mod jsonrpc;
mod memory;
pub(crate) mod outlet;
pub(crate) mod subject;
pub(crate) mod wire;

#[cfg(test)]
mod tests;
