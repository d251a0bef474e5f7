//! Ending a process with everything that it started, gently first.
//!
//! The first rung, asking by its protocol, is the driver's. Here are the others: an interrupt, which agents
//! take as the end of a turn; then the whole tree is told to terminate; then it is killed.

use std::collections::BTreeMap;

use countersign_gateway::job::driver::ProcessMark;
use countersign_sandbox::agent;
use rustix::process::Signal;

use super::launch::Process;
use super::mark;
use super::tree::{Tree, wait_until};
use crate::limits;

impl Process {
    /// Ends it and all that it started, and leaves nothing of it: whoever probes or checks again and again would leave a
    /// cgroup each time.
    pub(crate) async fn end(&self) {
        end(&self.mark, &self.tree).await;
        agent::forget(self.tree.mark());
    }
}

/// Ends a recorded process and all that carries the mark. The process is interrupted first, if it is still
/// the one that was recorded.
pub(crate) async fn end(process: &ProcessMark, tree: &Tree) {
    if mark::signal(process.pid, process.started, Signal::INT) {
        wait_until(limits::INTERRUPT_GRACE, || !mark::runs(process)).await;
    }
    end_rest(tree).await;
}

/// Ends what nobody looks after any more: what was recorded, and what carries the job's mark.
pub(crate) async fn reap(mark: &str, process: Option<ProcessMark>) {
    // Its parent is gone, or we are not it, so nobody is told; the tree is all that there is to wait for.
    end_rest(&Tree::of(mark, process)).await;
    agent::forget(mark);
}

async fn end_rest(tree: &Tree) {
    if let Err(survivors) = tree.end(&BTreeMap::new()).await {
        tracing::error!(pids = ?survivors.0, "processes of an agent could not be killed");
    }
}
