//! The arguments of `policy explain` for tools that run no commands.

use serde_json::{Map, Value, json};

use crate::start::BadUsage;

/// The arguments, written as `NAME=VALUE` or as one JSON object.
pub(super) fn arguments(words: &[String]) -> Result<Map<String, Value>, BadUsage> {
    if let [only] = words
        && let Ok(Value::Object(fields)) = serde_json::from_str(only)
    {
        return Ok(fields);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), json!(value))),
        _ => Err(BadUsage(format!(
            "`{word}` is neither NAME=VALUE nor a JSON object; this tool runs no commands"
        ))),
    };
    words.iter().map(pair).collect()
}
