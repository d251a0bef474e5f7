//! Confines one command by the kernel, ends its whole process tree, and does both even when the server
//! itself is killed.
//!
//! Words used throughout:
//!
//! * a *profile* says what a command may touch: user, mode, paths, network, limits;
//! * a *keeper* is a process that holds one profile's namespaces and cgroups and runs one command at a
//!   time in them, so that a call pays for neither;
//! * the *zygote* is forked at the very start of the server, small and without secrets, and makes keepers;
//! * a *launch* is one command sent to a keeper; it is set up at once and waits at the *gate* until the
//!   server says go, so that the set-up overlaps with writing the record;
//! * an *agent* is a long-lived process that is hidden things from rather than confined;
//! * a *layer* is one kind of confinement; a keeper reports those in force and why others are missing.
//!
//! This is the only crate with `unsafe`. It decides nothing about policy and knows no other crate of ours.

#![deny(clippy::undocumented_unsafe_blocks)]

mod layer;
mod profile;

mod launch;
pub mod streams;
pub mod wire;

pub mod first;
pub mod fsize;

mod zygote;

mod keeper;

pub mod agent;

pub mod cgroup;
mod landlock;
mod rlimit;
mod seccomp;

pub mod directory;
pub mod emptying;
pub mod program;
pub mod runner;

pub mod memory;
pub mod mounted;
mod opened;
pub mod probe;

mod sys;

pub use keeper::is_absent;
pub use keeper::report::{KeeperReport, SetupError};
pub use landlock::{SYSTEM as READABLE_BY_ALL, abi as landlock_abi};
pub use launch::{
    Body, Ending, ExecList, ExecRights, Hits, Launch, Outcome, Reply, ScriptCheck, Step, Unchanged, Usage,
};
pub use layer::{Layer, UnknownLayer};
pub use profile::{Identity, Limits, Mode, Network, NoExec, Profile, ProfileError};
pub use zygote::{KeeperHandle, Options, Zygote, ZygoteError, serve_on_stdin};
