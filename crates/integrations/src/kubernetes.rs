//! Keys of Secrets in Kubernetes, by server-side apply under the field manager `countersign`.
//!
//! Applying takes away what the same manager applied before and does not name again. So what this manager keeps
//! in a Secret is read first and named again, at the version that was read; whoever changes it meanwhile makes
//! the apply fail, and it is tried once more. A Secret that is not there has no version to be held to, so it is made
//! first, empty and by a manager that keeps nothing in it. Fields of others are not touched, and not taken over.
//!
//! The client is made when the first secret is put: until then nothing of it is in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_gateway::audit::Pending;
use countersign_gateway::tools::secrets::keeping::{KeeperError, SecretKeeper, SecretValue, SyncTarget};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::keeper;

pub const FIELD_MANAGER: &str = "countersign";
/// Makes Secrets. Applying nothing under the other name would take away what somebody put there meanwhile.
const MAKER: &str = "countersign-maker";
/// How often a Secret that changes under our hands is read anew.
const TRIES: usize = 3;

/// A cluster, by its kubeconfig.
pub struct KubernetesSecrets {
    inner: Arc<Inner>,
}

struct Inner {
    kubeconfig: PathBuf,
    client: OnceCell<Client>,
}

impl KubernetesSecrets {
    /// Looks whether the file can be used; the cluster is not spoken to before the first secret.
    pub fn new(kubeconfig: &Path) -> Result<Self, KubeconfigError> {
        Kubeconfig::read_from(kubeconfig)?;
        Ok(Self {
            inner: Arc::new(Inner {
                kubeconfig: kubeconfig.to_owned(),
                client: OnceCell::new(),
            }),
        })
    }
}

impl SecretKeeper for KubernetesSecrets {
    fn put(&self, target: &SyncTarget, value: SecretValue) -> Pending<Result<(), KeeperError>> {
        let (inner, target) = (self.inner.clone(), target.clone());
        Box::pin(async move { keeper::in_time(inner.put(&target, &value)).await })
    }
}

impl Inner {
    async fn put(&self, target: &SyncTarget, value: &SecretValue) -> Result<(), KeeperError> {
        let client = self.client.get_or_try_init(|| self.connect()).await?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &target.namespace);
        let manager = PatchParams::apply(FIELD_MANAGER);
        let mut tries = 0;
        loop {
            tries += 1;
            let before = found_or_made(&secrets, target).await;
            let before = before.map_err(|error| spoken(&error))?;
            let wanted = applied(target, value, &before);
            let patch = Patch::Apply(&wanted);
            match secrets.patch(&target.kubernetes_secret, &manager, &patch).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status))
                    if status.code == 409 && is_of_version(&status.message) && tries < TRIES => {}
                Err(error) => return Err(spoken(&error)),
            }
        }
    }

    async fn connect(&self) -> Result<Client, KeeperError> {
        let unusable = |error: &dyn std::fmt::Display| {
            KeeperError::Refused(format!(
                "the kubeconfig `{}` cannot be used: {error}",
                self.kubeconfig.display()
            ))
        };
        let file = Kubeconfig::read_from(&self.kubeconfig).map_err(|error| unusable(&error))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| unusable(&error))?;
        Client::try_from(config).map_err(|error| unusable(&error))
    }
}

async fn found_or_made(secrets: &Api<Secret>, target: &SyncTarget) -> kube::Result<Secret> {
    let name = &target.kubernetes_secret;
    if let Some(found) = secrets.get_opt(name).await? {
        return Ok(found);
    }
    let empty = json!({"apiVersion": "v1", "kind": "Secret", "metadata": named(target)});
    secrets
        .patch(name, &PatchParams::apply(MAKER), &Patch::Apply(&empty))
        .await
}

/// What is applied: the key, and whatever this manager kept before.
fn applied(target: &SyncTarget, value: &SecretValue, before: &Secret) -> Value {
    let mut data = kept_by_us(before);
    data.insert(target.kubernetes_key.clone(), STANDARD.encode(value.reveal()));
    let mut metadata = named(target);
    if let Some(version) = &before.metadata.resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
}

fn named(target: &SyncTarget) -> Value {
    json!({"name": target.kubernetes_secret, "namespace": target.namespace})
}

/// The keys that this manager applied, with their values.
fn kept_by_us(secret: &Secret) -> BTreeMap<String, String> {
    let managed = secret.metadata.managed_fields.iter().flatten();
    let ours = managed
        .filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply"));
    let mut kept = BTreeMap::new();
    for entry in ours {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:data"]);
        for name in fields
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            let key = name.strip_prefix("f:").unwrap_or_default();
            if let Some(bytes) = secret.data.as_ref().and_then(|data| data.get(key)) {
                kept.insert(key.to_owned(), STANDARD.encode(&bytes.0));
            }
        }
    }
    kept
}

/// Both are 409: the object changed meanwhile, or another manager keeps the field.
fn is_of_version(message: &str) -> bool {
    message.contains("the object has been modified")
}

/// What the API server said, by its status; of a fault of the connection only what kind it was.
fn spoken(error: &kube::Error) -> KeeperError {
    match error {
        kube::Error::Api(status) => {
            let text = format!("{} (HTTP {})", status.message, status.code);
            match status.code {
                409 if is_of_version(&status.message) => KeeperError::Unreachable(text),
                409 => KeeperError::Conflict(format!("another manager keeps this key: {text}")),
                429 | 500.. => KeeperError::Unreachable(text),
                _ => KeeperError::Refused(text),
            }
        }
        other => keeper::lost(other),
    }
}
