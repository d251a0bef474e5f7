//! A schema that was checked once and holds values against itself ever after.
//!
//! Patterns run in linear time, whatever an author wrote and a caller sends; a schema cannot make us fetch
//! anything.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Value, json};

use crate::limits;

/// The longest pattern that is compiled, in bytes of what it compiles to.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub struct Schema {
    written: Value,
    validator: Validator,
}

/// Why something is no schema for a tool.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("must be a schema with `type: object`")]
    NotOfObjects,
    #[error("is no schema: {0}")]
    Invalid(String),
}

impl Schema {
    /// The schema of a tool's arguments. Properties that it does not name are refused, unless it says
    /// something of them itself.
    pub fn of_arguments(mut written: Value) -> Result<Self, SchemaError> {
        const OPEN: [&str; 8] = [
            "additionalProperties",
            "unevaluatedProperties",
            "patternProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "$ref",
            "if",
        ];
        if let Value::Object(fields) = &mut written
            && !OPEN.iter().any(|word| fields.contains_key(*word))
        {
            fields.insert("additionalProperties".to_owned(), json!(false));
        }
        Self::new(written)
    }

    pub fn new(written: Value) -> Result<Self, SchemaError> {
        if written.get("type") != Some(&json!("object")) {
            return Err(SchemaError::NotOfObjects);
        }
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .build(&written)
            .map_err(|error| SchemaError::Invalid(told(&error.to_string())))?;
        Ok(Self { written, validator })
    }

    pub fn written(&self) -> &Value {
        &self.written
    }

    /// Everything that is wrong with a value, as far as it is worth telling; what was sent is not repeated.
    pub fn problems(&self, value: &Value) -> Vec<String> {
        let errors = self.validator.iter_errors(value);
        let problem = |error: jsonschema::ValidationError<'_>| {
            let place = error.instance_path().to_string();
            let place = place.trim_start_matches('/').replace('/', ".");
            let said = told(&error.masked_with("the value").to_string());
            if place.is_empty() {
                said
            } else {
                format!("`{place}`: {said}")
            }
        };
        errors.take(limits::PROBLEMS_TOLD_MAX).map(problem).collect()
    }

    /// The names of the properties it describes.
    pub fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.written["properties"].as_object().into_iter().flatten()
    }

    /// Whether a property can be nothing but text, a number or a truth value.
    pub fn is_scalar(&self, property: &str) -> bool {
        let scalar = |kind: &Value| {
            matches!(
                kind.as_str(),
                Some("string" | "number" | "integer" | "boolean" | "null")
            )
        };
        let described = &self.written["properties"][property];
        match &described["type"] {
            Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(scalar),
            Value::Null => described["enum"]
                .as_array()
                .is_some_and(|values| values.iter().all(|value| !value.is_object() && !value.is_array())),
            kind => scalar(kind),
        }
    }
}

fn told(message: &str) -> String {
    message.chars().take(limits::PROBLEM_CHARS_MAX).collect()
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_of_objects_and_fetches_nothing() {
        assert_eq!(
            Schema::new(json!({"type": "string"})).unwrap_err(),
            SchemaError::NotOfObjects
        );
        for bad in [
            json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
            json!({"type": "object", "required": "a"}),
            json!({"type": "object", "properties": {"a": {"pattern": "("}}}),
            json!({"type": "object", "properties": {"a": {"pattern": "(a)\\1"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}),
        ] {
            assert!(
                matches!(Schema::new(bad.clone()), Err(SchemaError::Invalid(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told_without_what_was_sent() {
        let schema = json!({"type": "object", "properties": {"key": {"type": "string", "pattern": "^[a-z]+$"}, "n": {"type": "integer"}}});
        let schema = Schema::of_arguments(schema).unwrap();
        let problems = schema.problems(&json!({"key": "S3CRET", "n": "x", "other": 1}));
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            !problems.iter().any(|problem| problem.contains("S3CRET")),
            "{problems:?}"
        );
        assert!(schema.problems(&json!({"key": "abc"})).is_empty());
    }
}
