//! `secret.sync.github_k8s` as clients see it.

use serde_json::{Value, json};

use super::keeping::{GithubScope, ValuePolicy};
use crate::catalog::definition::{Hints, ToolDefinition};

pub const NAME: &str = "secret.sync.github_k8s";
pub const GITHUB: &str = "github";
pub const KUBERNETES: &str = "kubernetes";
/// The systems, in the order they are written.
pub const SYSTEMS: &[&str] = &[GITHUB, KUBERNETES];

pub const KEY_CHARS_MAX: usize = 128;
/// GitHub takes no longer value.
pub const VALUE_BYTES_MAX: usize = 48 * 1024;

pub fn definition() -> ToolDefinition {
    let policies: Vec<_> = ValuePolicy::ALL.iter().map(|it| it.as_str()).collect();
    let scopes: Vec<_> = GithubScope::ALL.iter().map(|it| it.as_str()).collect();
    let text = |description: &str| json!({"type": "string", "minLength": 1, "description": description});
    let properties = json!({
        "project_id": text("The project; that of the run when left out."),
        "repository": text("owner/name; that of the run when left out."),
        "environment": text("The environment that the secret is for."),
        "github_secret_name": text("The name of the secret at GitHub."),
        "github_scope": {"type": "string", "enum": scopes, "description": "Whose secret it is at GitHub: the environment's, which is usual, or the repository's."},
        "kubernetes_namespace": text("That of the run when left out."),
        "kubernetes_secret_name": text("The Secret object."),
        "kubernetes_secret_key": text("The key in it; `value` when left out."),
        "policy": {"type": "string", "enum": policies, "description": "Where the value comes from; deterministic when left out."},
        "secret_value": {"type": "string", "minLength": 1, "writeOnly": true, "description": "The value, with policy provided only."},
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[A-Za-z0-9._:/-]+$", "description": "The same key with the same arguments acts once."},
        "dry_run": {"type": "boolean", "description": "Says what would happen, and does nothing."},
    });
    ToolDefinition {
        name: NAME.into(),
        title: "Put a secret into GitHub and Kubernetes".into(),
        description:
            "Makes or takes a secret value and puts the same into GitHub and into a Kubernetes Secret, by a person's \
            approval. The value is never told. After a failure half way the same call again puts it right."
                .into(),
        input_schema: json!({
            "type": "object", "properties": properties, "additionalProperties": false,
            "required": ["environment", "github_secret_name", "kubernetes_secret_name"],
        }),
        output_schema: output(),
        version: "1.0.0".into(),
        hints: Hints {
            read_only: false,
            destructive: true,
            idempotent: true,
            open_world: true,
        },
    }
}

fn output() -> Value {
    let mut properties = super::super::control::result();
    for (name, schema) in [
        ("github_secret", json!({"type": "string"})),
        (
            "kubernetes_ref",
            json!({"type": "string", "description": "namespace/name#key"}),
        ),
        ("policy", json!({"type": "string"})),
        ("idempotency_key", json!({"type": ["string", "null"]})),
        ("reused", json!({"type": "boolean"})),
    ] {
        properties[name] = schema;
    }
    json!({"type": "object", "properties": properties, "required": ["status"]})
}
