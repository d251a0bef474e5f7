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
        match key.path {
            "command_policy.allowlist" => {
                schema["minItems"] = json!(1);
                // `*` is any program and stands alone.
                schema["not"] = json!({"contains": {"const": "*"}, "minItems": 2});
            }
            "command_policy.helpers" => schema["propertyNames"] = of(&Shape::Program),
            _ => {}
        }
        properties.insert(name.to_owned(), schema);
        if matches!(key.shape, Shape::Secret) {
            let by = |shape: &Shape, what: &str| {
                let mut schema = of(shape);
                schema["description"] = json!(format!("{}; {what}", key.about));
                schema
            };
            let variable = by(&Shape::Variable, "the name of a variable that holds it");
            properties.insert(format!("{name}_env"), variable);
            properties.insert(format!("{name}_file"), by(&Shape::Path, "a file that holds it"));
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
        Shape::Seconds => json!({"type": "integer", "minimum": 1, "maximum": u32::MAX}),
        Shape::Positive => json!({"type": "number", "exclusiveMinimum": 0, "maximum": u32::MAX}),
        Shape::Text | Shape::Secret | Shape::Path | Shape::PathOrAddress | Shape::ProjectPath => {
            json!({"type": "string", "pattern": r"\S"})
        }
        Shape::Words(words) => json!({"type": "string", "enum": words}),
        Shape::SearchPath => {
            const DIRECTORY: &str = "(/[^:]*|~(/[^:]*)?)";
            json!({
                "type": ["string", "array"],
                "items": {"type": "string", "pattern": "^(/|~(/|$))"},
                "pattern": format!("^{DIRECTORY}(:{DIRECTORY})*$"),
            })
        }
        Shape::Pattern => json!({"type": "string", "format": "regex"}),
        Shape::Cpu => quantity(r"[0-9]+(m|\.[0-9]{1,3})?", json!({"exclusiveMinimum": 0})),
        // Without a unit they are bytes, of which there is at least one.
        Shape::Memory => quantity(
            r"([0-9]+(\.[0-9]{1,3})?([kMGT]|[KMGT]i)|0*[1-9][0-9]*(\.[0-9]{1,3})?)",
            json!({"minimum": 1}),
        ),
        Shape::Address => {
            const PORT: &str = "0*([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
            json!({"type": "string", "pattern": format!(r"^([^:]+|\[[0-9A-Fa-f:.]+(%[0-9]+)?\]):{PORT}$")})
        }
        Shape::Url => json!({"type": "string", "pattern": "^https?://."}),
        Shape::Program => json!({"type": "string", "pattern": r"^((?!\.{1,2}$)[^/\s]+|/[\s\S]*[^/\s])$"}),
        Shape::Variable => json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
        Shape::Nullable(inner) => json!({"anyOf": [of(inner), {"type": "null"}]}),
        Shape::List(inner) => json!({"type": "array", "items": of(inner)}),
        Shape::Unique(inner) => json!({"type": "array", "items": of(inner), "uniqueItems": true}),
        Shape::Map(Shape::Secret) => json!({
            "type": "object",
            "propertyNames": {"minLength": 1},
            "patternProperties": {"_env$": of(&Shape::Variable), "_file$": of(&Shape::Path)},
            "additionalProperties": of(&Shape::Secret),
        }),
        Shape::Map(inner) => {
            json!({"type": "object", "propertyNames": {"minLength": 1}, "additionalProperties": of(inner)})
        }
        Shape::TextOr(text, other) => json!({"anyOf": [of(text), of(other)]}),
        Shape::Fields(fields) => record(fields),
    }
}

/// An amount above nothing, as a number or as text with a unit.
fn quantity(form: &str, mut schema: Json) -> Json {
    schema["type"] = json!(["string", "number"]);
    schema["pattern"] = json!(format!("^(?=.*[1-9]){form}$"));
    schema
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
    use proptest::prelude::*;

    use super::*;
    use crate::config::shape::Bases;
    use crate::config::tree::Node;

    const TEXT: &[&str] = &[
        "",
        " ",
        "x",
        " x ",
        "a b",
        "true",
        "git",
        ".",
        "..",
        "...",
        "./a",
        "a/b",
        "/",
        "/a",
        "/a/",
        "/a ",
        "/a/b c",
        "~",
        "~/a",
        "~x",
        "/bin:/usr/bin",
        "/bin:~",
        "/bin:",
        "/bin:bin",
        "0",
        "0m",
        "500m",
        "+500m",
        "+1",
        "0.5",
        "0.5k",
        "0.001",
        "1.5",
        "1.2345",
        "m",
        "1Gi",
        "512M",
        "1K",
        "0Mi",
        "localhost:80",
        "a:b:80",
        ":80",
        "localhost:",
        "localhost:65535",
        "localhost:65536",
        "localhost:+80",
        "[::1]:80",
        "::1:80",
        "127.0.0.1:7420",
        "http://",
        "http://x",
        "https://x",
        "ftp://x",
        "A",
        "_a1",
        "1a",
        "A-B",
        "deny",
        "allow",
        "Deny",
    ];

    const SHAPES: &[Shape] = &[
        Shape::Flag,
        Shape::Whole(1),
        Shape::Between(1, 512),
        Shape::Seconds,
        Shape::Positive,
        Shape::Text,
        Shape::Secret,
        Shape::Path,
        Shape::PathOrAddress,
        Shape::ProjectPath,
        Shape::Words(&["deny", "allow"]),
        Shape::SearchPath,
        Shape::Cpu,
        Shape::Memory,
        Shape::Address,
        Shape::Url,
        Shape::Program,
        Shape::Variable,
        Shape::Nullable(&Shape::Whole(1)),
        Shape::List(&Shape::Text),
        Shape::Unique(&Shape::Program),
        Shape::Map(&Shape::Text),
        Shape::Map(&Shape::Secret),
        Shape::TextOr(&Shape::Words(&["deny"]), &Shape::List(&Shape::Text)),
        Shape::Fields(&[
            Field {
                name: "a",
                shape: Shape::Text,
                required: true,
            },
            Field {
                name: "b",
                shape: Shape::Flag,
                required: false,
            },
        ]),
    ];

    fn numbers() -> Vec<Json> {
        let whole = [0, 1, -1, 512, 513, 4_294_967_295_i64, 4_294_967_296];
        whole
            .into_iter()
            .map(Json::from)
            .chain([json!(0.5), json!(1.5)])
            .collect()
    }

    fn text() -> impl Strategy<Value = String> {
        let known = prop::sample::select(TEXT).prop_map(str::to_owned);
        prop_oneof![3 => known, 1 => "[a-z/.~ _]{0,4}"]
    }

    fn value() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            prop::sample::select(numbers()),
            text().prop_map(Json::from),
        ];
        let names = prop::sample::select(&["a", "b", "c", "", "X", "X_env", "X_file"][..]);
        leaf.prop_recursive(2, 8, 3, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
                prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..3)
                    .prop_map(|fields| fields.into_iter().collect::<Json>()),
            ]
        })
    }

    /// Whether loader and schema take a value of this shape.
    fn taken(shape: &Shape, value: &Json) -> (bool, bool) {
        let bases = Bases {
            file: "/c".into(),
            project: "/p".into(),
            home: Some("/h".into()),
        };
        let mut faults = Vec::new();
        let loads = shape
            .check("key", &Node::from_json(value), &bases, &mut faults)
            .is_some();
        (loads, jsonschema::is_valid(&of(shape), value))
    }

    /// A secret in two forms is a matter of several keys.
    fn is_of_one_form(value: &Json) -> bool {
        let names: Vec<&String> = value.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        names.iter().filter(|name| name.starts_with('X')).count() < 2
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_048, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_the_schema_takes_the_loader_takes_and_the_other_way_around(shape in 0..SHAPES.len(), value in value()) {
            let shape = &SHAPES[shape];
            prop_assume!(is_of_one_form(&value));
            let (loads, passes) = taken(shape, &value);
            prop_assert_eq!(loads, passes, "{:?} and {}", shape, value);
        }
    }

    #[test]
    fn every_text_and_number_is_taken_by_both_or_by_neither() {
        let values = TEXT.iter().map(|text| json!(text)).chain(numbers());
        for value in values {
            for shape in SHAPES {
                let (loads, passes) = taken(shape, &value);
                assert_eq!(loads, passes, "{shape:?} and `{value}`");
            }
        }
    }

    #[test]
    fn a_secret_by_name_has_the_shape_of_a_name() {
        let schema = json_schema();
        let passes = |token: Json| jsonschema::is_valid(&schema, &json!({ "callbacks": token }));
        assert!(passes(json!({"token_env": "TOKEN"})) && passes(json!({"token_file": "token"})));
        assert!(!passes(json!({"token_env": "1 TOKEN"})) && !passes(json!({"token_file": " "})));
    }

    #[test]
    fn what_the_loader_says_of_programs_the_schema_says_too() {
        let schema = json_schema();
        let passes = |policy: Json| jsonschema::is_valid(&schema, &json!({ "command_policy": policy }));
        assert!(passes(json!({"allowlist": ["*"]})) && passes(json!({"helpers": {"cargo": ["rustc"]}})));
        assert!(!passes(json!({"allowlist": []})) && !passes(json!({"allowlist": ["*", "git"]})));
        assert!(!passes(json!({"helpers": {"a b": ["rustc"]}})));
    }

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
