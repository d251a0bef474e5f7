//! `policy show`: the whole policy in force, under the digest that every decision's record names.

use anyhow::Context as _;
use countersign_gateway::audit::chain;
use serde_json::{Value, json};

use crate::config::Flags;
use crate::start::Started;
use crate::terminal::{Cell, Page, Tone};

pub(super) fn run(flags: &Flags, json: bool) -> anyhow::Result<()> {
    let policy = Started::load(flags)?.policy;
    let digest = policy.snapshot()["digest"].take();
    let content = policy.content();
    let mut page = Page::stdout();
    if json {
        // The canonical form is what the digest is made of, and what the record holds.
        let content: Value = serde_json::from_str(&chain::canonical(&content)).context("the policy is not JSON")?;
        page.json(&json!({"digest": digest, "content": content}))?;
    } else {
        let mut rows = vec![row("digest", &digest)];
        for (name, value) in content.as_object().into_iter().flatten() {
            match name.as_str() {
                "catalog" => rows.push(row(name, &names(value))),
                "policies" => policies(value, &mut rows),
                _ => rows.extend(lines(name, value)),
            }
        }
        page.table(&rows)?;
    }
    page.flush()
}

/// Objects are worth a line each.
fn lines(name: &str, value: &Value) -> Vec<Vec<Cell>> {
    match value.as_array() {
        Some(items) if items.iter().any(Value::is_object) => items.iter().map(|item| row(name, item)).collect(),
        _ => vec![row(name, value)],
    }
}

/// Each key with its own fields, then its entries.
fn policies(value: &Value, rows: &mut Vec<Vec<Cell>>) {
    let sections = value.as_object().into_iter().flatten();
    for (section, keys) in sections {
        for (key, policy) in keys.as_object().into_iter().flatten() {
            let name = format!("policies.{section}.{key}");
            for (field, value) in policy.as_object().into_iter().flatten() {
                match (field.as_str(), value) {
                    (_, Value::Null) | ("source", _) => {}
                    ("tools", Value::Array(entries)) => rows.extend(entries.iter().map(|entry| row(&name, entry))),
                    (field, value) => rows.push(row(&name, &json!({field: value}))),
                }
            }
        }
    }
}

fn names(tools: &Value) -> Value {
    let tools = tools.as_array().into_iter().flatten();
    tools.map(|tool| tool["name"].clone()).collect()
}

fn row(name: &str, value: &Value) -> Vec<Cell> {
    vec![Cell::new(Tone::Strong, name), Cell::plain(shown(value))]
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Object(fields) if fields.is_empty() => "none".to_owned(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}: {}", shown(value));
            fields.iter().map(field).collect::<Vec<_>>().join("; ")
        }
        Value::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), |number| number.to_string()),
        Value::Bool(truth) => truth.to_string(),
    }
}
