//! The arguments of `policy explain` for tools that take no command.

use serde_json::{Map, Value, json};

use crate::start::BadUsage;

/// The arguments, written as `NAME=VALUE` or as one JSON object. What the tool takes as no text, by its schema where
/// that is known, is read as JSON.
pub(super) fn arguments(words: &[String], schema: Option<&Value>) -> Result<Map<String, Value>, BadUsage> {
    if let [only] = words
        && let Ok(Value::Object(fields)) = serde_json::from_str(only)
    {
        return Ok(fields);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), meant(name, value, schema))),
        _ => Err(BadUsage(format!(
            "`{word}` is neither NAME=VALUE nor a JSON object, which is how this tool's arguments are written"
        ))),
    };
    words.iter().map(pair).collect()
}

fn meant(name: &str, value: &str, schema: Option<&Value>) -> Value {
    let kind = schema.map_or(&Value::Null, |schema| &schema["properties"][name]["type"]);
    let takes_text =
        kind.is_null() || kind == "string" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("string")));
    match takes_text {
        true => json!(value),
        // What is no JSON is left to the schema to refuse.
        false => serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
    }
}
