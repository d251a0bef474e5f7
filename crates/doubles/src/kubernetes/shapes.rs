//! Objects of the API as they are answered.

use serde_json::{Map, Value, json};

use super::apply::{Field, Stored};
use crate::http::Response;

pub(super) fn secret(namespace: &str, name: &str, stored: &Stored) -> Value {
    let managed: Vec<Value> = stored
        .managers
        .iter()
        .map(|(manager, kept)| {
            let mut fields = json!({});
            for field in kept {
                let path: Vec<String> = field.iter().map(|part| format!("f:{part}")).collect();
                put(&mut fields, &path, json!({}));
            }
            json!({
                "manager": manager, "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": fields,
            })
        })
        .collect();
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": name, "namespace": namespace, "uid": "00000000-0000-4000-8000-000000000000",
            "resourceVersion": stored.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": managed,
        },
    });
    secret["type"] = json!("Opaque");
    for (field, value) in &stored.fields {
        put(&mut secret, field, value.clone());
    }
    secret
}

fn put(into: &mut Value, path: &[String], value: Value) {
    match path {
        [] => *into = value,
        [first, rest @ ..] => {
            if !into.is_object() {
                *into = Value::Object(Map::new());
            }
            put(&mut into[first.as_str()], rest, value);
        }
    }
}

pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.0", "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc",
        "platform": "linux/amd64",
    })
}

pub(super) fn versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub(super) fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
}

pub(super) fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{
            "name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret",
            "verbs": ["delete", "get", "patch"],
        }],
    })
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Response::new(code, body)
}

/// The refusal to take fields that others keep.
pub(super) fn conflict(name: &str, contested: &[(String, Field)]) -> Response {
    let place = |field: &Field| format!(".{}", field.join("."));
    let causes: Vec<Value> = contested
        .iter()
        .map(|(manager, field)| {
            json!({
                "reason": "FieldManagerConflict", "message": format!("conflict with \"{manager}\""),
                "field": place(field),
            })
        })
        .collect();
    let message = match contested {
        [(manager, field)] => {
            let field = place(field);
            format!("Apply failed with 1 conflict: conflict with \"{manager}\": {field}")
        }
        several => {
            let each: Vec<_> = several
                .iter()
                .map(|(manager, field)| format!("- conflict with \"{manager}\": {}", place(field)))
                .collect();
            format!("Apply failed with {} conflicts:\n{}", several.len(), each.join("\n"))
        }
    };
    let mut refused = status(409, "Conflict", &message);
    refused.body["details"] = json!({"name": name, "kind": "secrets", "causes": causes});
    refused
}
