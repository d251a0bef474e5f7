//! What must not be seen of a call: properties that are written and never read, passwords, and names that say so
//! themselves, wherever in the arguments they are.

use serde_json::{Map, Value};

use crate::audit::redact::{REPLACEMENT, is_secret_name};

/// The arguments as they may be seen, and what was taken out of them.
pub(super) fn masked(schema: &Value, given: &Map<String, Value>) -> (Map<String, Value>, Vec<Value>) {
    let (mut shown, mut taken) = (given.clone(), Vec::new());
    hide_in(&Said::of(schema, [schema]), &mut shown, &mut taken);
    (shown, taken)
}

fn hide_in(said: &Said<'_>, fields: &mut Map<String, Value>, taken: &mut Vec<Value>) {
    for (name, value) in fields {
        let own = said.of_property(name);
        if own.is_secret() || is_secret_name(name) {
            taken.push(std::mem::replace(value, Value::from(REPLACEMENT)));
        } else {
            hide(&own, value, taken);
        }
    }
}

fn hide(said: &Said<'_>, value: &mut Value, taken: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => hide_in(said, fields, taken),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                let own = said.of_item(at);
                if own.is_secret() {
                    taken.push(std::mem::replace(item, Value::from(REPLACEMENT)));
                } else {
                    hide(&own, item, taken);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Everything that a schema may say of one value: in its place, in parts that are joined, and where it only refers to.
/// Whether a part applies to the very value is not asked: what may be secret is.
struct Said<'s> {
    root: &'s Value,
    parts: Vec<&'s Value>,
    /// It refers to something that is not found.
    is_unclear: bool,
}

impl<'s> Said<'s> {
    fn of(root: &'s Value, described: impl IntoIterator<Item = &'s Value>) -> Self {
        let mut said = Self {
            root,
            parts: Vec::new(),
            is_unclear: false,
        };
        described.into_iter().for_each(|part| said.add(part));
        said
    }

    fn add(&mut self, part: &'s Value) {
        // Schemas refer to themselves.
        if part.is_null() || self.parts.iter().any(|known| std::ptr::eq(*known, part)) {
            return;
        }
        self.parts.push(part);
        for word in ["allOf", "anyOf", "oneOf"] {
            part[word].as_array().into_iter().flatten().for_each(|it| self.add(it));
        }
        for word in ["if", "then", "else"] {
            self.add(&part[word]);
        }
        let dependent = part["dependentSchemas"].as_object();
        dependent.into_iter().flat_map(Map::values).for_each(|it| self.add(it));
        if let Some(reference) = part["$ref"].as_str() {
            match reference.strip_prefix('#').and_then(|place| self.root.pointer(place)) {
                Some(meant) => self.add(meant),
                None => self.is_unclear = true,
            }
        }
        self.is_unclear |= part.get("$dynamicRef").is_some();
    }

    fn is_secret(&self) -> bool {
        let says_so = |part: &&Value| part["writeOnly"] == true || part["format"] == "password";
        self.is_unclear || self.parts.iter().any(says_so)
    }

    fn of_property(&self, name: &str) -> Self {
        let parts = self.parts.iter().flat_map(|part| {
            let named = part["properties"].get(name);
            let patterns = part["patternProperties"].as_object().into_iter().flat_map(Map::values);
            let others = ["additionalProperties", "unevaluatedProperties"].map(|word| &part[word]);
            let others = others.into_iter().filter(move |_| named.is_none());
            named.into_iter().chain(patterns).chain(others)
        });
        Self::of(self.root, parts)
    }

    fn of_item(&self, at: usize) -> Self {
        let parts = self.parts.iter().flat_map(|part| {
            // An older way to describe items one by one is a list.
            let one_by_one = ["prefixItems", "items"]
                .map(|word| part[word].get(at))
                .into_iter()
                .flatten();
            let all = ["items", "additionalItems", "unevaluatedItems", "contains"].map(|word| &part[word]);
            one_by_one.chain(all)
        });
        Self::of(self.root, parts)
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

    #[test]
    fn what_a_schema_says_elsewhere_is_hidden_too() {
        let secret = json!({"type": "string", "writeOnly": true});
        let own = |described: Value| json!({"type": "object", "properties": {"a": described}, "$defs": {"s": secret, "o": {"properties": {"x": {"$ref": "#/$defs/s"}, "o": {"$ref": "#/$defs/o"}}}}});
        for (described, given) in [
            (json!({"$ref": "#/$defs/s"}), json!("hush")),
            (
                json!({"allOf": [{"type": "string"}, {"$ref": "#/$defs/s"}]}),
                json!("hush"),
            ),
            (json!({"anyOf": [{"type": "null"}, secret]}), json!("hush")),
            (
                json!({"if": {"type": "string"}, "then": {"oneOf": [secret]}}),
                json!("hush"),
            ),
            (json!({"additionalProperties": secret}), json!({"any": "hush"})),
            (json!({"patternProperties": {"^x": secret}}), json!({"xa": "hush"})),
            (
                json!({"dependentSchemas": {"b": {"properties": {"c": secret}}}}),
                json!({"b": 1, "c": "hush"}),
            ),
            (json!({"items": secret}), json!(["hush", "hush"])),
            (
                json!({"prefixItems": [{"type": "string"}, secret]}),
                json!(["seen", "hush"]),
            ),
            (json!({"$ref": "#/$defs/o"}), json!({"o": {"o": {"x": "hush"}}})),
            (json!({"$ref": "#anchor"}), json!("hush")),
        ] {
            let (shown, taken) = masked(&own(described.clone()), json!({"a": given}).as_object().unwrap());
            assert!(!Value::Object(shown).to_string().contains("hush"), "{described}");
            assert!(taken.iter().flat_map(texts).all(|text| text == "hush"), "{described}");
        }
        // What is joined at the top counts as well, and what nobody called secret is seen.
        let joined = json!({"type": "object", "allOf": [{"properties": {"a": secret}}], "properties": {"b": {"items": {"type": "string"}}}});
        let (shown, _) = masked(&joined, json!({"a": "hush", "b": ["seen"]}).as_object().unwrap());
        assert_eq!(Value::Object(shown), json!({"a": "[redacted]", "b": ["seen"]}));
    }
}
