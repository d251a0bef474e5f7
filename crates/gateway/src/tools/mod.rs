//! The tools, one file or folder each.

pub mod acts;
pub mod exec;
pub mod jobs;
pub mod labels;
pub mod prompt;
pub mod runs;
