//! Confines one process.
