//! Kubernetes' published description of its API, and whether somebody keeps to it.
//!
//! The objects are in the OpenAPI document of a release, which `tests/kubernetes/setup` fetches: they must have the
//! fields that it names, of its types, and no others. Secrets are read by the generated types besides, which need
//! nothing to be fetched.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

/// The definitions that are used, as published; none where they are not installed.
#[derive(Default)]
pub(super) struct Contract(Option<Value>);

impl Contract {
    /// What `tests/kubernetes/setup` fetched. Where it must be there and is not, the test fails.
    pub(super) fn installed() -> Self {
        let path = home().join("definitions.json");
        if let Ok(text) = std::fs::read_to_string(&path) {
            return Self(Some(serde_json::from_str(&text).unwrap()));
        }
        let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
        let required = is("CI", "true") || is("COUNTERSIGN_REQUIRE_KUBERNETES", "1");
        assert!(!required, "{} is missing; run tests/kubernetes/setup", path.display());
        Self(None)
    }

    /// Holds an object against the definition of its kind.
    pub(super) fn check(&self, object: &Value) -> Result<(), String> {
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind == "Secret" {
            by_types(object)?;
        }
        let Some(definitions) = &self.0 else { return Ok(()) };
        let name = match kind {
            "Secret" => "io.k8s.api.core.v1.Secret".to_owned(),
            "" => "io.k8s.apimachinery.pkg.version.Info".to_owned(),
            kind => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"),
        };
        let schema = json!({"$defs": definitions["$defs"], "$ref": format!("#/$defs/{name}")});
        let schema = jsonschema::validator_for(&schema).map_err(|error| format!("{name}: {error}"))?;
        let problems: Vec<_> = schema
            .iter_errors(object)
            .map(|error| format!("{} at {}", error, error.instance_path()))
            .collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!("{object} is no {name}: {}", problems.join("; "))),
        }
    }
}

/// Reads it by the generated types and writes it again: whatever they do not know is missing then.
fn by_types(secret: &Value) -> Result<(), String> {
    let read = serde_json::from_value::<Secret>(secret.clone());
    let written = read
        .map_err(|error| error.to_string())
        .map(|read| serde_json::to_value(read).unwrap());
    match written.as_ref() == Ok(secret) {
        true => Ok(()),
        false => Err(format!("{secret} is read as {written:?}")),
    }
}

fn home() -> PathBuf {
    match std::env::var_os("COUNTERSIGN_KUBERNETES") {
        Some(home) => PathBuf::from(home),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/kubernetes"),
    }
}
