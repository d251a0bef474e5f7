//! Which tools exist, who sees them, and how their arguments are read.

pub mod arguments;
pub mod definition;
