//! The command's own audit record.
