//! GitHub's published description of its API and its webhooks, and whether somebody keeps to it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::http::{Request, Response};

/// The operations that are used, as published.
pub struct Contract(Value);

impl Contract {
    /// What `tests/github/setup` fetched. Where it must be there and is not, the test fails.
    pub fn installed() -> Option<Self> {
        installed("api.json").map(Self)
    }

    /// Holds a request and its answer against the operation they belong to.
    pub fn check(&self, request: &Request, response: &Response) -> Result<(), String> {
        let named = |what: &str| format!("{} {}: {what}", request.method, request.path);
        let operation = self
            .operation(request)
            .ok_or_else(|| named("there is no such operation"))?;
        for (name, _) in &request.query {
            let known = operation["parameters"].as_array().into_iter().flatten();
            let mut known = known.map(|parameter| self.resolved(parameter));
            if !known.any(|parameter| parameter["in"] == "query" && parameter["name"] == name.as_str()) {
                return Err(named(&format!("there is no parameter `{name}`")));
            }
        }
        // What was refused may have been wrong: that is what the refusal says.
        if response.status < 400 && !request.body.is_empty() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            self.holds(schema, &request.json())
                .map_err(|error| named(&format!("the request: {error}")))?;
        }
        let status = response.status.to_string();
        let answer = self.resolved(&operation["responses"][&status]);
        if answer.is_null() {
            // Every operation may be refused so; GitHub does not repeat it everywhere.
            return match response.status {
                401 | 404 | 422 => Ok(()),
                _ => Err(named(&format!("`{status}` is no answer of it"))),
            };
        }
        match &answer["content"]["application/json"]["schema"] {
            Value::Null if response.body.is_null() => Ok(()),
            Value::Null => Err(named(&format!("`{status}` has no body"))),
            schema => self
                .holds(schema, &response.body)
                .map_err(|error| named(&format!("the answer: {error}"))),
        }
    }

    fn operation(&self, request: &Request) -> Option<&Value> {
        let sent: Vec<&str> = request.path.split('/').collect();
        let fits = |path: &str| {
            let parts: Vec<&str> = path.split('/').collect();
            let same = |(part, sent): (&&str, &&str)| part == sent || part.starts_with('{');
            parts.len() == sent.len() && parts.iter().zip(&sent).all(same)
        };
        let paths = self.0["paths"].as_object()?;
        // A path without a name in it goes before one with.
        let mut found: Vec<_> = paths.iter().filter(|(path, _)| fits(path)).collect();
        found.sort_by_key(|(path, _)| path.matches('{').count());
        let (_, methods) = found.first()?;
        methods.get(request.method.to_lowercase())
    }

    fn resolved<'a>(&'a self, node: &'a Value) -> &'a Value {
        match node["$ref"].as_str() {
            Some(reference) => self.0.pointer(reference.trim_start_matches('#')).unwrap_or(node),
            None => node,
        }
    }

    fn holds(&self, schema: &Value, value: &Value) -> Result<(), String> {
        holds(&json!({"components": self.0["components"], "allOf": [schema]}), value)
    }
}

/// Whether a delivery is what GitHub's webhook schemas say, where they are installed.
pub fn check_delivery(definition: &str, payload: &Value) -> Result<(), String> {
    let Some(mut schemas) = installed("webhooks.json") else {
        return Ok(());
    };
    schemas["$ref"] = json!(format!("#/definitions/{}", definition.replace('/', "~1")));
    holds(&schemas, payload)
}

fn holds(schema: &Value, value: &Value) -> Result<(), String> {
    let schema = jsonschema::validator_for(schema).map_err(|error| format!("the schema: {error}"))?;
    let errors: Vec<_> = schema
        .iter_errors(value)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(errors.join("; "))
}

fn installed(name: &str) -> Option<Value> {
    let path = home().join(name);
    if let Ok(text) = std::fs::read_to_string(&path) {
        return Some(serde_json::from_str(&text).unwrap());
    }
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
    let required = is("CI", "true") || is("COUNTERSIGN_REQUIRE_GITHUB", "1");
    assert!(!required, "{} is missing; run tests/github/setup", path.display());
    None
}

fn home() -> PathBuf {
    match std::env::var_os("COUNTERSIGN_GITHUB") {
        Some(home) => PathBuf::from(home),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/github"),
    }
}
