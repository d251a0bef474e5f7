//! Another policy while calls come in. The record has it first: no record, no change. Calls that were
//! decided go on under the policy that decided them, unless the one in force when a person says yes denies them; an
//! approval counts under its own policy only.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use super::Gateway;
use super::in_force::InForce;
use crate::audit::event::{Actor, Draft, EventType};
use crate::audit::{Change, RecordError};
use crate::policy::allowlist::Programs;
use crate::policy::content::layers;
use crate::policy::decide::Surroundings;
use crate::policy::effective::EffectivePolicy;
use crate::policy::places::Directories;

/// The machine as a policy sees it: where programs are found, and what is passed on to them.
#[derive(Clone)]
pub struct Outlook {
    pub programs: Arc<dyn Programs + Send + Sync>,
    pub directories: Arc<dyn Directories>,
    pub environment: BTreeMap<String, String>,
}

impl Outlook {
    pub(super) fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            programs: &*self.programs,
            directories: &*self.directories,
            environment: &self.environment,
        }
    }
}

/// What came of another policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adopted {
    Now,
    /// It says what the one in force says.
    Same,
}

impl Gateway {
    /// Puts a policy in force for every call from now on, once the record has it.
    pub async fn adopt(&self, policy: EffectivePolicy, outlook: Outlook, by: &Actor) -> Result<Adopted, RecordError> {
        let before = self.in_force();
        let mut policy = policy;
        let declared = policy.tools.declared().after(before.policy.tools.declared());
        let changes = declared.changes(before.policy.tools.declared());
        let tools_differ = declared.digest() != before.policy.tools.declared().digest();
        policy.tools.set_declared(declared);
        let next = InForce::new(policy, outlook);
        if next.digest == before.digest {
            return Ok(Adopted::Same);
        }
        let payload = json!({
            "digest": next.digest,
            "before": before.digest,
            "content": self.ports.redactor.redact_json(&next.policy.content()),
        });
        let ids = &self.ports.ids;
        let event = Draft::new(
            ids.event(),
            self.ports.clock.now(),
            ids.correlation(),
            by.clone(),
            EventType::PolicyChanged,
            &payload,
        );
        let mut change = Change {
            events: vec![event],
            ..Change::default()
        };
        if tools_differ {
            let changes = self.ports.redactor.redact_json(&changes);
            let correlation = ids.correlation();
            let at = self.ports.clock.now();
            let event = Draft::new(
                ids.event(),
                at,
                correlation,
                by.clone(),
                EventType::ToolsChanged,
                &changes,
            );
            change.events.push(event);
        }
        self.ports.record.commit(change).await?;
        let lists_differ = tools_differ || decides_on_tools(&next.policy) != decides_on_tools(&before.policy);
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        if lists_differ {
            self.lists.send_modify(|count| *count += 1);
        }
        Ok(Adopted::Now)
    }

    /// Says that toolboxes offer other tools than before.
    pub fn offers_changed(&self) {
        {
            let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
            // What callers saw is forgotten with it.
            *policy = Arc::new(InForce::new(policy.policy.clone(), policy.outlook.clone()));
        }
        self.lists.send_modify(|count| *count += 1);
    }

    /// The digest of the policy in force.
    pub fn policy_digest(&self) -> String {
        self.in_force().digest.clone()
    }
}

/// Which tools there are for whom: the layers, wherever they were written.
fn decides_on_tools(policy: &EffectivePolicy) -> Value {
    without_sources(layers::write(policy.tools.layers()))
}

fn without_sources(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| name != "source");
            Value::Object(kept.map(|(name, value)| (name, without_sources(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_sources).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
