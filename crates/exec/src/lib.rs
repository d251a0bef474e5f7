//! The executor: runs cleared plans in the sandbox.
//!
//! [`Machine`] answers policy's questions about programs and directories; [`SandboxExecutor`] takes a
//! cleared plan, has a keeper prepare it, and lets it start once the record is durable. Plain lines
//! run in [`runner`], inside the sandbox.
#![forbid(unsafe_code)]

mod executor;
mod existing;
mod homes;
mod pool;
mod profile;
mod running;
mod steering;
mod temporary;

mod environment;
mod identity;
mod runner;

mod machine;

/// The parts of the sandbox that the binary handles itself: the processes to fork first, what this machine
/// offers, what a start leaves in memory, what a path leads to, and what happens at the limit to the size of files.
pub use countersign_sandbox::directory::real_name;
pub use countersign_sandbox::{Zygote, ZygoteError, first, fsize, memory, probe};
pub use executor::SandboxExecutor;
pub use homes::forget_homes;
pub use identity::{
    AgentUser, advice as advice_on_user, obstacle as obstacle_to_user, of_agents as user_of_agents,
    remedy as remedy_of_owner,
};
pub use machine::Machine;
pub use pool::Directories;
pub use steering::git_directory;
pub use temporary::{Temporaries, TemporaryError};
