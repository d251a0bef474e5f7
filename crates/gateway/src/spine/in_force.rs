//! The policy in force, with what is made of it once and used by every call.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::Outlook;
use crate::audit::payload::Payload;
use crate::catalog::definition::ToolDefinition;
use crate::policy::actor::Context;
use crate::policy::effective::EffectivePolicy;
use crate::policy::sought::{self, Sought};
use crate::session::{Caller, Role};
use crate::tools::exec::request::CommandRequest;

/// A policy with the snapshots that records repeat.
pub(super) struct InForce {
    pub(super) policy: EffectivePolicy,
    pub(super) outlook: Outlook,
    /// Without a caller's keys.
    snapshot: Value,
    /// For callers outside of runs, by role.
    snapshots: Vec<(Role, Arc<Payload>)>,
    pub(super) digest: String,
    /// What callers outside of runs see, by role; made when the first one looks.
    pub(super) tools: [(Role, OnceLock<Arc<[ToolDefinition]>>); Role::ALL.len()],
}

impl InForce {
    pub(super) fn new(policy: EffectivePolicy, outlook: Outlook) -> Self {
        let snapshot = policy.snapshot();
        let of_role = |role: Role| (role, Arc::new(with_keys(&snapshot, &Context::of_role(role))));
        Self {
            snapshots: Role::ALL.into_iter().map(of_role).collect(),
            digest: snapshot["digest"].as_str().unwrap_or_default().to_owned(),
            tools: Role::ALL.map(|role| (role, OnceLock::new())),
            snapshot,
            policy,
            outlook,
        }
    }

    /// What the record of a decision repeats of the policy, with the keys that chose among its parts.
    pub(super) fn snapshot_for(&self, caller: &Caller) -> Arc<Payload> {
        let context = self.policy.context(caller);
        let known = self.snapshots.iter().find(|(role, _)| *role == context.role);
        match known {
            Some((_, snapshot)) if context.is_plain() => snapshot.clone(),
            _ => Arc::new(with_keys(&self.snapshot, &context)),
        }
    }

    /// What a request that does not run was about.
    pub(super) fn sought(&self, request: &CommandRequest) -> Sought {
        sought::sought(&self.policy, request, &self.outlook.surroundings())
    }
}

fn with_keys(snapshot: &Value, context: &Context<'_>) -> Payload {
    let mut snapshot = snapshot.clone();
    snapshot["keys"] = context.recorded();
    Payload::from(&snapshot)
}
