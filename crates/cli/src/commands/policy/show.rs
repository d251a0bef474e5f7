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
            match value.as_array() {
                // Objects are worth a line each.
                Some(items) if items.iter().any(Value::is_object) => {
                    rows.extend(items.iter().map(|item| row(name, item)))
                }
                _ => rows.push(row(name, value)),
            }
        }
        page.table(&rows)?;
    }
    page.flush()
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
