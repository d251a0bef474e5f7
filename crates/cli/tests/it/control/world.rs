//! A secret's two systems, and a bench whose server may write to both.

use std::path::PathBuf;

use countersign_doubles::github::{GitHub, TOKEN};
use countersign_doubles::kubernetes::Kubernetes;
use serde_json::{Value, json};

use crate::bench::Bench;

pub(super) const TOOL: &str = "secret.sync.github_k8s";
pub(super) const SHOP: &str = "octo/shop";
pub(super) const NAME: &str = "DB_PASSWORD";

pub(super) struct World {
    pub(super) github: GitHub,
    pub(super) kubernetes: Kubernetes,
    pub(super) kubeconfig: PathBuf,
    pub(super) bench: Bench,
}

impl World {
    pub(super) fn new() -> Self {
        Self::around(Bench::new())
    }

    pub(super) fn around(bench: Bench) -> Self {
        Self::built(bench, "")
    }

    /// The same, with more settings as YAML.
    pub(super) fn with(more: &str) -> Self {
        Self::built(Bench::new(), more)
    }

    fn built(bench: Bench, more: &str) -> Self {
        let (github, kubernetes) = (GitHub::start(), Kubernetes::start());
        github.environment(SHOP, "dev");
        kubernetes.namespace("shop-dev");
        let kubeconfig = kubernetes.kubeconfig(&bench.dir("cluster"));
        let bench = bench.config(&format!(
            "github: {{api_url: '{}', token: {TOKEN}}}\nkubernetes: {{kubeconfig: '{}'}}\n{more}",
            github.url(),
            kubeconfig.display()
        ));
        Self {
            github,
            kubernetes,
            kubeconfig,
            bench,
        }
    }

    pub(super) fn at_github(&self) -> Option<Vec<u8>> {
        self.github.secret(SHOP, Some("dev"), NAME)
    }

    pub(super) fn writes(&self) -> usize {
        self.github.secret_writes(SHOP, Some("dev"), NAME)
    }

    pub(super) fn at_kubernetes(&self) -> Option<Vec<u8>> {
        self.kubernetes.secret("shop-dev", "database", "value")
    }
}

pub(super) fn wanted(policy: &str) -> Value {
    json!({
        "repository": SHOP, "environment": "dev", "github_secret_name": NAME, "kubernetes_namespace": "shop-dev",
        "kubernetes_secret_name": "database", "policy": policy,
    })
}

pub(super) fn with(mut arguments: Value, name: &str, value: &str) -> Value {
    arguments[name] = json!(value);
    arguments
}
