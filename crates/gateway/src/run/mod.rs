//! Runs: work that a label of an issue, a review or a person set off, and that one agent does.
//!
//! A [`Run`](state::Run) says for which issue, by whom and under which label; the label, the agent and the
//! project choose the policy of everything that is called with the run's token. What a run is and which
//! steps it takes is said here, without touching the world; runs are kept by a store ([`keeping`]). They are
//! set off and called back at the [`desk`]; the [`steward`] gives each its turn, as a job of an agent, and
//! ends it with that job or when its time is over.

pub mod lifecycle;
pub mod state;

pub mod desk;
pub mod manual;
pub mod map;
pub mod profile;
pub mod prompt;
pub mod steward;

pub mod keeping;
pub mod session;
pub mod telling;
pub mod view;
