//! What must not be seen of a call: properties that are written and never read, passwords, and names that say so
//! themselves, wherever in the arguments they are.

use serde_json::{Map, Value};

use crate::audit::redact::{REPLACEMENT, is_secret_name};

/// The arguments as they may be seen, and what was taken out of them.
pub(super) fn masked(schema: &Value, given: &Map<String, Value>) -> (Map<String, Value>, Vec<Value>) {
    let (mut shown, mut taken) = (given.clone(), Vec::new());
    hide_in(schema, &mut shown, &mut taken);
    (shown, taken)
}

fn hide_in(described: &Value, fields: &mut Map<String, Value>, taken: &mut Vec<Value>) {
    for (name, value) in fields {
        let own = &described["properties"][name.as_str()];
        if own["writeOnly"] == true || own["format"] == "password" || is_secret_name(name) {
            taken.push(std::mem::replace(value, Value::from(REPLACEMENT)));
        } else {
            hide(own, value, taken);
        }
    }
}

fn hide(described: &Value, value: &mut Value, taken: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => hide_in(described, fields, taken),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(&described["items"], item, taken)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The texts in a value, however deep.
pub(super) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_only_written_is_hidden_wherever_it_is() {
        let schema = json!({"properties": {
            "note": {"type": "string"},
            "pin": {"type": "integer", "writeOnly": true},
            "login": {"type": "object", "properties": {"name": {}, "pass": {"format": "password"}}},
            "keys": {"type": "array", "items": {"properties": {"id": {}, "key": {"writeOnly": true}}}},
        }});
        let given = json!({
            "note": "seen", "pin": 1234, "login": {"name": "ana", "pass": "a"}, "api_token": {"deep": ["b", 5]},
            "keys": [{"id": 1, "key": "c"}, {"id": 2, "key": null}],
        });
        let (shown, taken) = masked(&schema, given.as_object().unwrap());
        assert_eq!(
            Value::Object(shown),
            json!({
                "note": "seen", "pin": "[redacted]", "login": {"name": "ana", "pass": "[redacted]"},
                "api_token": "[redacted]", "keys": [{"id": 1, "key": "[redacted]"}, {"id": 2, "key": "[redacted]"}],
            })
        );
        let mut found: Vec<String> = taken.iter().flat_map(texts).collect();
        found.sort();
        assert_eq!(found, ["1234", "5", "a", "b", "c"]);
    }
}
