//! Configuration: many sources, one checked value.
//!
//! `load` finds the files, the environment and the flags, reads them all, merges them weakest first
//! and answers with `Settings`, or with every problem at once. Nothing here opens sockets, databases
//! or processes. Words: a *layer* is what one source says; a source *sets* or only *tightens*; a
//! *problem* stops the start, a *warning* says what was left out.

mod agents;
mod approvers;
mod declared;
mod load;
mod secret;
mod settings;

mod environment;
mod file;
mod insert;
mod standing;
mod surroundings;
mod trust;

pub(crate) mod init;
pub(crate) mod schema;
pub(crate) mod show;

mod keys;
mod shape;
mod tree;

mod check;
mod hidden;
mod merge;
mod origin;
mod tighten;
mod toolchains;
mod yaml;

#[cfg(test)]
mod tests;

pub(crate) use agents::{AgentSettings, built_in as built_in_agents};
pub(crate) use approvers::HttpApproverSettings;
pub(crate) use declared::problems_of as problems_of_tool_file;
pub(crate) use environment::find_database;
pub(crate) use hidden::AGENTS_OWN;
pub(crate) use load::{PROJECT_FILE, find_state_dir, inside, load};
pub(crate) use merge::Held;
pub(crate) use origin::{Problem, Problems, Source, Warning, nearest};
pub(crate) use settings::{APPROVERS, PlaceSettings, Settings, WhitelistEntry};
pub(crate) use standing::{OperatorsFile, Parts as StandingParts};
pub(crate) use surroundings::{Flags, Surroundings, all_homes};
pub(crate) use trust::{FILE_NAME as TRUSTED_FILE, trust};
