//! `config schema`: the JSON Schema of the configuration file, for editors.
//!
//! Made from the table of keys. It says what the shapes say; the loader says a little more, such as
//! that a regular expression compiles.

use serde_json::{Map, Value as Json, json};

use super::keys::KEYS;
use super::shape::{Field, Shape};

/// The schema, draft 2020-12.
pub(crate) fn json_schema() -> Json {
    let mut top = Map::new();
    for key in KEYS {
        let (section, name) = key.split();
        let properties = match section {
            "" => &mut top,
            section => {
                let place = top.entry(section).or_insert_with(
                    || json!({"type": ["object", "null"], "additionalProperties": false, "properties": {}}),
                );
                place["properties"].as_object_mut().expect("made as a map just above")
            }
        };
        let mut schema = of(&key.shape);
        schema["description"] = json!(key.about);
        let default: Json = serde_json::from_str(key.default).expect("a test reads every default of the table");
        if !default.is_null() {
            schema["default"] = default;
        }
        if key.path == "command_policy.allowlist" {
            schema["minItems"] = json!(1);
        }
        properties.insert(name.to_owned(), schema);
        if matches!(key.shape, Shape::Secret) {
            let by = |what: &str| json!({"type": "string", "description": format!("{}; {what}", key.about)});
            properties.insert(format!("{name}_env"), by("the name of a variable that holds it"));
            properties.insert(format!("{name}_file"), by("a file that holds it"));
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Countersign configuration",
        "type": ["object", "null"],
        "additionalProperties": false,
        "properties": top,
    })
}

fn of(shape: &Shape) -> Json {
    match shape {
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Whole(least) => json!({"type": "integer", "minimum": least}),
        Shape::Between(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Shape::Positive => json!({"type": "number", "exclusiveMinimum": 0}),
        Shape::Text | Shape::Secret | Shape::Path | Shape::ProjectPath => json!({"type": "string", "minLength": 1}),
        Shape::Words(words) => json!({"type": "string", "enum": words}),
        Shape::SearchPath => {
            json!({"type": ["string", "array"], "items": {"type": "string", "pattern": "^[/~]"}, "pattern": "^[/~]"})
        }
        Shape::Pattern => json!({"type": "string", "format": "regex"}),
        Shape::Cpu => json!({"type": ["string", "number"], "pattern": r"^[0-9]+(m|\.[0-9]{1,3})?$"}),
        Shape::Memory => json!({"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]{1,3})?([kMGT]|[KMGT]i)?$"}),
        Shape::Address => json!({"type": "string", "pattern": "^.+:[0-9]{1,5}$"}),
        Shape::Url => json!({"type": "string", "pattern": "^https?://."}),
        Shape::Program => json!({"type": "string", "pattern": r"^(/.*[^/]|[^/\s]+)$"}),
        Shape::Variable => json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
        Shape::Nullable(inner) => json!({"anyOf": [of(inner), {"type": "null"}]}),
        Shape::List(inner) => json!({"type": "array", "items": of(inner)}),
        Shape::Unique(inner) => json!({"type": "array", "items": of(inner), "uniqueItems": true}),
        Shape::Map(inner) => json!({"type": "object", "additionalProperties": of(inner)}),
        Shape::TextOr(text, other) => json!({"anyOf": [of(text), of(other)]}),
        Shape::Fields(fields) => record(fields),
    }
}

fn record(fields: &[Field]) -> Json {
    let properties: Map<_, _> = fields
        .iter()
        .map(|field| (field.name.to_owned(), of(&field.shape)))
        .collect();
    let required: Vec<_> = fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that the contract names, by hand: a key lost from the table is found here.
    const PROMISED: &[(&str, &[&str])] = &[
        ("workspace_root", &[]),
        (
            "command_policy",
            &[
                "allowlist",
                "audit_retention_days",
                "cpu_limit",
                "env_allow",
                "helpers",
                "memory_limit",
                "network",
                "path",
                "pids_limit",
                "read_paths",
                "require",
                "run_as",
                "run_as_non_root",
                "sandbox",
                "timeout_seconds",
                "timeout_seconds_max",
            ],
        ),
        ("approval_policy", &["mode", "timeout_ms", "whitelist"]),
        ("approvals", &["self"]),
        ("tools", &[]),
        ("approvers", &[]),
        ("agents", &[]),
        ("policies", &["agents", "labels", "projects"]),
        ("answer_within_ms", &[]),
        ("output_limit_bytes", &[]),
        ("shutdown_grace_ms", &[]),
        ("sessions", &["ttl_seconds"]),
        ("listen", &[]),
        ("tls", &["cert", "key"]),
        ("auth", &["anonymous_agents"]),
        ("audit", &["durability", "redact_patterns", "witness"]),
        ("quorum", &[]),
        ("callbacks", &["token", "token_env", "token_file", "url"]),
        ("jobs", &["maxProcesses"]),
        ("tool_files", &[]),
        (
            "github",
            &[
                "agent_token",
                "agent_token_env",
                "agent_token_file",
                "api_url",
                "token",
                "token_env",
                "token_file",
                "webhook_secret",
                "webhook_secret_env",
                "webhook_secret_file",
            ],
        ),
        ("kubernetes", &["agent_kubeconfig", "kubeconfig"]),
        ("database_lifecycle", &["url", "url_env", "url_file"]),
        (
            "limits",
            &[
                "body_bytes",
                "burst",
                "depth",
                "line_bytes",
                "requests_per_second",
                "sessions_max",
            ],
        ),
        ("runs", &["prompt", "timeout_seconds"]),
        ("telemetry", &["otlp_endpoint"]),
    ];

    #[test]
    fn the_schema_knows_the_promised_keys_and_no_others() {
        let schema = json_schema();
        let names = |value: &Json| {
            value["properties"]
                .as_object()
                .map_or_else(Vec::new, |map| map.keys().cloned().collect::<Vec<_>>())
        };
        let mut found: Vec<(String, Vec<String>)> = names(&schema)
            .into_iter()
            .map(|name| {
                let mut inner = names(&schema["properties"][&name]);
                inner.sort();
                (name, inner)
            })
            .collect();
        found.sort();
        let mut promised: Vec<(String, Vec<String>)> = PROMISED
            .iter()
            .map(|(name, inner)| ((*name).to_owned(), inner.iter().map(|it| (*it).to_owned()).collect()))
            .collect();
        promised.sort();
        assert_eq!(found, promised);
    }

    #[test]
    fn nothing_unknown_passes_the_schema() {
        fn closed(schema: &Json, place: &str) {
            if let Some(properties) = schema["properties"].as_object() {
                assert_eq!(schema["additionalProperties"], json!(false), "{place}");
                properties
                    .iter()
                    .for_each(|(name, inner)| closed(inner, &format!("{place}.{name}")));
            }
        }
        closed(&json_schema(), "");
    }
}
