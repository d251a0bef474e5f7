//! Mode `on-failure`: whether a command that failed may be asked about again, without its confinement.
//!
//! A guess from the outside: the kernel does not say whom it refused. So it is only ever a question, and
//! the question says that the first run may have done part of its work.

use super::decide::{Question, Rule};
use super::effective::{EffectivePolicy, Mode, Network, SandboxMode};
use super::plan::{ExecRights, Plan};
use crate::execution::How;

/// What refused programs usually print.
const SIGNS: [&str; 7] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "network is unreachable",
    "could not resolve host",
    "temporary failure in name resolution",
    "bad system call",
];

/// The signal of a refused system call.
const SIGSYS: i32 = 31;

/// The question whether to run a plan again without confinement; none where it did not seem to matter.
pub fn question(policy: &EffectivePolicy, plan: &Plan, how: &How, output: &str) -> Option<Question> {
    let confined = plan.sandbox != SandboxMode::DangerFullAccess;
    if policy.approval.mode != Mode::OnFailure || !confined || !seems_refused(how, output) {
        return None;
    }
    let mut unconfined = plan.clone();
    unconfined.sandbox = SandboxMode::DangerFullAccess;
    unconfined.network = Network::Allow;
    unconfined.exec = ExecRights::Any;
    let rule = Rule {
        name: "mode on-failure".to_owned(),
        source: policy.rule_sources.mode.clone(),
        reason: "it failed, and its confinement seems to be why; run it again without? The first run may have done part of its work"
            .to_owned(),
    };
    Some(Question::new(unconfined, rule))
}

fn seems_refused(how: &How, output: &str) -> bool {
    match how {
        How::Signalled(signal) => *signal == SIGSYS,
        How::Exited(0) => false,
        How::Exited(_) => {
            let output = output.to_lowercase();
            SIGNS.iter().any(|sign| output.contains(sign))
        }
        How::TimedOut
        | How::Cancelled
        | How::MemoryLimit(_)
        | How::ProcessLimit(_)
        | How::CpuLimit(_)
        | How::Lost(_)
        | How::NotStarted(_)
        | How::NotRecorded(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_that_look_like_refusals_are_asked_about() {
        assert!(seems_refused(&How::Exited(1), "touch: /etc/x: Permission denied"));
        assert!(seems_refused(
            &How::Exited(6),
            "curl: (6) Could not resolve host: example.org"
        ));
        assert!(seems_refused(&How::Signalled(SIGSYS), ""));
        assert!(!seems_refused(&How::Exited(0), "permission denied"));
        assert!(!seems_refused(&How::Exited(1), "no such file"));
        assert!(!seems_refused(&How::TimedOut, "permission denied"));
    }
}
