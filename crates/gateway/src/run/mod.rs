//! Runs: work that a label of an issue, a review or a person set off, and that one agent does.
//!
//! A [`Run`](state::Run) says for which issue, by whom and under which label; the label, the agent and the
//! project choose the policy of everything that is called with the run's token. What a run is and which
//! steps it takes is said here, without touching the world; runs are kept by a store ([`keeping`]).

pub mod lifecycle;
pub mod state;

pub mod keeping;
pub mod session;
pub mod telling;
