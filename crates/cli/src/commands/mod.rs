//! The commands, one file each.

pub(crate) mod exec;
pub(crate) mod serve;
pub(crate) mod stdio;
