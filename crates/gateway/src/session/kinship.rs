//! Whose processes come in. An agent of a job has a token, by which its calls are its job's and its run's; without it the
//! agent would be anybody of this machine, so it is not let in without.

use std::net::SocketAddr;

use crate::audit::Pending;

/// Port: knows the processes of agents.
pub trait Kinship: Send + Sync + 'static {
    /// Whether whoever connected from `there` to us at `here` may be an agent of a job, or something that one started. In
    /// doubt they may.
    fn is_an_agent(&self, there: SocketAddr, here: SocketAddr) -> Pending<bool>;
}
