//! What the gateway says of itself: its verdicts, what waits, how commands were confined, and how jobs stand.
//!
//! The sandbox is counted as calls are answered. The rest is asked for when somebody reads the page.

use countersign_gateway::error::ErrorCode;
use countersign_gateway::job::lifecycle::JobStatus;
use countersign_gateway::policy::effective::Layer;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::{CodeLabels, Word, set};

/// The codes by which the sandbox stops a command, or is not there to confine it.
const REFUSALS: [ErrorCode; 4] = [
    ErrorCode::SandboxUnavailable,
    ErrorCode::MemoryLimitExceeded,
    ErrorCode::ProcessLimitExceeded,
    ErrorCode::CpuLimitExceeded,
];

pub(crate) struct Standing {
    verdicts: Family<VerdictLabels, Counter>,
    approvals_waiting: Gauge,
    jobs: Family<JobLabels, Gauge>,
    queue: Gauge,
    restarts: Counter,
    renewals: Counter,
    layers: Family<LayerLabels, Counter>,
    refusals: Family<CodeLabels, Counter>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct VerdictLabels {
    verdict: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct JobLabels {
    status: Word,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LayerLabels {
    layer: Word,
}

impl Standing {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let standing = Self {
            verdicts: Family::default(),
            approvals_waiting: Gauge::default(),
            jobs: Family::default(),
            queue: Gauge::default(),
            restarts: Counter::default(),
            renewals: Counter::default(),
            layers: Family::default(),
            refusals: Family::default(),
        };
        registry.register(
            "verdicts",
            "what policy said of calls and of agents' acts",
            standing.verdicts.clone(),
        );
        registry.register(
            "approvals_waiting",
            "questions that wait for a person",
            standing.approvals_waiting.clone(),
        );
        registry.register("jobs", "jobs of agents, by status", standing.jobs.clone());
        registry.register("queue", "jobs that wait for their turn", standing.queue.clone());
        let about = "agents that this server started again";
        registry.register("agent_restarts", about, standing.restarts.clone());
        let about = "times that the process which makes sandboxes was gone and made anew";
        registry.register("sandbox_restarts", about, standing.renewals.clone());
        let about = "commands that ran with this layer of confinement";
        registry.register("sandbox_layers", about, standing.layers.clone());
        let about = "commands that the sandbox stopped, or was not there to confine";
        registry.register("sandbox_refusals", about, standing.refusals.clone());
        standing
    }

    /// A command's result.
    pub(super) fn answered(&self, result: &Value) {
        let layers = result["sandbox"].as_array().into_iter().flatten();
        for layer in layers.filter_map(Value::as_str) {
            if let Some(layer) = Layer::parse(layer).map(Layer::as_str) {
                self.layers.get_or_create(&LayerLabels { layer: layer.into() }).inc();
            }
        }
        let code = result["error_code"].as_str().and_then(ErrorCode::parse);
        if let Some(code) = code.filter(|code| REFUSALS.contains(code)) {
            self.refusals.get_or_create(&CodeLabels::of(code)).inc();
        }
    }

    pub(crate) fn set_verdicts(&self, counted: Vec<(&'static str, u64)>) {
        for (verdict, count) in counted {
            let labels = VerdictLabels {
                verdict: verdict.into(),
            };
            raise(&self.verdicts.get_or_create(&labels), count);
        }
    }

    pub(crate) fn set_approvals_waiting(&self, count: usize) {
        set(&self.approvals_waiting, count);
    }

    pub(crate) fn set_restarts(&self, count: u64) {
        raise(&self.restarts, count);
    }

    pub(crate) fn set_sandbox_renewals(&self, count: u64) {
        raise(&self.renewals, count);
    }

    /// Every status is shown, so that one that nothing has left reads as none.
    pub(crate) fn set_jobs(&self, counts: &[(JobStatus, usize)]) {
        for status in JobStatus::ALL {
            let count = counts
                .iter()
                .find(|(known, _)| known == status)
                .map_or(0, |(_, count)| *count);
            let labels = JobLabels {
                status: status.as_str().into(),
            };
            set(&self.jobs.get_or_create(&labels), count);
            if *status == JobStatus::Pending {
                set(&self.queue, count);
            }
        }
    }
}

/// Brings a counter to a number that was counted elsewhere.
fn raise(counter: &Counter, count: u64) {
    counter.inc_by(count.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Metrics;
    use super::*;

    #[test]
    fn the_page_shows_what_waits_what_policy_said_and_how_commands_were_confined() {
        let metrics = Metrics::default();
        let standing = &metrics.standing;
        standing.answered(&json!({"sandbox": ["landlock", "seccomp", "made-up"], "error_code": null}));
        standing.answered(&json!({"sandbox": ["landlock"], "error_code": "MEMORY_LIMIT_EXCEEDED"}));
        standing.answered(&json!({"error_code": "COMMAND_TIMEOUT"}));
        standing.set_verdicts(vec![("allow", 3), ("ask", 1), ("deny", 0)]);
        standing.set_verdicts(vec![("allow", 5), ("ask", 1), ("deny", 0)]);
        standing.set_jobs(&[(JobStatus::Pending, 4), (JobStatus::Running, 2)]);
        standing.set_jobs(&[(JobStatus::Pending, 1)]);
        standing.set_approvals_waiting(7);
        standing.set_restarts(2);
        standing.set_sandbox_renewals(3);
        let page = metrics.render();
        for line in [
            r#"countersign_verdicts_total{verdict="allow"} 5"#,
            r#"countersign_verdicts_total{verdict="deny"} 0"#,
            r#"countersign_jobs{status="pending"} 1"#,
            r#"countersign_jobs{status="running"} 0"#,
            "countersign_queue 1",
            "countersign_approvals_waiting 7",
            "countersign_agent_restarts_total 2",
            "countersign_sandbox_restarts_total 3",
            r#"countersign_sandbox_layers_total{layer="landlock"} 2"#,
            r#"countersign_sandbox_refusals_total{code="MEMORY_LIMIT_EXCEEDED"} 1"#,
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("made-up"), "labels come from a closed list");
    }
}
