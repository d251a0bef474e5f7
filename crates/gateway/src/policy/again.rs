//! Mode `on-failure`: whether a command that failed may be asked about again, without its confinement.
//!
//! A guess from the outside: the kernel does not say whom it refused. So it is only ever a question, and
//! the question says that the first run may have done part of its work.

use super::decide::{Question, Rule};
use super::effective::{EffectivePolicy, Mode, Network, SandboxMode};
use super::plan::{ExecRights, Plan};
use crate::execution::How;

/// What refused programs usually print.
const SIGNS: [&str; 4] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "bad system call",
];

/// What programs print that reach nobody. It points at the confinement only where that takes the network away.
const SIGNS_WITHOUT_NETWORK: [&str; 9] = [
    "network is unreachable",
    "no route to host",
    "connection refused",
    "failed to connect",
    "couldn't connect to server",
    "could not resolve host",
    "unable to resolve host",
    "name or service not known",
    "temporary failure in name resolution",
];

/// Programs that may be told to be quiet, and then say by their status alone that they reached nobody.
const STATUSES_WITHOUT_NETWORK: [(&str, i32); 3] = [("curl", 6), ("curl", 7), ("wget", 4)];

/// The signal of a refused system call.
const SIGSYS: i32 = 31;

/// The question whether to run a plan again without confinement; none where it did not seem to matter.
pub fn question(policy: &EffectivePolicy, plan: &Plan, how: &How, output: &str) -> Option<Question> {
    let confined = plan.sandbox != SandboxMode::DangerFullAccess;
    if policy.approval.mode != Mode::OnFailure || !confined || !seems_refused(plan, how, output) {
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

fn seems_refused(plan: &Plan, how: &How, output: &str) -> bool {
    match how {
        How::Signalled(signal) => *signal == SIGSYS,
        How::Exited(0) => false,
        How::Exited(status) => {
            let output = output.to_lowercase();
            says(&SIGNS, &output) || lacks_network(plan, *status, &output)
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

fn says(signs: &[&str], output: &str) -> bool {
    signs.iter().any(|sign| output.contains(sign))
}

/// Whether a command that failed seems to lack the network, which it does not have; `output` in small letters.
pub(crate) fn lacks_network(plan: &Plan, status: i32, output: &str) -> bool {
    plan.sandbox != SandboxMode::DangerFullAccess
        && plan.network == Network::Deny
        && (says(&SIGNS_WITHOUT_NETWORK, output) || reached_nobody(plan, status))
}

/// Whether a program of the plan means by this status that it reached nobody.
fn reached_nobody(plan: &Plan, status: i32) -> bool {
    let names = plan.program_names();
    let is_named = |program: &str| {
        let base = |name: &String| name.rsplit('/').next() == Some(program);
        names.iter().any(base)
    };
    STATUSES_WITHOUT_NETWORK
        .iter()
        .any(|(program, meant)| *meant == status && is_named(program))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::explain::tests::explained;
    use crate::policy::standing::tests::{World, policy};

    /// The plan of a line, with or without a network.
    fn plan(line: &str, network: Network) -> Plan {
        let mut policy = policy();
        policy.approval.mode = Mode::OnFailure;
        let mut plan = explained(&policy, &World, json!({"command": line}))
            .plan
            .expect("it is planned");
        plan.network = network;
        plan
    }

    #[test]
    fn only_failures_that_look_like_refusals_are_asked_about() {
        let plan = plan("make x", Network::Allow);
        let seems_refused = |how: &How, output: &str| seems_refused(&plan, how, output);
        assert!(seems_refused(&How::Exited(1), "touch: /etc/x: Permission denied"));
        assert!(seems_refused(&How::Signalled(SIGSYS), ""));
        assert!(!seems_refused(&How::Exited(0), "permission denied"));
        assert!(!seems_refused(&How::Exited(1), "no such file"));
        assert!(!seems_refused(&How::TimedOut, "permission denied"));
    }

    #[test]
    fn reaching_nobody_points_at_the_confinement_where_the_network_is_denied() {
        for (line, status, output) in [
            (
                "curl -sS example.org",
                6,
                "curl: (6) Could not resolve host: example.org",
            ),
            (
                "curl -sS 127.0.0.1:1",
                7,
                "curl: (7) Failed to connect to 127.0.0.1 port 1",
            ),
            ("curl -sS 127.0.0.1:1", 7, "curl: (7) Couldn't connect to server"),
            ("nc 127.0.0.1 1", 1, "connect: Connection refused"),
            ("make x", 2, "socket.gaierror: [Errno -2] Name or service not known"),
            // The quiet ones.
            ("curl -s example.org", 6, ""),
            ("curl -s 127.0.0.1:1", 7, ""),
            ("/usr/bin/wget -q example.org", 4, ""),
            ("for i in 1 2; do curl -s $i; done", 7, ""),
        ] {
            let asks = |network: Network| seems_refused(&plan(line, network), &How::Exited(status), output);
            assert!(asks(Network::Deny), "{line}");
            assert!(!asks(Network::Allow), "{line}");
        }
        let denied = |line: &str, status: i32| seems_refused(&plan(line, Network::Deny), &How::Exited(status), "");
        assert!(!denied("curl -s example.org", 22));
        assert!(!denied("make x", 7));
        assert!(!denied("curl -s example.org", 0));
    }
}
