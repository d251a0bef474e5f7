//! `secret.sync.github_k8s`: one value, in GitHub and in Kubernetes.
//!
//! What is on its way is kept ([`keeping`]): a random or given value, sealed, until both systems have it, so
//! that a retry after a failure half way ends with the same value in both ([`syncing`]). The value itself is
//! told to the two systems and to nobody else.

mod hiding;
pub mod keeping;
mod reading;
pub mod schema;
mod syncing;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::approval::ClearedAct;
use crate::audit::{Pending, Record};
use crate::catalog::definition::ToolDefinition;
use crate::clock::Clock;
use crate::error::Refusal;
use crate::ids::IdSource;
use crate::policy::actor::Target;
use crate::tools::acts::{Act, Asked, Toolbox};
use keeping::{SecretKeeper, SecretSyncs, Vault};
use reading::Wanted;

/// What the tool is made of.
pub struct SecretParts {
    pub github: Arc<dyn SecretKeeper>,
    pub kubernetes: Arc<dyn SecretKeeper>,
    pub vault: Arc<dyn Vault>,
    pub syncs: Arc<dyn SecretSyncs>,
    pub record: Arc<dyn Record>,
    pub clock: Clock,
    pub ids: IdSource,
}

pub struct SecretTool {
    parts: Arc<SecretParts>,
}

impl SecretTool {
    pub fn new(parts: SecretParts) -> Arc<Self> {
        Arc::new(Self { parts: Arc::new(parts) })
    }
}

impl Toolbox for SecretTool {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![schema::definition()]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<Box<dyn Act>, Refusal> {
        let wanted = reading::read(asked, &*self.parts.vault)?;
        Ok(Box::new(Sync {
            parts: self.parts.clone(),
            wanted,
        }))
    }

    fn repair(&self) -> Pending<()> {
        let parts = self.parts.clone();
        Box::pin(async move { parts.repair_all().await })
    }
}

struct Sync {
    parts: Arc<SecretParts>,
    wanted: Wanted,
}

impl Act for Sync {
    fn target(&self) -> Target<'_> {
        Target {
            namespace: Some(&self.wanted.target.namespace),
            cluster: None,
            repository: Some(&self.wanted.target.repository),
        }
    }

    fn systems(&self) -> &'static [&'static str] {
        schema::SYSTEMS
    }

    fn details(&self) -> Map<String, Value> {
        let Wanted { target, policy, .. } = &self.wanted;
        let (at_github, at_kubernetes) = (self.wanted.github_place(), target.kubernetes_ref());
        Map::from_iter([
            (
                "command".to_owned(),
                json!(format!("put one value into {at_github} and {at_kubernetes}")),
            ),
            ("github".to_owned(), json!(at_github)),
            ("kubernetes".to_owned(), json!(at_kubernetes)),
            ("value".to_owned(), json!(policy.as_str())),
            ("project_id".to_owned(), json!(self.wanted.project)),
            ("environment".to_owned(), json!(target.environment)),
        ])
    }

    fn bound_arguments(&self, given: &Map<String, Value>) -> Value {
        let mut bound = given.clone();
        if let Some(value) = &self.wanted.value {
            bound.insert(
                "secret_value".to_owned(),
                json!({"keyed": self.parts.vault.digest(value)}),
            );
        }
        Value::Object(bound)
    }

    fn foresee(&self) -> Pending<Result<Option<Map<String, Value>>, Refusal>> {
        let (parts, wanted) = (self.parts.clone(), self.wanted.clone());
        Box::pin(async move { parts.foresee(&wanted).await })
    }

    fn perform(self: Box<Self>, cleared: ClearedAct) -> Pending<Result<Map<String, Value>, Refusal>> {
        Box::pin(async move {
            let outcome = self.parts.perform(&self.wanted, &cleared).await;
            outcome.map_err(|refusal| self.wanted.presentable(refusal))
        })
    }
}
