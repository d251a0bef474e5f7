//! Agents' processes: started from nothing, told apart from all others, ended with all they started.
//!
//! A process is started as an ordinary user in its own session and cgroup, with an environment that is built,
//! not inherited. It is *piped*, when it speaks over its streams and ends with us, or *detached*, when it
//! listens on a socket and outlives us.

mod caller;
mod ladder;
mod launch;
mod lines;
mod mark;
mod place;
mod tree;

pub use caller::may_be_an_agent;
pub use launch::{Household, Launcher};
pub use mark::runs;
pub use tree::MARK;

pub(crate) use caller::user_of;
pub(crate) use ladder::{end, reap};
pub(crate) use launch::{Ending, Launch, Process, Streams, still, with_endpoint};
pub(crate) use lines::{Line, Lines};
pub(crate) use place::Place;
pub(crate) use tree::{STARTED_FOR, Tree, started_for};
