//! The tools, one file or folder each.

pub mod acts;
pub mod control;
pub mod database;
pub mod declared;
pub mod exec;
pub mod feedback;
pub mod jobs;
pub mod labels;
pub mod prompt;
pub mod runs;
pub mod secrets;
