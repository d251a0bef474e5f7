//! Server-side apply of a Secret, by the rules that Kubernetes documents.
//!
//! Each manager keeps the fields that it applied. One that another manager keeps with another value is a conflict
//! unless forced; what a manager no longer names is taken away if nobody else keeps it. The same again changes
//! nothing, not even the version.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::shapes::{self, status};
use crate::http::Response;

/// The way to a value: `data`, `password`.
pub(super) type Field = Vec<String>;

#[derive(Clone, PartialEq, Default)]
pub(super) struct Stored {
    pub(super) fields: BTreeMap<Field, Value>,
    pub(super) version: u64,
    /// Which fields each manager applied.
    pub(super) managers: BTreeMap<String, BTreeSet<Field>>,
}

pub(super) struct Applied {
    pub(super) stored: Stored,
    pub(super) has_changed: bool,
}

impl Stored {
    /// A key of the Secret, in base64.
    pub(super) fn datum(&self, key: &str) -> Option<&str> {
        self.fields.get(&datum(key))?.as_str()
    }

    /// Puts one key beside the others, as this manager.
    pub(super) fn put(&mut self, manager: &str, key: &str, value: &str, version: u64) {
        self.fields.insert(datum(key), json!(value));
        self.managers.entry(manager.to_owned()).or_default().insert(datum(key));
        self.version = version;
    }

    fn is_immutable(&self) -> bool {
        self.fields.get(&vec!["immutable".to_owned()]) == Some(&json!(true))
    }
}

fn datum(key: &str) -> Field {
    vec!["data".to_owned(), key.to_owned()]
}

pub(super) fn apply(
    before: Option<&Stored>,
    name: &str,
    manager: &str,
    wanted: &Value,
    is_forced: bool,
    next_version: u64,
) -> Result<Applied, Response> {
    let fields = read(wanted)?;
    if let Some(version) = wanted["metadata"]["resourceVersion"].as_str()
        && before.map(|stored| stored.version.to_string()).as_deref() != Some(version)
    {
        let text = format!(
            "Operation cannot be fulfilled on secrets \"{name}\": the object has been modified; please apply your \
             changes to the latest version and try again"
        );
        return Err(status(409, "Conflict", &text));
    }
    let mut stored = before.cloned().unwrap_or_default();
    let contested = contested(&stored, manager, &fields);
    if !contested.is_empty() && !is_forced {
        return Err(shapes::conflict(name, &contested));
    }
    for (other, field) in contested {
        stored.managers.entry(other).or_default().remove(&field);
    }
    let names: BTreeSet<Field> = fields.keys().cloned().collect();
    let dropped = stored
        .managers
        .insert(manager.to_owned(), names.clone())
        .unwrap_or_default();
    for field in dropped.difference(&names) {
        if !stored.managers.values().any(|kept| kept.contains(field)) {
            stored.fields.remove(field);
        }
    }
    stored.fields.extend(fields);
    stored.managers.retain(|_, kept| !kept.is_empty());
    let kind = vec!["type".to_owned()];
    stored.fields.entry(kind.clone()).or_insert(json!("Opaque"));
    if let Some(before) = before {
        let of_data = |stored: &Stored| -> BTreeMap<Field, Value> {
            let data = stored.fields.iter().filter(|(field, _)| field[0] == "data");
            data.map(|(field, value)| (field.clone(), value.clone())).collect()
        };
        let frozen = "field is immutable when `immutable` is set";
        if before.is_immutable() && !stored.is_immutable() {
            return Err(invalid(name, &format!("immutable: Forbidden: {frozen}")));
        }
        if before.is_immutable() && of_data(before) != of_data(&stored) {
            return Err(invalid(name, &format!("data: Forbidden: {frozen}")));
        }
        if before
            .fields
            .get(&kind)
            .is_some_and(|was| stored.fields.get(&kind) != Some(was))
        {
            return Err(invalid(name, "type: Invalid value: field is immutable"));
        }
    }
    let has_changed = before != Some(&stored);
    if has_changed {
        stored.version = next_version;
    }
    Ok(Applied { stored, has_changed })
}

/// The fields of what is applied. Plain texts come to be among the data, which is where they are kept.
fn read(wanted: &Value) -> Result<BTreeMap<Field, Value>, Response> {
    let mut fields = BTreeMap::new();
    let entries = |node: &Value| node.as_object().cloned().into_iter().flatten();
    for (key, value) in entries(&wanted["data"]) {
        let text = value.as_str().unwrap_or_default();
        if STANDARD.decode(text).is_err() {
            let reason = "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data";
            return Err(status(400, "BadRequest", reason));
        }
        fields.insert(datum(&key), json!(text));
    }
    for (key, value) in entries(&wanted["stringData"]) {
        let text = value.as_str().unwrap_or_default();
        fields.insert(datum(&key), json!(STANDARD.encode(text)));
    }
    for field in fields.keys() {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !field[1].chars().all(fits) {
            let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
            let reason = "Invalid value: a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
            return Err(invalid(name, &format!("data[{}]: {reason}", field[1])));
        }
    }
    for part in ["labels", "annotations"] {
        for (key, value) in entries(&wanted["metadata"][part]) {
            fields.insert(vec!["metadata".to_owned(), part.to_owned(), key], value);
        }
    }
    for part in ["type", "immutable"] {
        if !wanted[part].is_null() {
            fields.insert(vec![part.to_owned()], wanted[part].clone());
        }
    }
    Ok(fields)
}

/// Those who keep a field that is to have another value.
fn contested(stored: &Stored, manager: &str, fields: &BTreeMap<Field, Value>) -> Vec<(String, Field)> {
    let mut contested = Vec::new();
    for (field, value) in fields {
        let others = stored
            .managers
            .iter()
            .filter(|(other, kept)| *other != manager && kept.contains(field));
        if stored.fields.get(field) != Some(value) {
            contested.extend(others.map(|(other, _)| (other.clone(), field.clone())));
        }
    }
    contested
}

fn invalid(name: &str, what: &str) -> Response {
    status(422, "Invalid", &format!("Secret \"{name}\" is invalid: {what}"))
}
