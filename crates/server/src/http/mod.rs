//! The HTTP listener.
