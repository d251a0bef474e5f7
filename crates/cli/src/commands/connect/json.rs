//! An entry in a JSON file: read, and put in place without touching anything else, comments included.

use anyhow::{Context as _, ensure};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::Place;

/// What the client accepts in its file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Strict,
    /// With comments, and commas behind the last element.
    Commented,
}

pub(super) fn get(text: &str, dialect: Dialect, place: Place<'_>) -> anyhow::Result<Option<Value>> {
    let root = parse(text, dialect)?;
    let Some(top) = top(&root)? else {
        return Ok(None);
    };
    let Some(servers) = section(&top, place)? else {
        return Ok(None);
    };
    let entry = only(&servers, place.name)?;
    Ok(entry.map(|entry| value_of(&entry)))
}

pub(super) fn put(
    text: &str,
    dialect: Dialect,
    place: Place<'_>,
    entry: &Map<String, Value>,
) -> anyhow::Result<String> {
    let root = parse(text, dialect)?;
    let top = match top(&root)? {
        Some(top) => top,
        None => root.object_value_or_set(),
    };
    let servers = match section(&top, place)? {
        Some(servers) => servers,
        None => top.object_value_or_set(place.section),
    };
    match only(&servers, place.name)? {
        Some(present) => match present.object_value() {
            Some(present) => fill(&present, entry),
            None => present.set_value(input(&Value::Object(entry.clone()))),
        },
        None => drop(servers.append(place.name, input(&Value::Object(entry.clone())))),
    }
    let mut new = root.to_string();
    if text.trim().is_empty() {
        new = format!("{}\n", new.trim());
    }
    Ok(new)
}

pub(super) fn parse(text: &str, dialect: Dialect) -> anyhow::Result<CstRootNode> {
    let commented = dialect == Dialect::Commented;
    let options = ParseOptions {
        allow_comments: commented,
        allow_trailing_commas: commented,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let root = CstRootNode::parse(text, &options).map_err(|error| {
        let (line, column) = (error.line_display(), error.column_display());
        let kind = error.kind().to_string();
        let mut letters = kind.chars();
        let first = letters.next().map(|letter| letter.to_ascii_lowercase());
        let kind: String = first.into_iter().chain(letters).collect();
        anyhow::anyhow!("line {line}, column {column}: {kind}")
    })?;
    if !commented && root.value().is_some() {
        check(text)?;
    }
    Ok(root)
}

/// Refuses what the parser above overlooks, such as a comment at the very end: it is made for files
/// that may have them.
fn check(text: &str) -> anyhow::Result<()> {
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|error| {
        let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
        let before = line.get(..error.column().saturating_sub(1)).unwrap_or_default();
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        anyhow::anyhow!(
            "line {}, column {}: {message}",
            error.line(),
            before.chars().count() + 1
        )
    })
}

/// The outermost object; nothing in a file that says nothing.
pub(super) fn top(root: &CstRootNode) -> anyhow::Result<Option<CstObject>> {
    match root.value() {
        None => Ok(None),
        Some(value) => value.as_object().map(Some).context("it does not hold a JSON object"),
    }
}

fn section(top: &CstObject, place: Place<'_>) -> anyhow::Result<Option<CstObject>> {
    let Some(section) = only(top, place.section)? else {
        return Ok(None);
    };
    let object = section.object_value();
    object
        .map(Some)
        .with_context(|| format!("`{}` is not an object", place.section))
}

/// The one property of that name. Of two, clients do not agree which one counts.
pub(super) fn only(object: &CstObject, name: &str) -> anyhow::Result<Option<CstObjectProp>> {
    let mut named = object.properties();
    named.retain(|property| property.decoded_name().as_deref() == Some(name));
    ensure!(named.len() < 2, "`{name}` is there twice");
    Ok(named.pop())
}

fn value_of(property: &CstObjectProp) -> Value {
    property.to_serde_value().unwrap_or(Value::Null)
}

/// Makes an object say this, and leaves what says it already as it is written.
pub(super) fn fill(object: &CstObject, wanted: &Map<String, Value>) {
    for property in object.properties() {
        if !property.decoded_name().is_some_and(|name| wanted.contains_key(&name)) {
            property.remove();
        }
    }
    for (key, value) in wanted {
        match (object.get(key), value) {
            (Some(present), value) if value_of(&present) == *value => {}
            (Some(present), Value::Object(value)) if present.object_value().is_some() => {
                fill(&present.object_value_or_set(), value);
            }
            (Some(present), value) => present.set_value(input(value)),
            (None, value) => drop(object.append(key, input(value))),
        }
    }
}

pub(super) fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(it) => CstInputValue::Bool(*it),
        Value::Number(it) => CstInputValue::Number(it.to_string()),
        Value::String(it) => CstInputValue::String(it.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const PLACE: Place<'static> = Place {
        section: "mcpServers",
        name: "us",
    };

    fn entry() -> Map<String, Value> {
        let entry = json!({"command": "/a \"b\"\\c\u{1}é", "args": ["stdio"], "env": {"A": "b"}});
        entry.as_object().unwrap().clone()
    }

    #[track_caller]
    fn check_put(before: &str, after: &str) {
        let small = json!({"command": "c", "args": ["x"]});
        let put = put(before, Dialect::Commented, PLACE, small.as_object().unwrap()).unwrap();
        assert_eq!(put, after);
        assert_eq!(get(&put, Dialect::Commented, PLACE).unwrap(), Some(small));
    }

    #[test]
    fn an_entry_takes_the_layout_of_its_neighbours() {
        check_put(
            "",
            "{\n  \"mcpServers\": {\n    \"us\": {\n      \"command\": \"c\",\n      \"args\": [\"x\"]\n    }\n  }\n}\n",
        );
        check_put(
            "{\n\t\"a\": 1\n}",
            "{\n\t\"a\": 1,\n\t\"mcpServers\": {\n\t\t\"us\": {\n\t\t\t\"command\": \"c\",\n\t\t\t\"args\": [\"x\"]\n\t\t}\n\t}\n}",
        );
    }

    #[test]
    fn only_what_differs_in_an_entry_is_written_anew() {
        check_put(
            "{\"mcpServers\": {\"us\": {\"command\" : \"c\" /* kept */, \"args\": [\"old\"]}}}",
            "{\"mcpServers\": {\"us\": {\"command\" : \"c\" /* kept */, \"args\": [\"x\"]}}}",
        );
        check_put(
            "{\"mcpServers\": {\"us\": 5}} // end",
            "{\"mcpServers\": {\"us\": {\n      \"command\": \"c\",\n      \"args\": [\"x\"]\n    }}} // end",
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"\\\\é]{0,4}", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_else_the_file_says_it_still_says(
            others in prop::collection::btree_map("[a-z]{1,4}", value(), 0..4),
            servers in prop::option::of(prop::collection::btree_map("[a-z]{3,5}", value(), 0..4)),
            pretty in any::<bool>(),
        ) {
            let mut before: Map<String, Value> = others.into_iter().collect();
            if let Some(servers) = servers {
                before.insert("mcpServers".to_owned(), servers.into_iter().collect());
            }
            let before = Value::Object(before);
            let text = if pretty { format!("{before:#}") } else { before.to_string() };
            let after = put(&text, Dialect::Strict, PLACE, &entry()).unwrap();
            let after: Value = serde_json::from_str(&after).unwrap();
            let mut expected = before;
            if expected.get("mcpServers").is_none() {
                expected["mcpServers"] = json!({});
            }
            expected["mcpServers"]["us"] = Value::Object(entry());
            prop_assert_eq!(after, expected);
        }
    }
}
